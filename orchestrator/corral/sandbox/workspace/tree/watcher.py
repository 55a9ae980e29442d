"""Disk and inode limits of an overlay's upper directory, which no kernel limit covers: looked at often enough.

A look costs time in proportion to what the box wrote and ends when a limit is passed, so it is bounded by the limits
themselves; the pause after it is twenty times as long. What a box hides from the look (a directory without
permissions, very deep nesting, a deleted file still open) is caught by what the file system has left.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corral.sandbox.workspace.tree.walk import TreeWalk

_MIN_PAUSE_S = 0.5
_MAX_PAUSE_S = 10.0
_PAUSE_FACTOR = 20  # at most 5 % of one core
_RESERVE_BYTES = 512 << 20
_NOISE_BYTES = 64 << 20  # a full disk that this box did not fill is not its fault


@dataclass(frozen=True)
class Breach:
    """A limit that was passed. `what` is bytes, inodes or disk (the host's disk is nearly full)."""

    what: str
    used: int
    limit: int


@dataclass(frozen=True)
class Usage:
    bytes: int
    inodes: int
    is_partial: bool  # there are places the look could not enter


def measure_usage(upper: int, max_bytes: int, max_inodes: int) -> Usage:
    """What lies below `upper`, counted until a limit is passed. Blocks, not sizes: holes take no space."""
    walk = TreeWalk(upper)
    total = count = 0
    linked: set[tuple[int, int]] = set()
    for found in walk:
        status = found.status
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) in linked:
                continue
            linked.add((status.st_dev, status.st_ino))
        count += 1
        total += status.st_blocks * 512
        if total > max_bytes or count > max_inodes:
            break
    return Usage(total, count, bool(walk.problems))


async def watch_upper(
    upper: Path,
    max_bytes: int,
    max_inodes: int,
    on_breach: Callable[[Breach], None],
    *,
    min_pause_s: float = _MIN_PAUSE_S,
) -> None:
    """Look until a limit is passed, then call `on_breach` once and return. Cancel to end."""
    descriptor = os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        free_at_start = _free_bytes(descriptor)
        while True:
            started = time.monotonic()
            # The thread outlives a cancelled watch by one look; the descriptor it uses is its own copy.
            usage = await asyncio.to_thread(_measure_copy, os.dup(descriptor), max_bytes, max_inodes)
            breach = judge(usage, max_bytes, max_inodes, free_at_start, _free_bytes(descriptor))
            if breach is not None:
                on_breach(breach)
                return
            took = time.monotonic() - started
            await asyncio.sleep(min(max(min_pause_s, took * _PAUSE_FACTOR), _MAX_PAUSE_S))
    finally:
        os.close(descriptor)


def judge(usage: Usage, max_bytes: int, max_inodes: int, free_at_start: int, free_now: int) -> Breach | None:
    """Which limit is passed, if any."""
    if usage.bytes > max_bytes:
        return Breach("bytes", usage.bytes, max_bytes)
    if usage.inodes > max_inodes:
        return Breach("inodes", usage.inodes, max_inodes)
    taken = free_at_start - free_now
    if usage.is_partial and taken > max_bytes + _NOISE_BYTES:
        return Breach("bytes", taken, max_bytes)
    reserve = min(_RESERVE_BYTES, free_at_start // 4)
    if free_now < reserve and taken > _NOISE_BYTES:
        return Breach("disk", taken, reserve)
    return None


def _measure_copy(descriptor: int, max_bytes: int, max_inodes: int) -> Usage:
    try:
        return measure_usage(descriptor, max_bytes, max_inodes)
    finally:
        os.close(descriptor)


def _free_bytes(descriptor: int) -> int:
    status = os.fstatvfs(descriptor)
    return status.f_bavail * status.f_frsize
