"""sed: its scripts run commands (`e`, `s///e`) and write files (`w`, `s///w`, `-i`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.model import Word
from corral.policy.shell.program.option import Options, parse_options

SED = Options(
    "nErsuz",
    "efl",
    attached="i",
    long_flags=(
        *("quiet", "silent", "debug", "posix", "regexp-extended", "separate", "unbuffered", "null-data", "sandbox"),
        *("follow-symlinks", "help", "version", "binary"),
    ),
    long_values=("expression", "file", "line-length"),
    long_attached=("in-place",),
    anywhere=True,
)
_BLANK = " \t\n;"
_ADDRESS = re.compile(r"[0-9]+(?:~[0-9]+)?|\$|[+~][0-9]+")


@dataclass(slots=True)
class SedScript:
    """What a script does beside editing text."""

    runs: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    is_dynamic: bool = False  # runs what it reads
    is_understood: bool = True


def read_sed(command: Command, findings: Findings) -> None:
    parsed = parse_options(command.words, SED)
    scripts = parsed.get("e", "expression")
    operands = list(parsed.operands)
    for value in parsed.get("f", "file"):
        findings.run_script(value)
    if not parsed.has("e", "expression", "f", "file") and operands:
        scripts = [operands.pop(0)]
    texts = [word.text for word in scripts if word.text is not None]
    if len(texts) != len(scripts):
        findings.tell_unknown("sed runs a script that is known at run time only")
        return
    script = parse_sed("\n".join(texts))
    if not script.is_understood or script.is_dynamic:
        findings.tell_unknown("sed runs what is known at run time only")
    for code in script.runs:
        findings.read(code, (*command.within, command.base))
    for name in script.writes:
        findings.write(Word(name))
    if parsed.has("i", "in-place"):
        for word in operands:
            findings.write(word)


def parse_sed(text: str) -> SedScript:
    """Scan a script, command by command."""
    script = SedScript()
    at = 0
    while at < len(text) and script.is_understood:
        if text[at] in _BLANK or text[at] == "}":
            at += 1
        else:
            at = _scan_command(text, at, script)
    return script


def _scan_command(text: str, at: int, script: SedScript) -> int:
    at = _skip_addresses(text, at)
    letter = text[at : at + 1]
    rest = at + 1
    if letter == "s":
        return _scan_substitution(text, rest, script)
    if letter == "y":
        return _skip_two(text, rest)
    if letter in ("a", "i", "c"):
        return _skip_text(text, rest)
    if letter in ("e", "w", "W"):
        end = _line_end(text, rest)
        argument = text[rest:end].strip()
        if letter == "e" and not argument:
            script.is_dynamic = True
        elif letter == "e":
            script.runs.append(argument)
        else:
            script.writes.append(argument)
        return end
    if letter in ("r", "R", "#"):
        return _line_end(text, rest)
    if letter in (":", "b", "t", "T"):
        return _skip_label(text, rest)
    if letter in ("q", "Q", "l", "L", "v"):
        return _skip_while(text, rest, " \t0123456789.")
    if letter and letter in "{}=dDgGhHnNpPxFz":
        return rest
    script.is_understood = False
    return len(text)


def _skip_addresses(text: str, at: int) -> int:
    for _ in range(2):
        at = _skip_while(text, at, " \t")
        if match := _ADDRESS.match(text, at):
            at = match.end()
        elif text[at : at + 1] == "/":
            at = _skip_while(text, _find_delimiter(text, at + 1, "/", is_pattern=True), "IM")
        elif text[at : at + 1] == "\\" and at + 1 < len(text):
            at = _skip_while(text, _find_delimiter(text, at + 2, text[at + 1], is_pattern=True), "IM")
        at = _skip_while(text, at, " \t")
        if text[at : at + 1] != ",":
            break
        at += 1
    return _skip_while(text, at, " \t!")


def _scan_substitution(text: str, at: int, script: SedScript) -> int:
    delimiter = text[at : at + 1]
    if delimiter in ("", "\n", "\\"):
        script.is_understood = False
        return len(text)
    at = _find_delimiter(text, at + 1, delimiter, is_pattern=True)
    at = _find_delimiter(text, at, delimiter, is_pattern=False)
    while at < len(text) and text[at] not in _BLANK + "}#":
        if text[at] == "e":
            script.is_dynamic = True
        elif text[at] == "w":
            end = _line_end(text, at)
            script.writes.append(text[at + 1 : end].strip())
            return end
        elif text[at] not in "gpiImM0123456789":
            script.is_understood = False
            return len(text)
        at += 1
    return at


def _skip_two(text: str, at: int) -> int:
    delimiter = text[at : at + 1]
    return _find_delimiter(
        text, _find_delimiter(text, at + 1, delimiter, is_pattern=False), delimiter, is_pattern=False
    )


def _find_delimiter(text: str, at: int, delimiter: str, *, is_pattern: bool) -> int:
    """Behind the next delimiter that is not escaped and, in a pattern, not inside brackets."""
    bracket = False
    while at < len(text):
        character = text[at]
        if character == "\\" and not bracket:
            at += 2
            continue
        if bracket:
            if character == "]":
                bracket = False
        elif character == delimiter:
            return at + 1
        elif character == "[" and is_pattern:
            bracket = True
            # `]` is a member where it comes first.
            at += 1 if text[at + 1 : at + 2] == "^" else 0
            at += 1 if text[at + 1 : at + 2] == "]" else 0
        at += 1
    return len(text)


def _skip_text(text: str, at: int) -> int:
    """Text of `a`, `i` and `c`: to the end of the line, and on while lines end in a backslash."""
    end = _line_end(text, at)
    while end < len(text) and text[end - 1] == "\\":
        end = _line_end(text, end + 1)
    return end


def _skip_label(text: str, at: int) -> int:
    while at < len(text) and text[at] not in "\n;}":
        at += 1
    return at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _skip_while(text: str, at: int, characters: str) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at
