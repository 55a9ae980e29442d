"""Disk and inode limits of a workspace that no kernel limit covers.

What the whole file system has in use is read often: so often that nothing can write past a limit by much in between.
Only when that says that the box might be past it, the box is held still and looked at file by file: others write to
the same disk. Besides there is a look now and then, since others also free space, which hides what a box takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from corral.sandbox.workspace.tree.usage import Meter, Room, Usage

_NOISE_BYTES = 64 << 20
"""A full disk that this box did not fill is not its fault."""
_SLACK_BYTES, _SLACK_INODES = 16 << 20, 1000
"""How far past a limit the estimate goes before the box is held: else it would be held all the time at the limit."""
_BYTES_PER_S, _INODES_PER_S = 16 << 30, 200_000
"""More than any writer can do: with the rest up to a limit, how long nobody needs to look."""
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.005, 0.5
_LOOK_FACTOR = 20  # looks that are not needed take at most 5 % of one core
_MAX_LOOK_PAUSE_S = 10.0
_BLIND_PAUSE_S, _BLIND_FACTOR = 0.1, 4


@dataclass(frozen=True)
class Bounds:
    """What a box may take, and what it must leave of the disk."""

    max_bytes: int
    max_inodes: int
    min_free_bytes: int


@dataclass(frozen=True)
class Breach:
    """A limit that was passed. `what` is bytes, inodes or disk (too little is left of the host's disk)."""

    what: str
    used: int
    limit: int


class DiskWatch:
    """Watches until a limit is passed."""

    def __init__(
        self,
        meter: Meter,
        bounds: Bounds,
        on_breach: Callable[[Breach], None],
        hold: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._meter = meter
        self._bounds = bounds
        self._on_breach = on_breach
        self._hold = hold
        """While it is entered, the box writes nothing."""
        self._took_s = self._looked_at = self._previous_at = 0.0
        self._grown_bytes = self._grown_inodes = 0

    async def run(self) -> None:
        """Calls `on_breach` once, and returns. Cancel to end."""
        try:
            self._first = await self._meter.read_room()
            is_over = self._tell(await self._look(self._first, thorough=False))
            while not is_over:
                is_over = await self._step()
        finally:
            self._meter.close()

    async def _step(self) -> bool:
        room = await self._meter.read_room()
        ahead = self._note_growth(room)
        if self._may_be_past(room, ahead):
            async with self._hold():
                if self._tell(await self._look(await self._meter.read_room(), thorough=True)):
                    return True  # told before it could go on
            await asyncio.sleep(self._took_s)
        elif time.monotonic() - self._looked_at > self._look_pause_s():
            return self._tell(await self._look(room, thorough=False))
        await asyncio.sleep(min(self._pause_s(room), self._look_pause_s()))
        return False

    def _tell(self, breach: Breach | None) -> bool:
        if breach is not None:
            self._on_breach(breach)
        return breach is not None

    async def _look(self, room: Room, *, thorough: bool) -> Breach | None:
        """`room` is from before the look: what is written meanwhile counts twice rather than never."""
        started = time.monotonic()
        self._usage = await self._meter.measure(thorough=thorough)
        self._previous, self._previous_at = room, time.monotonic()
        self._grown_bytes = self._grown_inodes = 0
        self._looked_at = time.monotonic()
        self._took_s = self._looked_at - started
        return judge(self._usage, self._bounds, self._first, room)

    def _look_pause_s(self) -> float:
        if self._first.used_inodes <= 0:  # a file system that counts none: nothing but looks tells of files
            return max(_BLIND_PAUSE_S, self._took_s * _BLIND_FACTOR)
        return max(self._meter.look_pause_s, min(self._took_s * _LOOK_FACTOR, _MAX_LOOK_PAUSE_S))

    def _note_growth(self, room: Room) -> tuple[int, int]:
        """What came since the last reading; returns how much more comes shortly, if everybody goes on like that.

        What went is not taken off: others may have freed it, and the box taken as much.
        """
        now = time.monotonic()
        more_bytes = max(room.used_bytes - self._previous.used_bytes, 0)
        more_inodes = max(room.used_inodes - self._previous.used_inodes, 0)
        ahead = self._meter.ahead_s / max(now - self._previous_at, 0.001)
        self._grown_bytes += more_bytes
        self._grown_inodes += more_inodes
        self._previous, self._previous_at = room, now
        return int(more_bytes * ahead), int(more_inodes * ahead)

    def _may_be_past(self, room: Room, ahead: tuple[int, int]) -> bool:
        """If everything new is the box's own."""
        bounds = self._bounds
        return (
            self._usage.bytes + self._grown_bytes + ahead[0] > bounds.max_bytes + _SLACK_BYTES
            or self._usage.inodes + self._grown_inodes + ahead[1] > bounds.max_inodes + _SLACK_INODES
            or _is_nearly_full(bounds, self._first, room, ahead[0])
        )

    def _pause_s(self, room: Room) -> float:
        bounds = self._bounds
        spare = max(room.free_bytes - bounds.min_free_bytes, _NOISE_BYTES - room.used_bytes + self._first.used_bytes)
        shortest = min(
            (bounds.max_bytes + _SLACK_BYTES - self._usage.bytes - self._grown_bytes) / _BYTES_PER_S,
            (bounds.max_inodes + _SLACK_INODES - self._usage.inodes - self._grown_inodes) / _INODES_PER_S,
            spare / _BYTES_PER_S,
        )
        return min(max(shortest, _MIN_PAUSE_S), _MAX_PAUSE_S)


def judge(usage: Usage, bounds: Bounds, first: Room, now: Room) -> Breach | None:
    """Which limit is passed, if any. `first` is from the start of the box."""
    if usage.bytes > bounds.max_bytes:
        return Breach("bytes", usage.bytes, bounds.max_bytes)
    if usage.inodes > bounds.max_inodes:
        return Breach("inodes", usage.inodes, bounds.max_inodes)
    taken = now.used_bytes - first.used_bytes
    if usage.is_partial and taken > bounds.max_bytes + _SLACK_BYTES:  # perhaps another's, but it hides something
        return Breach("bytes", taken, bounds.max_bytes)
    if _is_nearly_full(bounds, first, now):
        return Breach("disk", now.free_bytes, bounds.min_free_bytes)
    return None


def _is_nearly_full(bounds: Bounds, first: Room, now: Room, ahead: int = 0) -> bool:
    taken = now.used_bytes + ahead - first.used_bytes
    return now.free_bytes - ahead < bounds.min_free_bytes and taken > _NOISE_BYTES
