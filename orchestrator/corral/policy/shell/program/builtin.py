"""Builtins that run code, or evaluate what looks like a name."""

from __future__ import annotations

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.model import Word
from corral.policy.shell.program.option import Options, parse_options
from corral.policy.shell.program.wrapper import read_code_word, read_joined
from corral.policy.shell.variable import look_for_evaluated, read_assignment

_SIGNALS_ONLY = ("-l", "-p", "-", "")


def read_eval(command: Command, findings: Findings) -> None:
    words = list(command.words)
    read_joined(words[1:] if words and words[0].text == "--" else words, command, findings)


def read_source(command: Command, findings: Findings) -> None:
    words = [word for word in command.words if word.text != "--"]
    if words:
        findings.run_script(words[0])


def read_trap(command: Command, findings: Findings) -> None:
    words = [word for word in command.words if word.text != "--"]
    if len(words) > 1 and words[0].text not in _SIGNALS_ONLY:
        read_code_word(words[0], command, findings)


def read_alias(command: Command, findings: Findings) -> None:
    for word in command.words:
        if word.text is None:
            findings.tell_unknown("an alias is known at run time only")
        elif "=" in word.text and (value := word.text.split("=", 1)[1]):
            findings.read(value, (*command.within, command.base))


def read_declare(command: Command, findings: Findings) -> None:
    """`declare`, `export`, `local`, ...: what stands on the line as an assignment was read with it."""
    for word in command.words:
        if word.text is not None:
            name, separator, value = word.text.partition("=")
            look_for_evaluated(name, command.within, findings)
            if separator and not name.startswith("-"):
                read_assignment(name, Word(value), command.within, findings)


def read_names(command: Command, findings: Findings) -> None:
    """`read`, `unset`, `let`, `test -v`, `printf -v`, ...: a name with a subscript is evaluated."""
    options = Options("", "v") if command.base == "printf" else None
    words = parse_options(command.words, options).get("v") if options else command.words
    for word in words:
        if word.text is not None:
            look_for_evaluated(word.text, command.within, findings)
        elif command.base == "let":
            findings.tell_unknown("let evaluates what is known at run time only")


def read_callback(command: Command, findings: Findings) -> None:
    """`mapfile -C CODE`, `complete -C CODE`, `bind -x CODE`."""
    known = Options("tabcdefgjksuvprlmPSVX", "CnOsudcAGWPSFoxqf", anywhere=True)
    for word in parse_options(command.words, known).get("C", "x"):
        code = word if command.base != "bind" or word.text is None else Word(word.text.split(":", 1)[-1].strip(" \"'"))
        read_code_word(code, command, findings)
    read_names(command, findings)


def read_enable(command: Command, findings: Findings) -> None:
    """`enable -f FILE` loads machine code into the shell; `hash -p FILE NAME` gives a name to another file."""
    letters = "f" if command.base == "enable" else "p"
    if parse_options(command.words, Options("adnpslrt", letters)).has(letters):
        findings.tell_unknown(f"{command.base} makes names mean something else")


def read_options(command: Command, findings: Findings) -> None:
    if any(word.text == "expand_aliases" for word in command.words):
        findings.tell_unknown("aliases hold")


def read_move(_command: Command, findings: Findings) -> None:
    findings.moves = True
