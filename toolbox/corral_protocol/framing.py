"""Frames: a 4-byte big-endian length, then that many bytes.

A payload that starts with `{` is one JSON-RPC 2.0 message (control). A payload that starts with byte 1 is a data
chunk: the type byte, a 4-byte big-endian stream id, then raw bytes. Anything else is a FrameError, and a FrameError
ends the box: a hostile peer is not argued with.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = struct.Struct(">I")
CHUNK_TYPE = 1
_CHUNK_HEADER = struct.Struct(">IBI")
_CHUNK_PREFIX = struct.Struct(">BI")

MAX_CONTROL_BYTES = 1 << 20
"""Largest control payload. Bulk goes through streams, so a megabyte of JSON is never honest."""
MAX_CHUNK_BYTES = 64 << 10
"""Largest data chunk: small enough that control never waits behind more than one of them for long."""
_MAX_PAYLOAD = MAX_CONTROL_BYTES

_encode: Callable[[object], str] | None = None


class FrameError(Exception):
    """The peer broke the framing rules."""


def encode_control(message: dict[str, object]) -> bytes:
    """One JSON-RPC message as a frame. Raises ValueError if it is too large or holds NaN."""
    global _encode
    if _encode is None:
        import json  # late: a third of the toolbox's start-up time, and the toolbox encodes by itself

        _encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    body = _encode(message).encode("ascii")
    if len(body) > MAX_CONTROL_BYTES:
        raise ValueError(f"control message of {len(body)} bytes is over the limit of {MAX_CONTROL_BYTES}")
    return HEADER.pack(len(body)) + body


def encode_chunk(stream: int, data: bytes | bytearray | memoryview) -> bytes:
    """One data chunk of at most MAX_CHUNK_BYTES as a frame."""
    if len(data) > MAX_CHUNK_BYTES:
        raise ValueError(f"chunk of {len(data)} bytes is over the limit of {MAX_CHUNK_BYTES}")
    return b"".join((_CHUNK_HEADER.pack(5 + len(data), CHUNK_TYPE, stream), data))


class FrameDecoder:
    """Splits a byte stream into payloads; holds at most one frame more than it was fed."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Add bytes; return the whole payloads they complete. Raises FrameError for a bad length or type."""
        buffer = self._buffer
        buffer += data
        payloads: list[bytes] = []
        start = 0
        while len(buffer) - start >= 4:
            (length,) = HEADER.unpack_from(buffer, start)
            if not 1 <= length <= _MAX_PAYLOAD:
                raise FrameError(f"frame of {length} bytes")
            if len(buffer) - start > 4:
                kind = buffer[start + 4]
                if kind == CHUNK_TYPE:
                    if not 5 <= length <= 5 + MAX_CHUNK_BYTES:
                        raise FrameError(f"chunk of {length} bytes")
                elif kind != 0x7B:
                    raise FrameError(f"frame of unknown type {kind}")
            end = start + 4 + length
            if len(buffer) < end:
                break
            payloads.append(bytes(memoryview(buffer)[start + 4 : end]))
            start = end
        if start:
            del buffer[:start]
        return payloads

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete frame."""
        return len(self._buffer)


def parse_chunk(payload: bytes) -> tuple[int, memoryview]:
    """A chunk payload to (stream id, data)."""
    _, stream = _CHUNK_PREFIX.unpack_from(payload)
    return stream, memoryview(payload)[5:]
