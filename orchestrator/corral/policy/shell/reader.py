"""Reads a command line: the line itself, then all code and commands found inside it, until nothing is left."""

from __future__ import annotations

import re

from corral.policy.shell.finding import Code, Command, Findings
from corral.policy.shell.grammar import Grammar, loses_line
from corral.policy.shell.model import NO_STDIN, CommandLine, Program, Word
from corral.policy.shell.program import find_reader
from corral.policy.shell.walk import walk

MAX_BYTES = 64 * 1024

# SECURITY: what a person cannot see, or sees elsewhere than it stands, is never taken for understood: control and
# format characters, blanks that are no blanks, fillers, variation selectors; test_characters_that_hide_are_told
_HIDDEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\xa0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ud800-\udfff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

_PLAIN = bytes((*range(0x20, 0x7F), 0x09, 0x0A))


def read_command_line(text: str) -> CommandLine:
    """What the line would run. Never raises, and takes bounded time and memory, whatever the text."""
    findings = Findings()
    if len(text) > MAX_BYTES or len(raw := text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        findings.has_error = True
        findings.tell_unknown(f"longer than {MAX_BYTES} bytes")
        return findings.close()
    if b"\0" in raw:  # no command line can have one
        findings.has_error = True
        findings.tell_unknown("it has characters that are not seen")
        return findings.close()
    if raw.translate(None, _PLAIN) and _HIDDEN.search(text):
        findings.tell_unknown("it has characters that are not seen")
    findings.pending.append(Code(text, (), NO_STDIN))
    grammar = Grammar()
    while findings.pending:
        found = findings.pending.popleft()
        if isinstance(found, Code):
            _read_code(found, grammar, findings)
        else:
            _read_command(found, findings)
    return findings.close()


def _read_code(code: Code, grammar: Grammar, findings: Findings) -> None:
    text = code.text
    if code.expansions_only:
        # As the text of a here-document nothing but expansions has a meaning; the line cannot end it.
        text = f"cat <<CORRAL-END\n{text}\nCORRAL-END\n"
        if "\nCORRAL-END\n" in f"\n{code.text}\n":
            findings.has_error = True
            return
    root, source = grammar.parse(text.encode("utf-8", "replace"))
    if root is None:
        findings.has_error = True
        return
    if root.has_error or (b"\\" in source and loses_line(root, source)):
        findings.has_error = True
    walk(root, source, code, findings)


def _read_command(command: Command, findings: Findings) -> None:
    findings.programs.append(Program(name=command.name, arguments=_arguments(command.words), within=command.within))
    reader = find_reader(command.base)
    if reader is not None:
        reader(command, findings)


def _arguments(words: tuple[Word, ...]) -> tuple[str | None, ...]:
    return tuple([word[0] for word in words])
