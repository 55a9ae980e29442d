"""The watch over a workspace's disk and inodes: what it counts, when it looks, when it holds the box, what it tells."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral.sandbox.workspace.tree.usage import Room, UpperMeter, Usage, measure_unnamed, measure_usage
from corral.sandbox.workspace.tree.watcher import Bounds, Breach, DiskWatch, judge

MIB = 1 << 20


def usage_of(path: Path, max_bytes: int = MIB, max_inodes: int = 100) -> Usage:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return measure_usage(descriptor, max_bytes, max_inodes)
    finally:
        os.close(descriptor)


def test_counts_blocks_once_and_no_holes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 8192)
    os.link(tmp_path / "a", tmp_path / "b")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(100 * MIB)
    assert usage_of(tmp_path) == Usage((tmp_path / "a").stat().st_blocks * 512, 2, is_partial=False)


def test_counting_ends_at_the_limit(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert usage_of(tmp_path, max_inodes=10).inodes == 11


def test_counts_removed_files_that_another_mount_namespace_holds_open(tmp_path: Path) -> None:
    """In place of a box: a process in a mount namespace of its own, as this user."""
    code = (
        "import os, sys; f = open(sys.argv[1], 'wb'); f.write(bytes(3 << 20)); f.flush(); os.unlink(f.name);"
        "g = open(sys.argv[1] + '-named', 'wb'); g.write(bytes(1 << 20)); g.flush();"
        "print('ready', flush=True); input()"
    )
    command = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-current-user"])]
    with subprocess.Popen(
        [*command, sys.executable, "-c", code, str(tmp_path / "gone")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            pytest.skip("no mount namespace can be made here")
        found = measure_unnamed(os.geteuid(), str(tmp_path))
        elsewhere = measure_unnamed(os.geteuid(), str(tmp_path / "other"))
        process.communicate(b"\n")
    assert (found.inodes, found.bytes // MIB) == (1, 3)
    assert elsewhere == Usage(0, 0, is_partial=False)


def room(used: int, free: int, inodes: int = 0) -> Room:
    return Room(used, inodes, free)


def test_judges_each_limit() -> None:
    bounds = Bounds(10, 10, 250 * MIB)
    first, same = room(0, 1000 * MIB), room(0, 1000 * MIB)
    seen, hidden = Usage(5, 5, is_partial=False), Usage(5, 5, is_partial=True)
    taken, nearly_full = room(100 * MIB, 900 * MIB), room(800 * MIB, 200 * MIB)
    assert judge(seen, bounds, first, same) is None
    assert judge(Usage(11, 5, is_partial=False), bounds, first, same) == Breach("bytes", 11, 10)
    assert judge(Usage(5, 11, is_partial=False), bounds, first, same) == Breach("inodes", 11, 10)
    assert judge(seen, bounds, first, taken) is None  # somebody else's
    assert judge(hidden, bounds, first, taken) == Breach("bytes", 100 * MIB, 10)
    assert judge(seen, bounds, first, nearly_full) == Breach("disk", 200 * MIB, 250 * MIB)
    assert judge(seen, bounds, room(750 * MIB, 250 * MIB), nearly_full) is None  # it was as full before


class Disk:
    """A meter whose readings a test sets: what the box takes, and what others take of the same disk."""

    def __init__(self, size: int = 100_000 * MIB, *, counts_inodes: bool = True) -> None:
        self.size = size
        self.inodes_of_others = 1000 if counts_inodes else None
        self.mine = Usage(0, 0, is_partial=False)
        self.others = Usage(0, 0, is_partial=False)
        self.looks: list[bool] = []
        self.holds = 0
        self.is_held = False
        self.is_closed = False
        self.look_pause_s = 0.5
        self.ahead_s = 0.1

    async def read_room(self) -> Room:
        used = self.mine.bytes + self.others.bytes
        inodes = 0 if self.inodes_of_others is None else self.mine.inodes + self.others.inodes + self.inodes_of_others
        return Room(used, inodes, self.size - used)

    async def measure(self, *, thorough: bool) -> Usage:
        self.looks.append(self.is_held)
        return self.mine

    def close(self) -> None:
        self.is_closed = True

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        self.holds += 1
        self.is_held = True
        yield
        self.is_held = False


@contextlib.asynccontextmanager
async def watched(disk: Disk, bounds: Bounds) -> AsyncIterator[list[tuple[Breach, bool]]]:
    """What was told, and whether the box was held at that moment."""
    told: list[tuple[Breach, bool]] = []
    watch = DiskWatch(disk, bounds, lambda breach: told.append((breach, disk.is_held)), disk.hold)
    task = asyncio.create_task(watch.run())
    try:
        await asyncio.sleep(0.03)
        yield told
        await asyncio.sleep(0.7)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert disk.is_closed


BOUNDS = Bounds(100 * MIB, 10_000, 512 * MIB)


async def test_a_writer_is_held_and_told_before_it_goes_on() -> None:
    disk = Disk()
    async with watched(disk, BOUNDS) as told:
        disk.mine = Usage(130 * MIB, 5, is_partial=False)
    assert told == [(Breach("bytes", 130 * MIB, 100 * MIB), True)]


async def test_a_maker_of_files_is_held_and_told_before_it_goes_on() -> None:
    disk = Disk()
    async with watched(disk, BOUNDS) as told:
        disk.mine = Usage(5, 12_000, is_partial=False)
    assert told == [(Breach("inodes", 12_000, 10_000), True)]


async def test_a_file_system_that_counts_no_inodes_is_looked_at_often() -> None:
    disk = Disk(counts_inodes=False)
    async with watched(disk, BOUNDS) as told:
        disk.mine = Usage(5, 9_000, is_partial=False)
        await asyncio.sleep(0.3)
        assert (told, len(disk.looks) > 2, disk.holds) == ([], True, 0)
        disk.mine = Usage(5, 12_000, is_partial=False)
        await asyncio.sleep(0.25)
        assert [breach for breach, _ in told] == [Breach("inodes", 12_000, 10_000)]


async def test_others_on_the_same_disk_cost_a_look_and_nothing_else() -> None:
    disk = Disk()
    async with watched(disk, BOUNDS) as told:
        disk.others = Usage(5000 * MIB, 50_000, is_partial=False)
    assert (told, disk.holds) == ([], 1)


async def test_others_who_free_space_hide_nothing() -> None:
    disk = Disk()
    disk.others = Usage(5000 * MIB, 0, is_partial=False)
    async with watched(disk, BOUNDS) as told:
        disk.others = Usage(0, 0, is_partial=False)
        disk.mine = Usage(130 * MIB, 5, is_partial=False)
    assert [breach for breach, _ in told] == [Breach("bytes", 130 * MIB, 100 * MIB)]


async def test_a_fast_writer_is_held_before_the_limit_and_let_go_on_while_it_is_below() -> None:
    disk = Disk()
    async with watched(disk, BOUNDS) as told:
        for part in range(20):  # 95 MiB in less time than a hold may take
            disk.mine = Usage(part * 5 * MIB, part, is_partial=False)
            await asyncio.sleep(0.002)
    assert (told, disk.holds > 0) == ([], True)


async def test_a_box_that_makes_and_removes_files_is_seldom_held() -> None:
    disk = Disk()
    async with watched(disk, Bounds(1000 * MIB, 10_000, 512 * MIB)) as told:
        for part in range(40):
            disk.mine = Usage((part % 2) * 50 * MIB, 5, is_partial=False)
            await asyncio.sleep(0.01)
    assert told == []
    assert disk.holds <= 2


async def test_what_is_to_stay_free_stays_free() -> None:
    disk = Disk(size=1000 * MIB)
    async with watched(disk, Bounds(4000 * MIB, 10_000, 512 * MIB)) as told:
        disk.mine = Usage(495 * MIB, 5, is_partial=False)
    assert told == [(Breach("disk", 505 * MIB, 512 * MIB), True)]


async def test_a_disk_that_others_filled_is_not_its_fault() -> None:
    disk = Disk(size=1000 * MIB)
    disk.others = Usage(450 * MIB, 0, is_partial=False)
    async with watched(disk, Bounds(4000 * MIB, 10_000, 512 * MIB)) as told:
        disk.mine = Usage(50 * MIB, 5, is_partial=False)
    assert told == []


@pytest.mark.parametrize("what", ["bytes", "inodes"])
async def test_a_real_directory_is_told_once_and_ends_the_watch(tmp_path: Path, what: str) -> None:
    breaches: list[Breach] = []
    meter = UpperMeter(tmp_path, MIB, 20, uid=os.geteuid(), mount_point="/workspace")
    watch = asyncio.create_task(DiskWatch(meter, Bounds(MIB, 20, 0), breaches.append, contextlib.nullcontext).run())
    await asyncio.sleep(0.05)
    assert not watch.done()
    if what == "bytes":
        (tmp_path / "big").write_bytes(os.urandom(2 * MIB))
    else:
        for number in range(30):
            (tmp_path / str(number)).touch()
    await asyncio.wait_for(watch, 10)
    assert [breach.what for breach in breaches] == [what]


async def test_a_cancelled_watch_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    meter = UpperMeter(tmp_path, MIB, 20, uid=os.geteuid(), mount_point="/workspace")
    watch = asyncio.create_task(DiskWatch(meter, Bounds(MIB, 20, 0), lambda breach: None, contextlib.nullcontext).run())
    await asyncio.sleep(0.05)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    for _ in range(100):
        left = len(os.listdir("/proc/self/fd"))
        if left == before:
            break
        await asyncio.sleep(0.02)
    assert left == before
