"""Counters of a box's control group as the host sees them: the box cannot change what they say."""

from __future__ import annotations

import contextlib
import os

_PLACES = (
    "/sys/fs/cgroup/{controller}/docker/{id}",
    "/sys/fs/cgroup/docker/{id}",
    "/sys/fs/cgroup/{controller}/system.slice/docker-{id}.scope",
    "/sys/fs/cgroup/system.slice/docker-{id}.scope",
)
"""Of both layouts and both drivers."""


def find_places(box_id: str, controller: str) -> list[str]:
    """Where a box's group may be, whose `controller` is asked about."""
    return [place.format(controller=controller, id=box_id) for place in _PLACES]


class GroupCounter:
    """One field of one file, held open. Of a group that is gone it says nothing more."""

    def __init__(self, path: str, field: str) -> None:
        """Raises OSError."""
        self._field = field.encode()
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @classmethod
    def find(cls, box_id: str, controller: str, files: tuple[str, ...], field: str) -> GroupCounter | None:
        """None where the box's group is not to be seen: another machine's, or another layout."""
        for place in find_places(box_id, controller):
            for name in files:
                with contextlib.suppress(OSError):
                    return cls(f"{place}/{name}", field)
        return None

    @classmethod
    def of_refused_processes(cls, box_id: str) -> GroupCounter | None:
        return cls.find(box_id, "pids", ("pids.events",), "max")

    @classmethod
    def of_memory_kills(cls, box_id: str) -> GroupCounter | None:
        return cls.find(box_id, "memory", ("memory.oom_control", "memory.events"), "oom_kill")

    def read(self) -> int | None:
        """None when the group is gone, or the kernel counts no such thing."""
        if self._fd < 0:
            return None
        try:
            return parse_counter(os.pread(self._fd, 4096, 0), self._field)
        except OSError:
            return None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def parse_counter(text: bytes, field: bytes) -> int | None:
    """The number in the line `max 3`; None where there is no such line."""
    for line in text.splitlines():
        name, _, number = line.partition(b" ")
        if name == field and number.isdigit():
            return int(number)
    return None
