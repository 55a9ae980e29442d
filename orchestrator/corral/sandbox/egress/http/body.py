"""The body of a message, exactly as far as it goes: behind a request's begins what nobody has judged."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable

from corral.sandbox.egress.http.head import BadMessage, Buffered

_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[\t -~]*)?")
_MAX_LINE = 4096
_PIECE = 64 << 10

Write = Callable[[bytes], Awaitable[None]]


async def pass_body(source: Buffered, write: Write, length: int | None) -> None:
    """Pass on `length` bytes, or chunks to the last one, written anew: no extension, no trailer. Raises BadMessage."""
    async for data in read_body(source, length):
        await write(data if length is not None else b"%x\r\n%s\r\n" % (len(data), data))
    if length is None:
        await write(b"0\r\n\r\n")


async def read_body(source: Buffered, length: int | None) -> AsyncIterator[bytes]:
    """`length` bytes, or what is in the chunks, piece by piece. Raises BadMessage when it ends before."""
    if length is not None:
        async for data in _read_bytes(source, length):
            yield data
        return
    while True:
        match = _CHUNK.fullmatch(await source.take_line(_MAX_LINE))
        if match is None:
            raise BadMessage("a chunk that is none")
        size = int(match[1], 16)
        if not size:
            break
        async for data in _read_bytes(source, size):
            yield data
        if await source.take(2) != b"\r\n":
            raise BadMessage("a chunk that is none")
    while await source.take_line(_MAX_LINE):
        pass


async def _read_bytes(source: Buffered, left: int) -> AsyncIterator[bytes]:
    while left:
        data = await source.take_some(min(left, _PIECE))
        if not data:
            raise BadMessage("it ended in the middle")
        left -= len(data)
        yield data


async def read_to_end(source: Buffered) -> AsyncIterator[bytes]:
    """Everything that still comes."""
    while data := await source.take_some(_PIECE):
        yield data
