"""find, xargs and parallel: they run a command for each of many names."""

from __future__ import annotations

import re

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.model import UNKNOWN_WORD, UNKNOWN_WORDS, Word
from corral.policy.shell.program.option import Options, parse_options

_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_WRITES = frozenset(("-fprint", "-fprint0", "-fls", "-fprintf"))


def read_find(command: Command, findings: Findings) -> None:
    words = list(command.words)
    place = 0
    while place < len(words):
        text = words[place].text
        place += 1
        if text in _RUNS:
            start = place
            while place < len(words) and not _ends(words, place, start):
                place += 1
            inner = [_fill(word, "{}") for word in words[start:place]]
            if inner:
                findings.run(inner, (*command.within, command.base), command.stdin)
        elif text in _WRITES and place < len(words):
            findings.write(words[place])
        elif text == "-delete":
            findings.more_writes = True
        elif text is None and words[place - 1].many and place > 1:
            findings.tell_unknown("find gets an expression that is known at run time only")


def _ends(words: list[Word], place: int, start: int) -> bool:
    text = words[place].text
    return text == ";" or (text == "+" and place > start and words[place - 1].text == "{}")


def _fill(word: Word, mark: str) -> Word:
    """A word with a place for a name in it is known at run time only."""
    return UNKNOWN_WORD if word.text is not None and mark in word.text else word


_XARGS = Options(
    "0rtpxo",
    "aEdILnPs",
    attached="eil",
    long_flags=("null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty", "show-limits"),
    long_values=("arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"),
    long_attached=("replace", "eof", "max-lines"),
)


def read_xargs(command: Command, findings: Findings) -> None:
    parsed = parse_options(command.words, _XARGS)
    if not parsed.is_known:
        findings.tell_unknown("what xargs runs depends on options that are not known here")
    marks = parsed.get("I", "i", "replace")
    if parsed.has("i", "replace") and not any(mark.text for mark in marks):
        marks = [Word("{}")]
    inner = parsed.operands or [Word("echo")]
    if marks:
        mark = marks[-1].text
        inner = [UNKNOWN_WORD if mark is None else _fill(word, mark) for word in inner]
    else:
        inner = [*inner, UNKNOWN_WORDS]
    findings.run(inner, (*command.within, command.base))


_PARALLEL = Options(
    "0kqrtuvmXz",
    "aCdIjLnNPSU",
    long_flags=("keep-order", "dry-run", "null", "quote", "verbose", "bar", "progress", "eta", "ungroup", "will-cite"),
    long_values=(
        "arg-file",
        "colsep",
        "delimiter",
        "jobs",
        "joblog",
        "max-args",
        "timeout",
        "retries",
        "delay",
        "halt",
    ),
)
_PLACE = re.compile(r"\{(?:[0-9+-]*[#%./]*[0-9]*[./]*)\}")


def read_parallel(command: Command, findings: Findings) -> None:
    """The words up to `:::` are a line of code, with each name quoted where it goes; without them, each name is one."""
    parsed = parse_options(command.words, _PARALLEL)
    if not parsed.is_known or parsed.has("S", "sshlogin"):
        findings.tell_unknown("what parallel runs depends on options that are not known here")
    texts = [word.text for word in parsed.operands]
    cut = next((place for place, text in enumerate(texts) if text in (":::", "::::", ":::+", "::::+")), len(texts))
    template = texts[:cut]
    within = (*command.within, command.base)
    if template:
        if None in template:
            findings.tell_unknown("parallel runs code that is known at run time only")
            return
        # The name is one quoted word where it stands: as an expansion it is known at run time only.
        code = " ".join(text for text in template if text is not None)
        filled, count = _PLACE.subn('"$PARALLEL"', code)
        findings.read(filled if count else f'{code} "$PARALLEL"', within)
    elif texts[cut : cut + 1] == [":::"]:
        for text in texts[cut + 1 :]:
            if text is None:
                findings.tell_unknown("parallel runs code that is known at run time only")
            else:
                findings.read(text, within)
    else:
        findings.tell_unknown("parallel runs code that is known at run time only")
