from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from corral.sandbox.workspace.tree.watcher import Breach, Usage, judge, measure_usage, watch_upper

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


def test_judges_each_limit() -> None:
    free = 1000 * MIB
    seen, hidden = Usage(5, 5, is_partial=False), Usage(5, 5, is_partial=True)
    assert judge(seen, 10, 10, free, free) is None
    assert judge(Usage(11, 5, is_partial=False), 10, 10, free, free) == Breach("bytes", 11, 10)
    assert judge(Usage(5, 11, is_partial=False), 10, 10, free, free) == Breach("inodes", 11, 10)
    assert judge(seen, 10, 10, free, free - 100 * MIB) is None  # somebody else's
    assert judge(hidden, 10, 10, free, free - 100 * MIB) == Breach("bytes", 100 * MIB, 10)
    assert judge(seen, 10, 10, free, 200 * MIB) == Breach("disk", 800 * MIB, 250 * MIB)
    assert judge(seen, 10, 10, 100 * MIB, 20 * MIB) == Breach("disk", 80 * MIB, 25 * MIB)


@pytest.mark.parametrize("what", ["bytes", "inodes"])
async def test_breach_is_reported_once_and_ends_the_watch(tmp_path: Path, what: str) -> None:
    breaches: list[Breach] = []
    watch = asyncio.create_task(watch_upper(tmp_path, MIB, 20, breaches.append, min_pause_s=0.01))
    await asyncio.sleep(0.05)
    assert not watch.done()
    if what == "bytes":
        (tmp_path / "big").write_bytes(os.urandom(2 * MIB))
    else:
        for number in range(30):
            (tmp_path / str(number)).touch()
    await asyncio.wait_for(watch, 10)
    assert [breach.what for breach in breaches] == [what]


async def test_cancelled_watch_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watch = asyncio.create_task(watch_upper(tmp_path, MIB, 20, lambda breach: None, min_pause_s=0.01))
    await asyncio.sleep(0.05)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    for _ in range(100):
        left = len(os.listdir("/proc/self/fd"))
        if left == before:
            break
        await asyncio.sleep(0.02)
    assert left == before
