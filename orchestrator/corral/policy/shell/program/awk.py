"""awk: programs that run commands (`system`, pipes) and write files (`print > "f"`)."""

from __future__ import annotations

import re

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.model import Word
from corral.policy.shell.program.option import Options, parse_options

_OPTIONS = Options(
    "bcCghkMnNOPrsStV",
    "fFveEilW",
    attached="dDop",
    long_flags=("posix", "re-interval", "sandbox", "traditional", "characters-as-bytes", "csv"),
    long_values=("file", "field-separator", "assign", "source", "exec", "include", "load"),
)
_STRING = r'"(?:[^"\\\n]|\\.)*"?'  # one that does not end is read once, too
# A `/` begins a pattern where a value may begin; elsewhere it divides.
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|(?P<comment>#[^\n]*)|(?P<regex>(?:(?<=[(,~!&|{{;\n])|^|(?<=[(,~!&|{{;]\s))\s*/(?:[^/\\\n]|\\.)+/)"
    r"|(?P<space>\s+)|(?P<name>[A-Za-z_]\w*)|(?P<mark>\|\||&&|>>|>=|\|&|.)",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def read_awk(command: Command, findings: Findings) -> None:
    parsed = parse_options(command.words, _OPTIONS)
    for value in parsed.get("f", "file", "E", "exec", "i", "include", "l", "load"):
        findings.run_script(value)
    programs = parsed.get("e", "source")
    if not programs and not parsed.has("f", "file", "E", "exec"):
        programs = parsed.operands[:1]
    if parsed.get("i", "include") and any(value.text == "inplace" for value in parsed.get("i", "include")):
        for word in parsed.operands[len(programs) :]:
            findings.write(word)
    for program in programs:
        if program.text is None:
            findings.tell_unknown("awk runs a program that is known at run time only")
        else:
            _read_program(program.text, command, findings)


def _read_program(text: str, command: Command, findings: Findings) -> None:
    """Every place where awk hands something to a shell, or opens a file to write."""
    tokens = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text)]
    tokens = [token for token in tokens if token[0] not in ("space", "comment")]
    within = (*command.within, command.base)
    printing = depth = 0
    for place, (kind, mark) in enumerate(tokens):
        before = tokens[place - 1] if place else ("", "")
        after = tokens[place + 1] if place + 1 < len(tokens) else ("", "")
        if kind == "name" and mark in ("print", "printf"):
            printing, depth = 1, 0
        elif mark in (";", "}", "{"):
            printing = 0
        elif mark in ("(", ")"):
            depth += 1 if mark == "(" else -1
        if mark == "@" and kind == "mark":
            findings.tell_unknown("awk calls what is known at run time only")
        elif kind == "name" and mark == "system" and after[1] == "(":
            argument = tokens[place + 2 : place + 4]
            _read_literal(argument[0] if len(argument) == 2 and argument[1][1] == ")" else ("", ""), within, findings)
        elif kind == "mark" and mark in ("|", "|&"):
            # Alone in quotes it is the whole command; next to another value it is a piece of one.
            from_left = after[1] == "getline"
            whole = tokens[place - 2][0] != "string" if from_left and place > 1 else True
            ends = place + 2 >= len(tokens) or tokens[place + 2][1] in (";", "}", "\n")
            literal = before if from_left and whole else after if not from_left and ends else ("", "")
            _read_literal(literal, within, findings)
        elif kind == "mark" and mark in (">", ">>") and printing and depth <= 0:
            findings.write(Word(_unquote(after[1]) if after[0] == "string" else None))


def _read_literal(token: tuple[str, str], within: tuple[str, ...], findings: Findings) -> None:
    if token[0] == "string":
        findings.read(_unquote(token[1]), within)
    else:
        findings.tell_unknown("awk runs code that is known at run time only")


def _unquote(text: str) -> str:
    return _ESCAPED.sub(lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), text[1:-1])
