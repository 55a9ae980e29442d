"""Did the box go for want of memory? The kernel's counter while the group is there, else the engine's word."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from corral.sandbox.group import GroupCounter
from corral.sandbox.shortage import Shortage


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "memory.events"
    path.write_text("oom 0\noom_kill 0\n")
    return path


@pytest.fixture
def group(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.sandbox.group._PLACES", (str(events.parent),))


async def make(box_id: str = "1") -> Shortage:
    shortage = Shortage(asyncio.get_running_loop())
    shortage.follow(box_id)
    return shortage


async def is_cause(shortage: Shortage) -> bool:
    shortage.look()
    shortage.stop()
    return await shortage.is_cause()


@pytest.mark.usefixtures("group")
async def test_a_kill_that_was_counted_is_the_cause_though_the_engine_never_told(events: Path) -> None:
    shortage = await make()
    events.write_text("oom 3\noom_kill 1\n")
    assert await is_cause(shortage)


@pytest.mark.usefixtures("group")
async def test_a_kill_that_the_toolbox_outlived_is_not_the_cause(events: Path) -> None:
    shortage = await make()
    events.write_text("oom 3\noom_kill 1\n")
    shortage.tell()
    shortage.outlived(1, shortage.count())
    assert not await is_cause(shortage)


@pytest.mark.usefixtures("group")
async def test_one_that_was_outlived_hides_no_later_one(events: Path) -> None:
    shortage = await make()
    events.write_text("oom 3\noom_kill 1\n")
    shortage.tell()
    count = shortage.count()
    events.write_text("oom 4\noom_kill 2\n")  # after the question, before the answer; the engine tells one of both
    shortage.outlived(1, count)
    assert await is_cause(shortage)


@pytest.mark.parametrize("told", [True, False])
async def test_without_a_counter_the_engine_is_believed(told: bool) -> None:
    shortage = await make("0" * 64)
    if told:
        asyncio.get_running_loop().call_later(0.05, shortage.tell)  # late, as engines do
    assert await is_cause(shortage) is told


async def test_without_a_counter_the_toolbox_outlives_only_what_was_told_before_it_was_asked() -> None:
    shortage = await make("0" * 64)
    shortage.tell()
    shortage.tell()
    shortage.outlived(1, 0)
    assert await is_cause(shortage)


@pytest.mark.usefixtures("group")
async def test_a_counter_of_a_group_that_is_gone_says_nothing(events: Path) -> None:
    counter = GroupCounter.of_memory_kills("1")
    assert counter is not None
    assert counter.read() == 0
    counter.close()
    assert counter.read() is None
    events.write_text("oom 3\n")  # a kernel that does not count kills
    counter = GroupCounter.of_memory_kills("1")
    assert counter is not None
    assert counter.read() is None
    counter.close()
