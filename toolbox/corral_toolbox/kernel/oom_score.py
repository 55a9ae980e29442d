"""Who the kernel's out-of-memory killer takes first in this box."""

import os

_VICTIM = b"1000"


class OomScore:
    """The first process's own score, which what it forks inherits. Open before Landlock: nobody can change one later.

    A score may be raised and taken back to what the engine gave without a capability; so a command that could write
    here would make itself as worthy as the first process, or worthier, and have that killed for what it holds.
    """

    def __init__(self) -> None:
        self._fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        self._own = os.pread(self._fd, 32, 0).strip()

    def set_victim(self) -> None:
        """For the moment of a fork: supervisors, and the commands that they start, go first."""
        os.pwrite(self._fd, _VICTIM, 0)

    def set_own(self) -> None:
        os.pwrite(self._fd, self._own, 0)
