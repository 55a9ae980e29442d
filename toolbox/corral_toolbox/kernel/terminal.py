"""A pseudo-terminal for one command: made under the untrusted ids, sized, and asked who is in its foreground."""

import fcntl
import os
import select
import termios

_TIOCSPTLCK, _TIOCGPTPEER, _TIOCGPTN = 0x40045431, 0x5441, 0x80045430
_O_NOCTTY = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
MAX_SIDE = 1000
"""Rows and columns, at most."""
SCTTY = 0x540E
"""TIOCSCTTY: the terminal of a descriptor becomes that of the session that its caller leads."""


def open_terminal(rows: int, columns: int) -> tuple[int, int]:
    """Ours and the command's end. The caller lends the ids that shall own it. Raises OSError.

    Without O_NOCTTY it could become the terminal of this process, which then hears its Ctrl-C.
    """
    ours = os.open("/dev/ptmx", _O_NOCTTY)
    try:
        fcntl.ioctl(ours, _TIOCSPTLCK, b"\0\0\0\0")
        theirs = _open_peer(ours)
        resize(ours, rows, columns)
    except OSError:
        os.close(ours)
        raise
    return ours, theirs


def _open_peer(ours: int) -> int:
    try:
        return fcntl.ioctl(ours, _TIOCGPTPEER, _O_NOCTTY)
    except OSError:  # a kernel that only knows it by its name, such as gVisor's
        number = int.from_bytes(fcntl.ioctl(ours, _TIOCGPTN, b"\0\0\0\0"), "little")
        return os.open(f"/dev/pts/{number}", _O_NOCTTY)


def resize(ours: int, rows: int, columns: int) -> None:
    """Its foreground is told with SIGWINCH, by the kernel."""
    size = b"".join(number.to_bytes(2, "little") for number in (rows, columns, 0, 0))
    fcntl.ioctl(ours, termios.TIOCSWINSZ, size)


def find_foreground(ours: int) -> int:
    """The process group that has the terminal; 0 when none has. Always one of the terminal's own session."""
    try:
        return int.from_bytes(fcntl.ioctl(ours, termios.TIOCGPGRP, b"\0\0\0\0"), "little", signed=True)
    except OSError:
        return 0


def settle(ours: int) -> None:
    """What was written to it is on its way by a queue of the kernel's; afterwards it can be read, and counted."""
    poll = select.poll()
    poll.register(ours, select.POLLIN)
    poll.poll(0)
