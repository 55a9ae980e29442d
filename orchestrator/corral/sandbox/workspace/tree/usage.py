"""What a box's changes take of the disk: exactly, by looking at each file; and roughly, by what the disk has left."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from corral.sandbox.workspace.tree.walk import TreeWalk


@dataclass(frozen=True)
class Usage:
    """What the box takes."""

    bytes: int
    inodes: int
    is_partial: bool  # there are places the look could not enter


@dataclass(frozen=True)
class Room:
    """What the whole file system has in use, by whomever, and what it has left."""

    used_bytes: int
    used_inodes: int
    free_bytes: int

    @classmethod
    def of(cls, status: os.statvfs_result) -> Room:
        # f_files minus f_ffree is right also where inodes are made on demand; 0 where a file system counts none.
        return cls(
            (status.f_blocks - status.f_bfree) * status.f_frsize,
            status.f_files - status.f_ffree,
            status.f_bavail * status.f_frsize,
        )


class Meter(Protocol):
    """Where the changes of one box lie."""

    look_pause_s: float
    """At least so long between two looks that nothing calls for."""
    ahead_s: float
    """How long it may take, on a busy machine, from a reading to a box that is still."""

    async def read_room(self) -> Room:
        """Cheap enough to be asked two hundred times a second."""
        ...

    async def measure(self, *, thorough: bool) -> Usage:
        """A look at every file. Thorough: also at what has no name any more."""
        ...

    def close(self) -> None: ...


class UpperMeter:
    """An overlay's upper directory on this machine."""

    look_pause_s = 0.5
    ahead_s = 0.1

    def __init__(self, upper: Path, max_bytes: int, max_inodes: int, *, uid: int, mount_point: str) -> None:
        self._descriptor = os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._limits = (max_bytes, max_inodes)
        self._owner = (uid, mount_point)

    async def read_room(self) -> Room:
        return Room.of(os.fstatvfs(self._descriptor))

    async def measure(self, *, thorough: bool) -> Usage:
        # The thread outlives a cancelled watch by one look; the descriptor it uses is its own copy.
        return await asyncio.to_thread(self._measure, os.dup(self._descriptor), thorough)

    def close(self) -> None:
        os.close(self._descriptor)

    def _measure(self, descriptor: int, thorough: bool) -> Usage:
        try:
            usage = measure_usage(descriptor, *self._limits)
        finally:
            os.close(descriptor)
        if not thorough:
            return usage
        unnamed = measure_unnamed(*self._owner)
        return Usage(usage.bytes + unnamed.bytes, usage.inodes + unnamed.inodes, usage.is_partial)


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


def measure_unnamed(uid: int, mount_point: str) -> Usage:
    """Files that were removed and that processes of the box still hold open: no walk finds them, the disk has them."""
    found: dict[tuple[int, int], int] = {}
    own = _read_namespace("self")
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid != uid or _read_namespace(pid) == own:
                continue
            found |= _list_unnamed(f"/proc/{pid}/fd", mount_point)
        except OSError:
            continue  # it has ended
    return Usage(sum(found.values()), len(found), is_partial=False)


def _read_namespace(pid: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/mnt")


def _list_unnamed(folder: str, mount_point: str) -> dict[tuple[int, int], int]:
    return {(status.st_dev, status.st_ino): status.st_blocks * 512 for status in _stat_unnamed(folder, mount_point)}


def _stat_unnamed(folder: str, mount_point: str) -> Iterator[os.stat_result]:
    for name in os.listdir(folder):
        try:
            # The text only tells where it was; what is counted is the open file itself.
            if not os.readlink(f"{folder}/{name}").startswith(f"{mount_point}/"):
                continue
            status = os.stat(f"{folder}/{name}")
        except OSError:
            continue
        if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
            yield status
