"""What a copied workspace takes of the engine's disk, as the toolbox sees it: for engines whose disk is not ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from corral.sandbox.workspace.tree.usage import Room, Usage
from corral_protocol.message import Pong, TreeEntry


class CopyMeter:
    """The whole tree counts, not only what changed: the limits were those of the copy, too."""

    look_pause_s = 60.0  # a look is a scan by the box, at the cost of its own processor time
    ahead_s = 0.3  # the box's own processes compete with the toolbox

    def __init__(
        self, ask: Callable[[], Awaitable[Pong]], scan: Callable[[], AsyncIterator[TreeEntry]], first: Usage
    ) -> None:
        self._ask = ask
        self._scan = scan
        self._first: Usage | None = first
        """What was sent in: the first look is saved."""

    async def read_room(self) -> Room:
        pong = await self._ask()
        return Room(pong.used_bytes, pong.used_inodes, pong.free_bytes)

    async def measure(self, *, thorough: bool) -> Usage:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        total = count = 0
        is_partial = False
        async for entry in self._scan():
            count += 1
            total += entry.blocks * 512
            is_partial |= bool(entry.error)
        return Usage(total, count, is_partial)

    def close(self) -> None:
        return
