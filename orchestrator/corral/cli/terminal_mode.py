"""The person's own terminal while a program in the box has it: raw, and as it was in every end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Any

from corral.errors import ConfigError
from corral.sandbox.base import TerminalSize
from corral_protocol.message import MAX_TERMINAL_SIDE

_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTTOU)


def check_terminal() -> None:
    """Raises ConfigError where there is none to give."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "a terminal in the box needs one here",
            hint="without one: corral exec [options] -- CMD ..., which passes input and output on as they are",
        )


def read_size() -> TerminalSize:
    """Of the person's terminal, as far as one is known and sane."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return TerminalSize()
    return TerminalSize(_fit(rows, 24), _fit(columns, 80))


def _fit(number: int, usual: int) -> int:
    return min(number, MAX_TERMINAL_SIDE) if number > 0 else usual


class TerminalMode:
    """How the terminal was, and how it is set back."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] = termios.tcgetattr(descriptor)

    def make_raw(self) -> None:
        """From now on every key goes to the program, Ctrl-C too."""
        tty.setraw(self._descriptor, termios.TCSANOW)

    def restore(self) -> None:
        # Not drained first: the other end may never read again.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)


@contextlib.contextmanager
def keep_terminal() -> Iterator[TerminalMode]:
    """Around everything that may make it raw; enter it before there are threads and sockets.

    A process of its own waits with the reading end of a pipe, and sets the terminal back when this one was killed.
    """
    mode = TerminalMode(sys.stdin.fileno())
    reading, writing = os.pipe()
    watcher = os.fork()
    if not watcher:
        os.close(writing)
        _watch_over(mode, reading)
    os.close(reading)
    try:
        yield mode
    finally:
        mode.restore()
        os.write(writing, b"x")
        os.close(writing)
        os.waitpid(watcher, 0)


def _watch_over(mode: TerminalMode, reading: int) -> None:
    """Never returns."""
    try:
        os.setpgid(0, 0)  # not what ends our group ends it, too
        for number in _DEAF_TO:
            signal.signal(number, signal.SIG_IGN)
        if not os.read(reading, 1):
            mode.restore()
    finally:
        os._exit(0)
