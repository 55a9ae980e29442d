"""One line of the record: how it is written, split and checked against its own hash. Bytes only, standard library only.

    {"v":1,"seq":7,"at":"2026-11-30T14:30:00.123456789Z","prev":"<64 hex>","kind":"tool.started",
     "source":"orchestrator","payload":{…},"hash":"<64 hex>"}

all on one line, in this order, without spaces, ASCII only. `hash` is the SHA-256 of the line's bytes from `{` to the
payload's last brace, plus `}`. The payload is parsed by itself, so nothing in it can pose as a field of the envelope.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

VERSION = 1
GENESIS = "0" * 64
MAX_LINE_BYTES = 4 << 20

# SECURITY: ASCII escapes keep newlines, U+2028 and controls from forging a line; test_no_text_can_forge_a_line
_ENCODER = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"), allow_nan=False, default=vars)
_HEAD = re.compile(
    rb'\{"v":([0-9]{1,9}),"seq":([1-9][0-9]{0,17}),"at":"([0-9T:.Z-]{20,30})","prev":"([0-9a-f]{64})",'
    rb'"kind":"([a-z]{1,32}\.[a-z]{1,32})","source":"(orchestrator|box)","payload":(?=\{)'
)
_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"\}')
_TAIL_BYTES = len(b',"hash":""}') + 64


@dataclass(frozen=True, slots=True)
class RawLine:
    """The parts of a well-formed line; says nothing yet about its place in the chain or its payload."""

    version: int
    seq: int
    at: str
    prev: str
    kind: str
    source: str
    payload: bytes
    hash: str
    computed_hash: str

    @property
    def intact(self) -> bool:
        """Whether the line is what its own hash says."""
        return self.hash == self.computed_hash


def split_line(line: bytes) -> RawLine | None:
    """The parts of `line` (without its newline), or None when it has not exactly the form of a record line."""
    head = _HEAD.match(line)
    tail = _TAIL.fullmatch(line, len(line) - _TAIL_BYTES) if len(line) > _TAIL_BYTES else None
    if head is None or tail is None or tail.start() < head.end() or not line.isascii():
        return None
    digest = hashlib.sha256(line[: tail.start()])
    digest.update(b"}")
    version, seq, at, prev, kind, source = head.groups()
    return RawLine(
        version=int(version),
        seq=int(seq),
        at=at.decode(),
        prev=prev.decode(),
        kind=kind.decode(),
        source=source.decode(),
        payload=line[head.end() : tail.start()],
        hash=tail[1].decode(),
        computed_hash=digest.hexdigest(),
    )


def encode_payload(payload: dict[str, Any]) -> bytes:
    """Canonical JSON of a payload: keys sorted, no spaces, everything outside ASCII escaped. A model is its fields."""
    return _ENCODER.encode(payload).encode()


def build_line(*, seq: int, at: str, prev: str, kind: str, source: str, payload: bytes) -> tuple[bytes, str]:
    """The line with its newline, and its hash."""
    head = f'{{"v":{VERSION},"seq":{seq},"at":"{at}","prev":"{prev}","kind":"{kind}","source":"{source}","payload":'
    body = head.encode() + payload
    digest = hashlib.sha256(body + b"}").hexdigest()
    return body + f',"hash":"{digest}"}}\n'.encode(), digest


def format_time(time_ns: int) -> str:
    """A POSIX time in nanoseconds as UTC in ISO 8601."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    return f"{_format_second(seconds)}.{nanoseconds:09d}Z"


@lru_cache(maxsize=4)
def _format_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
