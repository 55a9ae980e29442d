"""Programs with an option that runs a command or names a file to write, too small for a module of their own."""

from __future__ import annotations

from collections.abc import Callable

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.model import NO_STDIN, Word
from corral.policy.shell.program.option import Options, find_long, parse_options

_TAR_CODE = (
    "checkpoint-action",
    "to-command",
    "use-compress-program",
    "rsh-command",
    "info-script",
    "new-volume-script",
)
_TAR_LONG = (*_TAR_CODE, "file", "directory", "checkpoint", "create", "extract", "append", "update", "rmt-command")


def read_tar(command: Command, findings: Findings) -> None:
    words = list(command.words)
    archive: Word | None = None
    writing = False
    first = True
    while words:
        word = words.pop(0)
        text = word.text
        if text is None:
            if word.many:
                findings.tell_unknown("tar gets words that are known at run time only")
        elif text.startswith("--"):
            name, separator, value = text[2:].partition("=")
            full = find_long(name, _TAR_LONG) if len(name) > 2 else None
            if full in _TAR_CODE or full == "rmt-command":
                argument = Word(value) if separator else words.pop(0) if words else Word("")
                _read_tar_code(full, argument, command, findings)
            elif full == "file":
                archive = Word(value) if separator else words.pop(0) if words else None
            elif full in ("create", "append", "update"):
                writing = True
        elif text.startswith("-") or first:
            letters = text.lstrip("-")
            writing = writing or any(letter in "cru" for letter in letters if text.startswith("-") or first)
            for place, letter in enumerate(letters, 1):
                if letter not in "fICFTXbgKLNVH":
                    continue
                # In the old style all values follow; in the new one the rest of the word is it.
                attached = letters[place:] if text.startswith("-") else ""
                argument = Word(attached) if attached else words.pop(0) if words else Word("")
                if letter == "f":
                    archive = argument
                elif letter in "IF":
                    _read_tar_code("use-compress-program", argument, command, findings)
                if text.startswith("-"):
                    break
        first = False
    if writing and archive is not None:
        findings.write(archive)


def _read_tar_code(name: str | None, value: Word, command: Command, findings: Findings) -> None:
    if value.text is None:
        findings.tell_unknown("tar runs code that is known at run time only")
        return
    code: str | None = value.text
    if name == "checkpoint-action":
        code = value.text[5:] if value.text.startswith("exec=") else None
    if code:
        findings.read(code, (*command.within, command.base))


# Options whose value is a command line for a shell; options that name a file to write; whether the last or all
# operands are written; what the program knows of other options.
_CODE: dict[str, tuple[Options, tuple[str, ...], tuple[str, ...]]] = {
    "sort": (
        Options(
            "bdfghiMnRrVcCmsuz",
            "kotTS",
            long_values=("key", "output", "field-separator", "temporary-directory", "buffer-size", "compress-program"),
            long_flags=("reverse", "unique", "numeric-sort", "stable", "zero-terminated", "human-numeric-sort"),
            anywhere=True,
        ),
        ("compress-program",),
        ("o", "output"),
    ),
    "split": (
        Options("dexuz", "abClnt", long_values=("filter", "bytes", "lines", "number"), anywhere=True),
        ("filter",),
        (),
    ),
    "rg": (Options(long_values=("pre", "hostname-bin"), anywhere=True), ("pre", "hostname-bin"), ()),
    "man": (
        Options("adfhkKLwW", "PpHMSe", long_values=("pager", "html"), anywhere=True),
        ("P", "pager", "H", "html"),
        (),
    ),
    "zip": (Options("rTqjmyuf", long_values=("unzip-command",), anywhere=True), ("unzip-command", "TT"), ()),
    "make": (Options("BdeiknpqrRsStvw", "CfIjloOW", long_values=("eval",), anywhere=True), (), ()),
    "tee": (Options("aip", anywhere=True), (), ()),
    "vim": (Options(), (), ()),
    "column": (Options(), (), ()),
    "tree": (Options("adfhilpsugDFNqQrtvUCAXJ", "LPIo", anywhere=True), (), ("o",)),
    "xxd": (Options("abeEiprRuv", "cglos", anywhere=True), (), ()),
    "truncate": (Options("co", "rs", long_values=("size", "reference"), anywhere=True), (), ()),
}
_ALL_WRITTEN: dict[str, Options] = {
    "tee": Options("aip", anywhere=True),
    "touch": Options("acfhm", "dtr", long_values=("date", "reference", "time"), anywhere=True),
    "mkdir": Options("pvZ", "m", long_values=("mode",), anywhere=True),
    "rm": Options("fiIrRdv", anywhere=True),
    "rmdir": Options("pv", anywhere=True),
    "unlink": Options(),
    "shred": Options("fuvxz", "ns", anywhere=True),
    "truncate": Options("co", "rs", long_values=("size", "reference"), anywhere=True),
    "mkfifo": Options("Z", "m", anywhere=True),
    "mktemp": Options("duqt", "p", anywhere=True),
}
_LAST_WRITTEN: dict[str, Options] = {
    "cp": Options("abdfHiLlnPpRrsuvxZ", "tS", long_values=("target-directory", "suffix"), anywhere=True),
    "mv": Options("bfinuvZ", "tS", long_values=("target-directory", "suffix"), anywhere=True),
    "ln": Options("bdfFiLnPrsvT", "tS", long_values=("target-directory", "suffix"), anywhere=True),
    "install": Options("bcCDpsvZ", "gmotS", long_values=("target-directory", "mode", "owner", "group"), anywhere=True),
}
_EDITORS = frozenset(("vi", "vim", "nvim", "view", "ex", "ed", "emacs", "nano", "less", "more", "most"))


def read_options_with_code(command: Command, findings: Findings) -> None:
    known, codes, files = _CODE[command.base]
    parsed = parse_options(command.words, known)
    for value in parsed.get(*codes):
        if value.text is None:
            findings.tell_unknown(f"{command.base} runs code that is known at run time only")
        else:
            findings.read(value.text, (*command.within, command.base))
    for value in parsed.get(*files):
        findings.write(value)


def read_make(command: Command, findings: Findings) -> None:
    """make runs what its file says; code on its command line is marked."""
    for word in command.words:
        if word.text is not None and word.text.startswith(("--eval", "SHELL=", "MAKEFLAGS=", ".SHELLFLAGS=")):
            findings.code[command.base] = None


def read_editor(command: Command, findings: Findings) -> None:
    """Editors and pagers run commands of their own language."""
    for word in command.words:
        text = word.text or ""
        if text.startswith(("+", "-c", "--cmd", "--eval", "-S", "-e")) and len(text) > 1:
            findings.code[command.base] = None
    if command.base in ("ed", "ex") and command.stdin.given:
        findings.code[command.base] = None


def read_written(command: Command, findings: Findings) -> None:
    """All operands are written, made or removed."""
    for word in parse_options(command.words, _ALL_WRITTEN[command.base]).operands:
        findings.write(word)


def read_target(command: Command, findings: Findings) -> None:
    """cp, mv, ln, install: the last operand, or the directory named by an option; mv also removes the others."""
    parsed = parse_options(command.words, _LAST_WRITTEN[command.base])
    operands = parsed.operands
    targets = parsed.get("t", "target-directory")
    if not targets and len(operands) > 1:
        targets, operands = operands[-1:], operands[:-1]
    for word in (*targets, *(operands if command.base == "mv" else ())):
        findings.write(word)


def read_dd(command: Command, findings: Findings) -> None:
    for word in command.words:
        if word.text is not None and word.text.startswith("of="):
            findings.write(Word(word.text[3:]))
        elif word.text is None:
            findings.more_writes = True


def read_at(command: Command, findings: Findings) -> None:
    """at, batch, crontab: what runs later comes from their input."""
    if command.stdin.text is not None and command.base != "crontab":
        findings.read(command.stdin.text, (*command.within, command.base), NO_STDIN)
    elif command.stdin.given or command.words:
        findings.tell_unknown(f"{command.base} runs later what is known at run time only")


TOOLS: dict[str, Callable[[Command, Findings], None]] = {
    "tar": read_tar,
    "bsdtar": read_tar,
    "gtar": read_tar,
    "dd": read_dd,
    "make": read_make,
    "gmake": read_make,
    "at": read_at,
    "batch": read_at,
    "crontab": read_at,
    **dict.fromkeys(("sort", "split", "rg", "man", "zip", "tree"), read_options_with_code),
    **dict.fromkeys(_EDITORS, read_editor),
    **dict.fromkeys(_ALL_WRITTEN, read_written),
    **dict.fromkeys(_LAST_WRITTEN, read_target),
}
