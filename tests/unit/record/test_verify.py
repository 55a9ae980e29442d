from __future__ import annotations

from pathlib import Path

import pytest

from corral.record import Head, Problem, VerifyReport, verify_record
from corral.record.line import build_line, split_line

from .conftest import write_run


def forge(line: bytes, *, seq: int | None = None, prev: str | None = None, payload: bytes | None = None) -> bytes:
    """The line of somebody who knows how hashes are made."""
    raw = split_line(line.rstrip(b"\n"))
    assert raw is not None
    return build_line(
        seq=seq or raw.seq,
        at=raw.at,
        prev=prev or raw.prev,
        kind=raw.kind,
        source=raw.source,
        payload=payload or raw.payload.replace(b"out", b"OUT"),
    )[0]


@pytest.fixture
def lines(record: Path) -> list[bytes]:
    write_run(record, calls=4)
    return record.read_bytes().splitlines(keepends=True)


def found(record: Path, lines: list[bytes], head: Head | None = None) -> tuple[int, str] | None:
    record.write_bytes(b"".join(lines))
    report = verify_record(record, expected_head=head)
    assert report.ok == (report.problem is None)
    return (report.problem.line, report.problem.reason) if report.problem else None


def hash_of(line: bytes) -> str:
    raw = split_line(line.rstrip(b"\n"))
    assert raw is not None
    return raw.hash


def test_whole_record_verifies(record: Path) -> None:
    events = write_run(record)
    assert verify_record(record) == VerifyReport(True, Head(len(events), events[-1].hash), finished=True)


def test_empty_record_verifies_as_unfinished(record: Path) -> None:
    record.touch()
    assert verify_record(record) == VerifyReport(True, Head(0, "0" * 64), finished=False)


def test_changed_line_is_named(record: Path, lines: list[bytes]) -> None:
    lines[4] = lines[4].replace(b"out 1", b"out 2")
    record.write_bytes(b"".join(lines))
    problem = verify_record(record).problem
    offset = sum(map(len, lines[:4]))
    assert problem == Problem(5, offset, "changed", "the line is not what its own hash says")


def test_changed_line_with_a_new_hash_is_named(record: Path, lines: list[bytes]) -> None:
    lines[4] = forge(lines[4])
    assert found(record, lines) == (5, "changed")


def test_first_line_of_another_record_is_named(record: Path, lines: list[bytes]) -> None:
    lines[0] = forge(lines[0], prev="1" * 64)
    assert found(record, lines) == (1, "changed")


@pytest.mark.parametrize("index", range(9))
def test_removed_line_is_named(record: Path, lines: list[bytes], index: int) -> None:
    del lines[index]
    assert found(record, lines) == (index + 1, "removed")


def test_repeated_line_is_named(record: Path, lines: list[bytes]) -> None:
    lines.insert(5, lines[2])
    assert found(record, lines) == (6, "inserted")


def test_line_copied_from_behind_is_named(record: Path, lines: list[bytes]) -> None:
    lines.insert(2, lines[6])
    assert found(record, lines) == (3, "inserted")


def test_forged_line_is_named_whether_or_not_it_follows_the_chain(record: Path, lines: list[bytes]) -> None:
    loose = forge(lines[3], prev="2" * 64)
    assert found(record, [*lines[:3], loose, *lines[3:]]) == (4, "inserted")
    chained = forge(lines[3], payload=b'{"forged":1}')
    assert found(record, [*lines[:3], chained, *lines[3:]]) == (4, "inserted")


def test_swapped_lines_are_named(record: Path, lines: list[bytes]) -> None:
    lines[2], lines[6] = lines[6], lines[2]
    assert found(record, lines) == (3, "reordered")
    lines[2], lines[6] = lines[6], lines[2]
    lines[3], lines[4] = lines[4], lines[3]
    assert found(record, lines) == (4, "reordered")


def test_torn_and_foreign_lines_are_named(record: Path, lines: list[bytes]) -> None:
    assert found(record, [*lines[:-1], lines[-1][:-30]]) == (10, "torn")
    assert found(record, [*lines[:-1], lines[-1][:-1]]) == (10, "torn")
    assert found(record, [*lines, b"\0" * 300]) == (11, "nul")
    assert found(record, [*lines[:3], b"hello\n", *lines[3:]]) == (4, "not_event")
    assert found(record, [*lines[:3], b"\n", *lines[3:]]) == (4, "not_event")
    assert found(record, [lines[0].replace(b'"v":1', b'"v":2'), *lines[1:]]) == (1, "version")


def test_removed_end_shows_as_unfinished_and_against_a_head(record: Path, lines: list[bytes]) -> None:
    head = Head(10, hash_of(lines[9]))
    record.write_bytes(b"".join(lines[:7]))
    without = verify_record(record)
    assert (without.ok, without.finished, without.head.seq) == (True, False, 7)
    offset = sum(map(len, lines[:7]))
    assert verify_record(record, expected_head=head) == VerifyReport(
        False,
        Head(7, hash_of(lines[6])),
        finished=False,
        problem=Problem(8, offset, "truncated", "events 8 to 10 were removed at the end"),
        head_checked=True,
    )


def test_record_rewritten_as_a_whole_shows_against_a_head(record: Path, lines: list[bytes]) -> None:
    head = Head(10, hash_of(lines[9]))
    rewritten: list[bytes] = []
    prev = "0" * 64
    for line in lines:
        rewritten.append(forge(line, prev=prev))
        prev = hash_of(rewritten[-1])
    assert found(record, rewritten) is None
    assert found(record, rewritten, head) == (10, "changed")


def test_record_that_went_on_after_its_head_verifies(record: Path, lines: list[bytes]) -> None:
    assert found(record, lines, Head(4, hash_of(lines[3]))) is None
