"""How processes end that are somebody else's children: by descriptors that outlive them, nobody waits for a look.

Only a parent gets an end from `wait`. Linux 6.15 keeps it for whoever holds a pidfd, from the moment it was waited for;
before, only the end itself can be seen, and the status of those that became this process's own children.
"""

import fcntl
import os
import select
import struct
import time

_MAX = 512
"""Watched at once: descriptors are needed for other things, too."""
_GET_INFO = 0xC040FF0B
_INFO = struct.Struct("=Q52xi")
_WANTED = 1 << 3
_SINCE = (6, 15)

End = tuple[int, float, int | None]
"""pid, seconds since it was first seen, wait status; None: not known."""


def _tells_status() -> bool:
    numbers = os.uname().release.split(".", 2)[:2]
    return all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) >= _SINCE


class Endings:
    """Processes by pidfd until they have ended. Used by one thread."""

    def __init__(self, room: int, *, tells_status: bool | None = None) -> None:
        """`room`: descriptors that may be used."""
        self._room = min(room, _MAX)
        self._tells_status = _tells_status() if tells_status is None else tells_status
        self._poll = select.epoll()
        self._known: dict[int, tuple[int, float]] = {}
        self._pids: dict[int, int] = {}

    @property
    def poll_fd(self) -> int:
        """Readable when one of them has ended."""
        return self._poll.fileno()

    @property
    def count(self) -> int:
        """Those whose end was not collected."""
        return len(self._known)

    def watch(self, pid: int) -> bool:
        """A process that is there now; True when it is new. Where it cannot be watched, its end stays unknown."""
        if pid in self._known or len(self._known) >= self._room:
            return False
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return False
        self._known[pid] = fd, time.monotonic()
        self._pids[fd] = pid
        # Without a mask: only when it has been waited for, which is when its status can be read.
        self._poll.register(fd, 0 if self._tells_status else select.EPOLLIN)
        return True

    def collect(self) -> list[End]:
        """Those that have ended since the last time."""
        if not self._known:
            return []
        now = time.monotonic()
        ended = []
        for fd, _ in self._poll.poll(0):
            pid = self._pids.pop(fd)
            since = self._known.pop(pid)[1]
            ended.append((pid, now - since, self._read_status(fd, pid)))
            os.close(fd)
        return ended

    def forget(self) -> None:
        """None of them is of interest any more."""
        for fd in self._pids:
            os.close(fd)
        self._known.clear()
        self._pids.clear()

    def _read_status(self, fd: int, pid: int) -> int | None:
        if not self._tells_status:
            return _look_at_child(pid)
        try:
            answer = fcntl.ioctl(fd, _GET_INFO, _INFO.pack(_WANTED, 0))
        except OSError:
            return None
        found, status = _INFO.unpack(answer)
        return status if found & _WANTED else None


def _look_at_child(pid: int) -> int | None:
    """The status of a child that nobody has waited for yet: it stays to be waited for."""
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if found is None:
        return None
    return found.si_status << 8 if found.si_code == os.CLD_EXITED else found.si_status
