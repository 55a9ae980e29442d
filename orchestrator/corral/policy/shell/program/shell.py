"""Shells and interpreters: code they get on the command line or their input is read where it is the shell's, marked
where it is another language; a file of code is named."""

from __future__ import annotations

import re

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.model import Word
from corral.policy.shell.program.option import Options, parse_options
from corral.policy.shell.program.wrapper import read_code_word

SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "posh", "yash"))

_SHELL_OPTIONS = Options(
    "abcefhiklmnprstuvxBCDEHIPTVq",
    "oO",
    long_flags=("login", "norc", "noprofile", "posix", "restricted", "verbose", "noediting", "debugger"),
    long_values=("rcfile", "init-file"),
    plus=True,
)


def read_shell(command: Command, findings: Findings) -> None:
    """`sh -c CODE`, `sh FILE`, or code on its input."""
    parsed = parse_options(command.words, _SHELL_OPTIONS)
    if not parsed.is_known:
        findings.tell_unknown(f"{command.base} gets options that are not known here")
    for value in parsed.get("rcfile", "init-file"):
        findings.run_script(value)
    operands = parsed.operands
    if parsed.has("c"):
        if operands:
            read_code_word(operands[0], command, findings)
    elif operands and operands[0].text != "-" and not parsed.has("s"):
        findings.run_script(operands[0])
    else:
        _read_stdin(command, findings)


def _read_stdin(command: Command, findings: Findings) -> None:
    stdin = command.stdin
    if stdin.text is not None:
        findings.read(stdin.text, (*command.within, command.base))
    elif stdin.file is not None:
        findings.run_script(Word(stdin.file))
    elif stdin.given:
        findings.tell_unknown("code is known at run time only")


# Letters whose value is code, letters with another value, options that name a module and end the search for a file.
_INTERPRETERS: dict[str, tuple[str, str, str]] = {
    "python": ("c", "WXQ", "m"),
    "pypy": ("c", "WX", "m"),
    "perl": ("eE", "", ""),
    "ruby": ("e", "rIEC", ""),
    "node": ("ep", "r", ""),
    "nodejs": ("ep", "r", ""),
    "deno": ("", "", ""),
    "bun": ("e", "", ""),
    "php": ("rBER", "fdct", ""),
    "lua": ("e", "l", ""),
    "luajit": ("e", "l", ""),
    "Rscript": ("e", "", ""),
    "R": ("e", "", ""),
    "julia": ("eE", "L", ""),
    "osascript": ("e", "l", ""),
    "tclsh": ("", "", ""),
    "expect": ("c", "", ""),
    "fish": ("c", "C", ""),
    "pwsh": ("c", "", ""),
    "guile": ("c", "", ""),
    "emacs": ("", "", ""),
    "gdb": ("", "", ""),
}
_VERSION = re.compile(r"[0-9.]+$")
_LONG_CODE = ("eval", "print", "execute", "command", "ex", "eval-command", "run", "init-eval-command")


def find_interpreter(base: str) -> str | None:
    """The interpreter a program is, without its version: `python3.11`, `perl5`."""
    if base in _INTERPRETERS:
        return base
    if not base[-1:].isdigit():
        return None
    name = _VERSION.sub("", base)
    return name if name in _INTERPRETERS else None


def read_interpreter(command: Command, findings: Findings) -> None:
    codes, values, modules = _INTERPRETERS[find_interpreter(command.base) or ""]
    words = iter(command.words)
    for word in words:
        text = word.text
        if text is None:
            findings.run_script(word)
            return
        if text == "-" or not text.startswith("-"):
            if text != "-":
                findings.run_script(word)
                return
            break
        if text.startswith("--"):
            if text[2:].split("=", 1)[0] in _LONG_CODE:
                findings.code[command.base] = None
                return
            continue
        # A group of letters ends at one that takes a value.
        for place, letter in enumerate(text[1:], 2):
            if letter in codes:
                findings.code[command.base] = None
                return
            if letter in modules:
                return
            if letter in values:
                if not text[place:]:
                    next(words, None)
                break
    if command.stdin.file is not None:
        findings.run_script(Word(command.stdin.file))
    elif command.stdin.given:
        # A program on its input or in a here-document: there to be read by a person, not here.
        findings.code[command.base] = None
