"""Whether the host's kernel has refused the box a process, where the box itself cannot tell: told while it lives.

Under a runtime with a kernel of its own a refused process ends that kernel, and the box with it; the engine then knows
an exit code and no reason, and the counter goes with the box's control group. So it is read all the time: the kernel
wakes nobody who waits for it.
"""

from __future__ import annotations

import threading
import time

from corral.sandbox.group import GroupCounter

_LOOK_S = 0.02
"""From the refusal to the end of the group pass about 70 ms; a look takes ten microseconds."""


class Refusals:
    """Of one box's control group. start() once, stop() in any case."""

    def __init__(self, counter: GroupCounter) -> None:
        self.is_told = False
        """The kernel has refused at least one."""
        self._counter = counter
        self._is_stopped = False
        self._lock = threading.Lock()

    @classmethod
    def find(cls, box_id: str) -> Refusals | None:
        """None where the box's group is not to be seen: another machine's, or another layout."""
        counter = GroupCounter.of_refused_processes(box_id)
        return None if counter is None else cls(counter)

    def start(self) -> None:
        threading.Thread(target=self._follow, name="corral-refusals", daemon=True).start()

    def stop(self) -> None:
        self._is_stopped = True

    def look(self) -> bool:
        """Whether there was one, as far as can be told by now: at the box's end the group is there a moment longer."""
        with self._lock:
            self.is_told = self.is_told or (self._counter.read() or 0) > 0
        return self.is_told

    def _follow(self) -> None:
        """The thread: until a refusal or stop()."""
        while not self._is_stopped and not self.look():
            time.sleep(_LOOK_S)
        with self._lock:
            self._counter.close()
