"""What a call used, as the kernel tells the one who reaps: its supervisor, which gets every orphan too."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_toolbox.forked.observer import Observer

Used = tuple[float, float, int, int, int, int]
"""Processor seconds in user and in kernel mode, resident bytes of the largest process, bytes written to files on a
disk, processes that ran a program, and how many of these there were at once; the last two are 0 where nobody looks."""
NOTHING: Used = (0.0, 0.0, 0, 0, 0, 0)
_BLOCK = 512


class Usage:
    """A sum over reaped processes; each brings along what it has reaped itself."""

    def __init__(self, observer: "Observer") -> None:
        self._observer = observer
        self._user_s = self._system_s = 0.0
        self._max_rss = self._blocks = 0

    def reap(self, options: int) -> tuple[int, int]:
        """wait4: (pid, status); pid 0 when nobody is ready. Raises ChildProcessError when nobody is left."""
        pid, status, used = os.wait4(-1, options)
        if pid:
            self._user_s += used.ru_utime
            self._system_s += used.ru_stime
            self._max_rss = max(self._max_rss, used.ru_maxrss << 10)
            # Pages that were made dirty, when they were: not on the disk yet, and none of a tmpfs.
            self._blocks += used.ru_oublock
        return pid, status

    def total(self) -> Used:
        return self._user_s, self._system_s, self._max_rss, self._blocks * _BLOCK, *self._observer.count_programs()
