"""A request's body, passed on exactly as far as it goes: behind it begins what nobody has judged."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from corral.sandbox.egress.head import BadMessage, Buffered

_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[\t -~]*)?")
_MAX_LINE = 4096
_PIECE = 64 << 10

Write = Callable[[bytes], Awaitable[None]]


async def pass_body(source: Buffered, write: Write, length: int | None) -> None:
    """Pass on `length` bytes, or chunks to the last one. Raises BadMessage."""
    if length is None:
        await _pass_chunks(source, write)
    else:
        await _pass_bytes(source, write, length)


async def _pass_bytes(source: Buffered, write: Write, left: int) -> None:
    while left:
        data = await source.take_some(min(left, _PIECE))
        if not data:
            raise BadMessage("it ended in the middle")
        left -= len(data)
        await write(data)


async def _pass_chunks(source: Buffered, write: Write) -> None:
    """Written anew: no extension and no trailer gets through."""
    while True:
        match = _CHUNK.fullmatch(await source.take_line(_MAX_LINE))
        if match is None:
            raise BadMessage("a chunk that is none")
        size = int(match[1], 16)
        if not size:
            break
        await write(b"%x\r\n" % size)
        await _pass_bytes(source, write, size)
        if await source.take(2) != b"\r\n":
            raise BadMessage("a chunk that is none")
        await write(b"\r\n")
    while await source.take_line(_MAX_LINE):
        pass
    await write(b"0\r\n\r\n")
