"""Reading a record: line by line in bounded memory, tolerant of damage, which it names by line and offset.

A reader trusts nothing it finds: a record may come from another machine, be torn, or be made to mislead.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from corral.errors import RecordError
from corral.record.line import MAX_LINE_BYTES, VERSION, split_line
from corral.schema.events import PAYLOADS, Event, EventKind, Source

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file. `size` counts all its bytes, newline included; `data` is empty for one over the cap."""

    number: int
    offset: int
    size: int
    data: bytes
    terminated: bool

    @property
    def oversize(self) -> bool:
        return self.size > MAX_LINE_BYTES


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a line, for people: `reason` is a fixed word, `detail` a sentence."""

    line: int
    offset: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """All events that could be read, and what could not."""

    events: tuple[Event, ...]
    problems: tuple[Problem, ...]


class LineSplitter:
    """Bytes in any pieces to lines, holding at most one line, and of an over-long one only its size."""

    def __init__(self) -> None:
        self._number = 1
        self._offset = 0
        self._size = 0
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[Line]:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            yield self._take(terminated=True)
            start = end + 1
        self._keep(data[start:])

    def finish(self) -> Iterator[Line]:
        """What stands after the last newline."""
        if self._size:
            yield self._take(terminated=False)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= MAX_LINE_BYTES:
            self._parts.append(piece)
        else:
            self._parts.clear()

    def _take(self, *, terminated: bool) -> Line:
        size = self._size + terminated
        line = Line(self._number, self._offset, size, b"".join(self._parts), terminated)
        self._number += 1
        self._offset += size
        self._size = 0
        self._parts.clear()
        return line


def open_record(path: Path) -> BinaryIO:
    """The record at `path`, opened for reading. Raises RecordError."""
    try:
        # Non-blocking, so that a FIFO in its place cannot hang the reader.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise RecordError(f"there is no record at {str(path)!r}", hint="`corral runs` lists what is there") from None
    except OSError as error:
        raise RecordError(f"the record {str(path)!r} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordError(f"{str(path)!r} is not a regular file, so it is no record")
    return os.fdopen(descriptor, "rb", buffering=0)


def read_lines(path: Path, *, as_writer: bool = False) -> Iterator[Line]:
    """Every line of the file. Raises RecordError when it cannot be read.

    A last line without its newline is damage, unless a writer is at work on it: then it is not there yet. `as_writer`
    is for the writer itself.
    """
    splitter = LineSplitter()
    with open_record(path) as file:
        live = not as_writer and _has_writer(file.fileno())
        while data := _read_chunk(file, path):
            yield from splitter.feed(data)
    if not live:
        yield from splitter.finish()


def _read_chunk(file: BinaryIO, path: Path) -> bytes:
    try:
        return file.read(_CHUNK_BYTES)
    except OSError as error:
        raise RecordError(f"the record {str(path)!r} cannot be read: {error.strerror}") from None


def parse_line(line: Line) -> Event | Problem:
    """A line's event, or why there is none. Its place in the chain is verify's business."""
    if line.oversize:
        return _problem(line, "too_long", f"{line.size} bytes, at most {MAX_LINE_BYTES} are read")
    raw = split_line(line.data)
    if raw is None:
        return _problem(line, *_describe(line))
    if raw.version != VERSION:
        return _problem(line, "version", f"written in version {raw.version}, this corral reads {VERSION}")
    try:
        kind = EventKind(raw.kind)
    except ValueError:
        return _problem(line, "unknown_kind", f"an event of kind {raw.kind!r} is not known to this version of corral")
    try:
        payload = PAYLOADS[kind].model_validate(json.loads(raw.payload))
    except (ValidationError, ValueError, RecursionError) as error:
        count = error.error_count() if isinstance(error, ValidationError) else 1
        return _problem(line, "payload", f"the payload is not that of {kind.value!r} ({count} mistakes)")
    return Event(
        version=raw.version,
        seq=raw.seq,
        at=raw.at,
        prev=raw.prev,
        kind=kind,
        source=Source(raw.source),
        payload=payload,
        hash=raw.hash,
    )


def _describe(line: Line) -> tuple[str, str]:
    nul = line.data.find(b"\0")
    if nul >= 0:
        return "nul", f"{line.data.count(0)} NUL bytes from offset {line.offset + nul}: a block that was never written"
    if not line.terminated:
        return "torn", f"the last line is cut off after {line.size} bytes"
    return "not_event", "not a line of a record"


def _problem(line: Line, reason: str, detail: str) -> Problem:
    return Problem(line.number, line.offset, reason, detail)


def _parse_all(lines: Iterable[Line]) -> Iterator[Event | Problem]:
    for line in lines:
        item = parse_line(line)
        yield item
        # An event that stands behind a block of NUL bytes, on the same line, is not lost with it.
        if isinstance(item, Problem) and item.reason == "nul" and (rest := line.data.lstrip(b"\0")):
            offset = line.offset + len(line.data) - len(rest)
            event = parse_line(Line(line.number, offset, len(rest) + line.terminated, rest, line.terminated))
            if isinstance(event, Event):
                yield event


def read_events(path: Path) -> Iterator[Event | Problem]:
    """Every event and every problem, in order, without holding the file. Raises RecordError when it cannot be read."""
    return _parse_all(read_lines(path))


def load_record(path: Path) -> Loaded:
    """The whole record. Raises RecordError when it cannot be read."""
    events: list[Event] = []
    problems: list[Problem] = []
    for item in read_events(path):
        if isinstance(item, Event):
            events.append(item)
        else:
            problems.append(item)
    return Loaded(tuple(events), tuple(problems))


def is_being_written(path: Path) -> bool:
    """Whether a writer holds the record at this moment: the run is alive. Raises RecordError."""
    with open_record(path) as file:
        return _has_writer(file.fileno())


def _has_writer(descriptor: int) -> bool:
    # The shared lock is held for an instant only; a writer that opens just then tries again.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


async def follow_events(path: Path, *, poll_s: float = 0.1) -> AsyncIterator[Event | Problem]:
    """What is there, then what comes, until no writer holds the record any more. Raises RecordError."""
    splitter = LineSplitter()
    with open_record(path) as file:
        while True:
            # Asked before reading: what the writer wrote before it let go is then seen by the read.
            live = _has_writer(file.fileno())
            while data := _read_chunk(file, path):
                for item in _parse_all(splitter.feed(data)):
                    yield item
                await asyncio.sleep(0)
            if not live:
                break
            await asyncio.sleep(poll_s)
        for item in _parse_all(splitter.finish()):
            yield item
