"""Is this record what was written? Names the first line that is not, and what happened to it.

The chain proves order and content up to its last line. That lines were cut off behind it shows only when the run's
last event is missing, or against a head (sequence and hash) that was kept elsewhere, as a patch's provenance does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corral.record.line import GENESIS, VERSION, RawLine, split_line
from corral.record.reader import Line, Problem, parse_line, read_lines
from corral.schema.events import EventKind


@dataclass(frozen=True, slots=True)
class Head:
    """The last line of a record: who has it can tell whether anything before it, or itself, was touched."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """`ok` speaks of what is there. `finished` is false when the run's last event is missing: the run still goes on,
    was killed, or its tail was removed; without an expected head these cannot be told apart."""

    ok: bool
    head: Head
    finished: bool
    problem: Problem | None = None
    head_checked: bool = False


def verify_record(path: Path, *, expected_head: Head | None = None) -> VerifyReport:
    """Check every line of the record. Raises RecordError when it cannot be read at all."""
    head = Head(0, GENESIS)
    before: Line | None = None
    finished = False
    rewritten: Problem | None = None
    lines = read_lines(path)
    for line in lines:
        raw = split_line(line.data)
        problem = _check_shape(line, raw)
        if problem is None and raw is not None and (raw.seq, raw.prev) != (head.seq + 1, head.hash):
            problem = _explain_break(line, raw, head, before, lines)
        if problem is not None or raw is None:
            return VerifyReport(False, head, finished, problem)
        head = Head(raw.seq, raw.hash)
        if expected_head is not None and head.seq == expected_head.seq and head != expected_head:
            rewritten = _name(line, "changed", "the chain holds, but the expected head does not: it was rewritten")
        finished = finished or raw.kind == EventKind.RUN_FINISHED
        before = line
    if expected_head is None:
        return VerifyReport(True, head, finished)
    problem = rewritten or _find_truncation(head, before, expected_head)
    return VerifyReport(problem is None, head, finished, problem, head_checked=True)


def _check_shape(line: Line, raw: RawLine | None) -> Problem | None:
    if raw is None:
        parsed = parse_line(line)
        # A line without form can hold no event: parse_line says what it is instead.
        return parsed if isinstance(parsed, Problem) else _name(line, "not_event", "not a line of a record")
    if raw.version != VERSION:
        return _name(line, "version", f"version {raw.version} cannot be verified by this corral")
    if not raw.intact:
        return _name(line, "changed", "the line is not what its own hash says")
    if not line.terminated:
        return _name(line, "torn", "the line's newline is missing")
    return None


def _explain_break(line: Line, raw: RawLine, head: Head, before: Line | None, rest: Iterator[Line]) -> Problem:
    """The line is intact in itself but does not follow the one before: which of the two is wrong, and how."""
    expected = head.seq + 1
    expected_later = copied_later = true_one_later = follower_later = False
    for item in rest:
        other = split_line(item.data)
        if other is not None and other.intact:
            expected_later |= other.seq == expected
            copied_later |= other.hash == raw.hash
            true_one_later |= (other.seq, other.prev) == (expected, head.hash)
            follower_later |= other.prev == raw.hash
    if raw.seq > expected:
        if not expected_later:
            return _name(line, "removed", f"event {expected} is missing before event {raw.seq}")
        reason = "inserted" if copied_later else "reordered"
        return _name(line, reason, f"event {raw.seq} stands where event {expected} should be")
    if raw.seq < expected:
        if before is not None and raw.seq == head.seq and raw.hash != head.hash and follower_later:
            return _name(before, "inserted", f"two lines claim to be event {raw.seq}; the others follow the second")
        return _name(line, "inserted", f"event {raw.seq} stands here again, event {expected} should be here")
    if true_one_later:
        return _name(line, "inserted", f"it claims to be event {expected} but does not follow the line before")
    if before is None:
        return _name(line, "changed", "the first line names a line before it")
    return _name(before, "changed", f"the line fits its own hash, but line {line.number} was written after another one")


def _find_truncation(head: Head, last: Line | None, expected: Head) -> Problem | None:
    if head.seq >= expected.seq:
        return None
    line, offset = (last.number + 1, last.offset + last.size) if last else (1, 0)
    return Problem(line, offset, "truncated", f"events {head.seq + 1} to {expected.seq} were removed at the end")


def _name(line: Line, reason: str, detail: str) -> Problem:
    return Problem(line.number, line.offset, reason, detail)
