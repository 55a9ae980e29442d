"""Whether a box that is gone went for want of memory, or had only lost other processes so before.

Two witnesses. The engine's word comes by itself, but late, once for several, and not at all when the box's group is
gone before the engine has looked. The kernel's counter is exact, but only here, and only while the group is there.
"""

from __future__ import annotations

import asyncio

from corral.sandbox.group import GroupCounter

_LATE_S = 1.0
"""The engine hears of an end and of its reason by different ways."""


class Shortage:
    """Of one box. What was counted when the toolbox was last known to live took something else."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told: asyncio.Future[None] = loop.create_future()
        """Done when the engine has told of one and the toolbox was not heard of since."""
        self.number = 0
        """How often the engine has told."""
        self._counter: GroupCounter | None = None
        self._outlived = 0
        self._last: int | None = 0

    def follow(self, box_id: str) -> None:
        """For a box on this machine."""
        self._counter = GroupCounter.of_memory_kills(box_id)

    def stop(self) -> None:
        if self._counter is not None:
            self._counter.close()

    def tell(self) -> None:
        """The engine has told of one."""
        self.number += 1
        if not self._told.done():
            self._told.set_result(None)

    def count(self) -> int:
        """What the kernel has counted by now; 0 where it cannot be seen."""
        return (None if self._counter is None else self._counter.read()) or 0

    def outlived(self, number: int, count: int) -> None:
        """The toolbox has answered a question asked when this much had been told and counted."""
        self._outlived = max(self._outlived, count)
        if self._told.done() and number == self.number:
            self._told = self._loop.create_future()

    def look(self) -> None:
        """At the box's end, at once: its group is there a moment longer."""
        self._last = None if self._counter is None else self._counter.read()

    async def is_cause(self) -> bool:
        """After look(), of a box that ended by signal 9."""
        if self._last is not None:
            return self._last > self._outlived
        await asyncio.wait((self._told,), timeout=_LATE_S)
        return self._told.done()
