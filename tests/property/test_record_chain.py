"""Whatever is done to a record's bytes, verify names the line where it was done."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from corral.errors import RecordError
from corral.record import Head, RecordLog, load_record, verify_record
from corral.schema import events as ev
from corral.schema.events import Event

COMMON = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.characters(codec=None), max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
payloads = st.one_of(
    st.builds(ev.ToolStarted, call_id=texts, tool=texts, arguments=st.dictionaries(texts, json_values, max_size=4)),
    st.builds(ev.ProcessStarted, pid=st.integers(0, 1 << 22), program=texts, argv=st.lists(texts, max_size=3)),
    st.builds(ev.PlanCreated, step=st.integers(0, 99), text=texts),
)


def write(path: Path, events: list[ev.Payload]) -> list[Event]:
    with RecordLog.open(path) as log:
        return [log.append(payload, durable=False) for payload in events]


@cache
def sample() -> bytes:
    """A record of six lines whose texts hold what JSON has to escape."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.jsonl"
        write(path, [ev.PlanCreated(step=n, text=f'{n} "quoted"\\ \n \u2028 é }}') for n in range(6)])
        return path.read_bytes()


def first_bad_line(data: bytes, head: Head | None = None) -> int | None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        problem = verify_record(Path(file.name), expected_head=head).problem
        return problem.line if problem else None


def line_at(data: bytes, offset: int) -> int:
    return data[:offset].count(b"\n") + 1


@COMMON
@given(st.lists(payloads, max_size=8))
def test_record_reads_back_what_was_written(events: list[ev.Payload]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.jsonl"
        written = write(path, events)
        loaded = load_record(path)
        assert (loaded.events, loaded.problems) == (tuple(written), ())
        report = verify_record(path)
        assert (report.ok, report.head.seq) == (True, len(events))
        assert path.read_bytes().count(b"\n") == len(events)


@COMMON
@given(st.data(), st.integers(1, 255))
def test_any_changed_byte_names_its_line(data: st.DataObject, flip: int) -> None:
    record = sample()
    offset = data.draw(st.integers(0, len(record) - 1))
    changed = bytearray(record)
    changed[offset] ^= flip
    assert first_bad_line(bytes(changed)) == line_at(record, offset)


def test_every_byte_with_its_lowest_bit_flipped_names_its_line() -> None:
    record = sample()
    for offset in range(len(record)):
        changed = bytearray(record)
        changed[offset] ^= 1
        assert first_bad_line(bytes(changed)) == line_at(record, offset), offset


@COMMON
@given(st.data())
def test_any_removed_piece_names_its_line(data: st.DataObject) -> None:
    record = sample()
    start = data.draw(st.integers(0, len(record) - 1))
    end = data.draw(st.integers(start + 1, min(len(record), start + 600)))
    # A piece that is the very end, from a line's start, leaves a shorter record without a flaw: the head tells.
    assume(not (end == len(record) and (start == 0 or record[start - 1 : start] == b"\n")))
    left = record[:start] + record[end:]
    # What is equal on both sides of the cut could have been either side's.
    same = 0
    while end + same < len(record) and record[start + same] == record[end + same]:
        same += 1
    assert first_bad_line(left) in {line_at(record, start), line_at(record, start + same)}


@COMMON
@given(st.data(), st.binary(min_size=1, max_size=20))
@example(None, b"\n")
def test_any_inserted_piece_names_its_line(data: st.DataObject | None, piece: bytes) -> None:
    record = sample()
    offset = data.draw(st.integers(0, len(record))) if data else len(record)
    changed = record[:offset] + piece + record[offset:]
    same = 0
    while offset + same < len(record) and changed[offset + same] == record[offset + same]:
        same += 1
    assert first_bad_line(changed) in {line_at(record, offset), line_at(record, offset + same)}


@COMMON
@given(st.permutations(range(6)))
def test_any_other_order_names_the_first_line_out_of_place(order: list[int]) -> None:
    lines = sample().splitlines(keepends=True)
    expected = next((index + 1 for index, source in enumerate(order) if index != source), None)
    assert first_bad_line(b"".join(lines[index] for index in order)) == expected


@COMMON
@given(st.integers(0, 5))
def test_a_shorter_record_is_found_by_its_head(kept: int) -> None:
    lines = sample().splitlines(keepends=True)
    with tempfile.NamedTemporaryFile() as file:
        file.write(sample())
        file.flush()
        head = verify_record(Path(file.name)).head
    assert first_bad_line(b"".join(lines[:kept])) is None
    assert first_bad_line(b"".join(lines[:kept]), head) == kept + 1


@COMMON
@given(st.integers(0, 3000), st.binary(max_size=64))
def test_a_writer_goes_on_after_any_torn_end_or_refuses(cut: int, junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.jsonl"
        path.write_bytes(sample()[:cut] + junk)
        try:
            with RecordLog.open(path) as log:
                log.append(ev.PlanCreated(step=9))
        except RecordError as error:
            raise AssertionError("no intact event stands behind the tear") from error
        assert verify_record(path).ok
        whole = sample()[:cut].count(b"\n")
        assert len(load_record(path).events) >= whole + 1


@COMMON
@given(
    st.binary(max_size=400) | st.lists(st.sampled_from([*sample().splitlines(), b"\0\0", b"{}", b"[1"])).map(b"\n".join)
)
def test_reader_and_verify_survive_any_bytes(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        loaded = load_record(Path(file.name))
        report = verify_record(Path(file.name))
    assert report.ok or report.problem is not None
    assert not report.ok or not loaded.problems
