"""What a crash left at the end of a record, and how it is set aside so that writing can go on."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from corral.errors import RecordError
from corral.record.line import GENESIS, split_line
from corral.record.reader import open_record, read_lines
from corral.record.verify import Head

_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the good part of a record ends, and what follows."""

    head: Head
    good_bytes: int
    torn_bytes: int = 0
    torn_sha256: str = ""
    newline_missing: bool = False


def find_tail(path: Path) -> Tail:
    """Follow the chain to its last good event.

    What stands behind it is torn if no intact event is in it. Otherwise the damage lies in the middle, and writing on
    would bury it: raises RecordError.
    """
    head, good_bytes = Head(0, GENESIS), 0
    newline_missing = False
    torn_line: int | None = None
    for line in read_lines(path, as_writer=True):
        raw = split_line(line.data)
        intact = raw is not None and raw.intact
        if torn_line is None and raw is not None and intact and (raw.seq, raw.prev) == (head.seq + 1, head.hash):
            head = Head(raw.seq, raw.hash)
            good_bytes = line.offset + line.size
            newline_missing = not line.terminated
            continue
        torn_line = torn_line or line.number
        if intact:
            raise RecordError(
                f"the record {str(path)!r} is damaged at line {torn_line}, with events behind it",
                hint="`corral log verify` says what happened; a damaged record is read, never written on",
            )
    torn_bytes, torn_sha256 = _digest_from(path, good_bytes)
    return Tail(head, good_bytes, torn_bytes, torn_sha256, newline_missing)


def move_tail_aside(path: Path, descriptor: int, tail: Tail) -> str:
    """Copy the torn end to `<name>.torn-<n>` beside the record, then cut it off. The file's name, or "" for no tail."""
    if not tail.torn_bytes:
        return ""
    target, name = _make_torn_file(path)
    try:
        position = tail.good_bytes
        while data := os.pread(descriptor, _COPY_BYTES, position):
            position += os.write(target, data)
        os.fsync(target)
    finally:
        os.close(target)
    os.ftruncate(descriptor, tail.good_bytes)
    os.fsync(descriptor)
    return name


def _make_torn_file(path: Path) -> tuple[int, str]:
    for number in range(1, 1000):
        name = f"{path.stem}.torn-{number}"
        try:
            return os.open(path.parent / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), name
        except FileExistsError:
            continue
    raise RecordError(f"the record {str(path)!r} was torn a thousand times", hint="the disk or the machine is failing")


def _digest_from(path: Path, offset: int) -> tuple[int, str]:
    count, digest = 0, hashlib.sha256()
    with open_record(path) as file:
        file.seek(offset)
        while data := file.read(_COPY_BYTES):
            count += len(data)
            digest.update(data)
    return count, digest.hexdigest() if count else ""
