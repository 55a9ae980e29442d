"""Plain words for people: notes on stderr, results on stdout, colour only where a terminal shows it."""

from __future__ import annotations

import json
import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.redact import Redactor

_REDACTOR: ContextVar[Redactor | None] = ContextVar("redactor", default=None)
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def mask_output(redactor: Redactor | None = None) -> None:
    """From here on all that is printed is masked; without a redactor of a run, what is known by its looks."""
    from corral.redact import Redactor  # late: start-up time

    _REDACTOR.set(redactor or Redactor())


def _mask(text: str) -> str:
    # SECURITY: the one door to the terminal, beside a command's own output; test_no_secret_is_printed_or_recorded
    redactor = _REDACTOR.get()
    return text if redactor is None else redactor.text(text)


def has_colour(stream: TextIO) -> bool:
    """Whether colours may go there: a terminal, and the user did not say no (NO_COLOR)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, *, to_stdout: bool = False) -> str:
    """`text` in a style, where its stream (stderr, or stdout) shows colours."""
    stream = sys.stdout if to_stdout else sys.stderr
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if has_colour(stream) else text


def note(text: str = "") -> None:
    """One line for the person, beside the command's own output. `text` is ours; escape what is not with visible()."""
    print(_mask(text), file=sys.stderr, flush=True)


def fail(message: str, *, hint: str | None = None, code: int) -> int:
    """Tell an error in one line and its hint in another; returns the exit code."""
    if _REDACTOR.get() is None:
        mask_output()  # a message may quote what it is about
    note(f"{paint('corral:', 'red')} {visible(message)}")
    if hint:
        note(f"  {paint('hint:', 'dim')} {visible(hint)}")
    return code


def print_line(text: str) -> None:
    """One line of a command's result, on stdout. `text` is ours; escape what is not with visible()."""
    print(_mask(text), flush=True)


def print_json(value: object) -> None:
    """One JSON value on stdout, ASCII only: what the box named can then reach no terminal."""
    redactor = _REDACTOR.get()
    print(json.dumps(value if redactor is None else redactor.value(value), ensure_ascii=True), flush=True)


def plural(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
