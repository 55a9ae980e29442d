"""Whether the host's kernel has refused the box a process, where the box itself cannot tell: told while it lives.

Under a runtime with a kernel of its own a refused process ends that kernel, and the box with it; the engine then knows
an exit code and no reason, and the counter goes with the box's control group. So it is read all the time: the kernel
wakes nobody who waits for it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

_PLACES = (
    "/sys/fs/cgroup/pids/docker/{id}",
    "/sys/fs/cgroup/docker/{id}",
    "/sys/fs/cgroup/pids/system.slice/docker-{id}.scope",
    "/sys/fs/cgroup/system.slice/docker-{id}.scope",
)
_LOOK_S = 0.02
"""From the refusal to the end of the group pass about 70 ms; a look takes ten microseconds."""


class Refusals:
    """Of one box's control group. start() once, stop() in any case."""

    def __init__(self, events: Path) -> None:
        self.is_told = False
        """The kernel has refused at least one."""
        self._fd = os.open(events, os.O_RDONLY | os.O_CLOEXEC)
        self._is_stopped = False
        self._lock = threading.Lock()

    @classmethod
    def find(cls, box_id: str) -> Refusals | None:
        """None where the box's group is not to be seen: another machine's, or another layout."""
        for place in _PLACES:
            with contextlib.suppress(OSError):
                return cls(Path(place.format(id=box_id), "pids.events"))
        return None

    def start(self) -> None:
        threading.Thread(target=self._follow, name="corral-refusals", daemon=True).start()

    def stop(self) -> None:
        self._is_stopped = True

    def look(self) -> bool:
        """Whether there was one, as far as can be told by now: at the box's end the group is there a moment longer."""
        with self._lock:
            if not self.is_told and self._fd >= 0:
                with contextlib.suppress(OSError):
                    self.is_told = parse_refusals(os.pread(self._fd, 256, 0)) > 0
        return self.is_told

    def _follow(self) -> None:
        """The thread: until a refusal or stop()."""
        while not self._is_stopped and not self.look():
            time.sleep(_LOOK_S)
        with self._lock:
            os.close(self._fd)
            self._fd = -1


def parse_refusals(text: bytes) -> int:
    """The number in `max 3`; 0 in what is none."""
    for line in text.splitlines():
        name, _, number = line.partition(b" ")
        if name == b"max" and number.isdigit():
            return int(number)
    return 0
