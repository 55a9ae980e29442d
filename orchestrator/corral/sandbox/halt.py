"""Stops the commands of a box from outside, where the engine's processes are this machine's: within a millisecond.

The toolbox can do the same, but has to be heard and scheduled first: at the speed of memory a writer takes a hundred
megabytes meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from corral.sandbox.group import find_places

_ROUNDS = 8
"""Who is stopped forks no more: a second look finds the last that were being born."""


class Halt:
    """The untrusted processes of one box, by its control group."""

    def __init__(self, group: Path, box_id: str, uid: int) -> None:
        self._members = group / "cgroup.procs"
        self._box_id = box_id
        self._uid = uid

    @classmethod
    def find(cls, box_id: str, uid: int) -> Halt | None:
        """None where the box's group is not to be seen: another machine's, or another layout."""
        for place in find_places(box_id, "pids"):
            group = Path(place)
            if (group / "cgroup.procs").is_file():
                return cls(group, box_id, uid)
        return None

    def stop(self) -> bool:
        """Whether all of them were told: each stops before its next instruction, one inside a system call after it."""
        seen = set[int]()
        for _ in range(_ROUNDS):
            fresh = self._list() - seen
            if not fresh:
                return bool(seen)
            for pid in fresh:
                self._signal(pid, signal.SIGSTOP)
            seen |= fresh
        return False

    def resume(self) -> None:
        for pid in self._list():
            self._signal(pid, signal.SIGCONT)

    def kill(self) -> None:
        """End them, also in the middle of a system call."""
        for pid in self._list():
            self._signal(pid, signal.SIGKILL)

    def _list(self) -> set[int]:
        try:
            return {int(line) for line in self._members.read_text().split()} - {0}
        except OSError:
            return set()

    def _signal(self, pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):  # it has ended, or is none of ours
            descriptor = os.pidfd_open(pid)
            try:
                # SECURITY: the number may be another's by now, the descriptor is not: what is checked after it was
                # opened holds for it, or it is dead and nothing is signalled (test_signals_nobody_whose_number_was).
                if self._is_untrusted(pid):
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def _is_untrusted(self, pid: int) -> bool:
        if self._box_id not in Path(f"/proc/{pid}/cgroup").read_text():
            return False
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Uid:"):
                return line.split()[1] == str(self._uid)
        return False
