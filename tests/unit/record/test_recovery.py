"""Cases C205 and C206: what a crash leaves at the end of a record, or in the middle of one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from corral.errors import RecordError
from corral.record import RecordLog, load_record, verify_record
from corral.schema import events as ev

from .conftest import tool_started, write_run

TAILS = {
    "half a line": b'{"v":1,"seq":7,"at":"2026-',
    "half a line twice": b'{"v":1,"seq\n{"v":1,"se',
    "half a UTF-8 sequence": b'{"v":1,"seq":7,"at":"\xe2\x82',
    "NUL block": b"\0" * 4096,
    "NUL block with a newline": b"\0" * 300 + b"\n",
    "something else": b"hello\n",
}


@pytest.mark.parametrize("torn", TAILS.values(), ids=TAILS)
def test_torn_end_is_moved_aside_and_told(record: Path, torn: bytes) -> None:
    before = write_run(record)
    with record.open("ab") as file:
        file.write(torn)
    with RecordLog.open(record) as log:
        log.append(tool_started("next"))
    loaded = load_record(record)
    assert loaded.problems == ()
    assert loaded.events[:-2] == tuple(before)
    assert loaded.events[-2].payload == ev.LogRecovered(
        kept_events=len(before),
        torn_bytes=len(torn),
        torn_sha256=hashlib.sha256(torn).hexdigest(),
        torn_file="record.torn-1",
    )
    assert loaded.events[-1].payload == tool_started("next")
    assert (record.parent / "record.torn-1").read_bytes() == torn
    assert (record.parent / "record.torn-1").stat().st_mode & 0o777 == 0o600
    assert verify_record(record).ok


def test_every_cut_of_the_last_line_is_recovered(record: Path) -> None:
    before = write_run(record, calls=1)
    whole = record.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last + 1, len(whole) - 1, 7):
        record.write_bytes(whole[:end])
        with RecordLog.open(record) as log:
            assert log.head().seq == len(before)  # one lost, one told
        assert load_record(record).events[:-1] == tuple(before[:-1])
        assert verify_record(record).ok


def test_missing_last_newline_is_put_back_without_losing_the_event(record: Path) -> None:
    before = write_run(record)
    record.write_bytes(record.read_bytes()[:-1])
    RecordLog.open(record).close()
    events = load_record(record).events
    assert events[:-1] == tuple(before)
    assert events[-1].payload == ev.LogRecovered(kept_events=len(before), torn_bytes=0, torn_sha256="")
    assert verify_record(record).ok
    assert [path.name for path in record.parent.iterdir()] == ["record.jsonl"]


def test_torn_ends_are_numbered(record: Path) -> None:
    write_run(record)
    for number in (1, 2, 3):
        with record.open("ab") as file:
            file.write(b"torn %d" % number)
        RecordLog.open(record).close()
    torn = {path.name: path.read_bytes() for path in record.parent.glob("*.torn-*")}
    assert torn == {"record.torn-1": b"torn 1", "record.torn-2": b"torn 2", "record.torn-3": b"torn 3"}


def test_damage_in_the_middle_is_never_written_over(record: Path) -> None:
    write_run(record)
    lines = record.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:2], b"\0" * 300 + b"\n", *lines[2:]])
    record.write_bytes(damaged)
    with pytest.raises(RecordError, match="damaged at line 3") as caught:
        RecordLog.open(record)
    assert caught.value.hint is not None
    assert record.read_bytes() == damaged


def test_nul_block_in_the_middle_loses_no_event_and_is_reported_with_its_offset(record: Path) -> None:
    events = write_run(record)
    lines = record.read_bytes().splitlines(keepends=True)
    offset = len(lines[0]) + len(lines[1])
    record.write_bytes(b"".join([*lines[:2], b"\0" * 300 + b"\n", *lines[2:]]))
    loaded = load_record(record)
    assert loaded.events == tuple(events)
    assert [(problem.line, problem.offset, problem.reason) for problem in loaded.problems] == [(3, offset, "nul")]
    assert f"300 NUL bytes from offset {offset}" in loaded.problems[0].detail


def test_event_behind_nul_bytes_on_its_own_line_is_kept(record: Path) -> None:
    events = write_run(record)
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join([*lines[:3], b"\0" * 10, *lines[3:]]))
    loaded = load_record(record)
    assert loaded.events == tuple(events)
    assert [problem.reason for problem in loaded.problems] == ["nul"]
