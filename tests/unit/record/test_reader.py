from __future__ import annotations

import asyncio
import fcntl
import os
import tracemalloc
from pathlib import Path

import pytest

from corral.errors import RecordError
from corral.record import (
    Loaded,
    RecordLog,
    follow_events,
    is_being_written,
    load_record,
    load_state,
    read_events,
    verify_record,
)
from corral.record.line import MAX_LINE_BYTES, build_line
from corral.record.reader import LineSplitter
from corral.schema.events import Event

from .conftest import run_finished, run_started, tool_finished, tool_started, write_run


def test_missing_record_is_an_error_with_a_hint(record: Path) -> None:
    with pytest.raises(RecordError, match="there is no record") as caught:
        load_record(record)
    assert caught.value.hint == "`corral runs` lists what is there"


@pytest.mark.parametrize("kind", ["directory", "fifo"])
def test_what_is_no_file_is_refused_without_hanging(record: Path, kind: str) -> None:
    os.mkfifo(record) if kind == "fifo" else record.mkdir()
    with pytest.raises(RecordError):
        load_record(record)


def test_bad_lines_are_named_and_the_rest_is_read(record: Path) -> None:
    events = write_run(record)
    lines = record.read_bytes().splitlines(keepends=True)
    unknown, _ = build_line(
        seq=1, at="2026-11-30T00:00:00.0Z", prev="0" * 64, kind="cow.milked", source="box", payload=b"{}"
    )
    wrong, _ = build_line(
        seq=1, at="2026-11-30T00:00:00.0Z", prev="0" * 64, kind="run.started", source="box", payload=b'{"x":1}'
    )
    future = lines[0].replace(b'{"v":1', b'{"v":2', 1)
    huge = b"x" * (MAX_LINE_BYTES + 10) + b"\n"
    record.write_bytes(b"".join([b"not json\n", unknown, wrong, future, huge, b"\n", *lines, b'{"half']))
    loaded = load_record(record)
    assert loaded.events == tuple(events)
    assert [(problem.line, problem.reason) for problem in loaded.problems] == [
        (1, "not_event"),
        (2, "unknown_kind"),
        (3, "payload"),
        (4, "version"),
        (5, "too_long"),
        (6, "not_event"),
        (13, "torn"),
    ]
    offsets = [problem.offset for problem in loaded.problems]
    assert offsets == sorted(offsets)
    assert record.read_bytes()[offsets[-1] :] == b'{"half'


def test_envelope_fields_in_a_payload_change_nothing(record: Path) -> None:
    line, _ = build_line(
        seq=1,
        at="2026-11-30T00:00:00.0Z",
        prev="0" * 64,
        kind="plan.created",
        source="box",
        payload=b'{"step":1},"seq":99,"source":"orchestrator","x":{}',
    )
    record.write_bytes(line)
    assert [problem.reason for problem in load_record(record).problems] == ["payload"]


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_lines_are_the_same_in_pieces_of_any_size(size: int) -> None:
    data = b"one\n\ntwo\nthree"
    splitter = LineSplitter()
    lines = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
    lines += splitter.finish()
    assert [(line.number, line.offset, line.size, line.data, line.terminated) for line in lines] == [
        (1, 0, 4, b"one", True),
        (2, 4, 1, b"", True),
        (3, 5, 4, b"two", True),
        (4, 9, 5, b"three", False),
    ]


def test_large_record_is_read_in_bounded_memory(record: Path) -> None:
    with RecordLog.open(record) as log:
        log.append(run_started(), durable=False)
        for number in range(400):
            log.append(tool_started(f"c{number}"), durable=False)
            log.append(tool_finished(f"c{number}", output="x" * 50_000), durable=False)
    assert record.stat().st_size > 20_000_000
    tracemalloc.start()
    state = load_state(record)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(state.actions) == 400
    assert peak < 4_000_000


async def test_follow_gives_what_is_there_and_what_comes_until_the_writer_ends(record: Path) -> None:
    log = RecordLog.open(record)
    log.append(run_started())
    seen: list[Event] = []
    more = asyncio.Event()

    async def follow() -> None:
        async for item in follow_events(record, poll_s=0.01):
            assert isinstance(item, Event)
            seen.append(item)
            more.set()

    task = asyncio.create_task(follow())
    await asyncio.wait_for(more.wait(), 5)
    assert [event.seq for event in seen] == [1]
    more.clear()
    log.append(tool_started(), durable=False)
    await asyncio.wait_for(more.wait(), 5)
    log.append(run_finished())
    log.close()
    await asyncio.wait_for(task, 5)
    assert seen == list(load_record(record).events)


async def test_follow_never_shows_half_a_line_of_a_live_record(record: Path) -> None:
    write_run(record, calls=0)
    whole = record.read_bytes()
    record.write_bytes(whole[:-40])
    log = os.open(record, os.O_WRONLY | os.O_APPEND)
    fcntl.flock(log, fcntl.LOCK_EX)
    seen: list[object] = []

    async def follow() -> None:
        async for item in follow_events(record, poll_s=0.01):
            seen.append(item)

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.1)
    assert len(seen) == 1
    os.write(log, whole[-40:])
    os.close(log)
    await asyncio.wait_for(task, 5)
    assert seen == list(load_record(record).events)


def test_line_a_writer_is_at_work_on_is_no_damage(record: Path) -> None:
    events = write_run(record, calls=0)
    record.write_bytes(record.read_bytes()[:-40])
    writer = os.open(record, os.O_WRONLY | os.O_APPEND)
    fcntl.flock(writer, fcntl.LOCK_EX)
    assert load_record(record) == Loaded(tuple(events[:1]), ())
    assert verify_record(record).ok
    os.close(writer)
    assert [problem.reason for problem in load_record(record).problems] == ["torn"]
    assert not verify_record(record).ok


def test_is_being_written_tells_a_live_run_from_a_dead_one(record: Path) -> None:
    with RecordLog.open(record):
        assert is_being_written(record)
    assert not is_being_written(record)


def test_read_events_is_lazy(record: Path) -> None:
    write_run(record)
    stream = read_events(record)
    first = next(stream)
    assert isinstance(first, Event)
    assert first.seq == 1
