"""The outer end of a connection: what comes is handed on as it came, without a copy, as fast as it is taken."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from corral.sandbox.egress.gate import Admitted


class NotReached(Exception):
    """The server was connected to, and could not be spoken to: its certificate does not hold, say."""


_HELD_BYTES = 256 << 10
"""More than so much unread, and the server has to wait."""
TLS_S = 10.0


class Outside(asyncio.Protocol):
    """One task reads, one writes. Counts into `admitted`, which may come later than the connection."""

    def __init__(self, on_made: Callable[[Outside], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.admitted: Admitted | None = None
        self.moved_at = self._loop.time()
        """When a byte went in or out last."""
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._is_paused = False
        self._has_ended = False
        self._failure: Exception | None = None
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._is_full = False

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held += len(data)
        if self._held > _HELD_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        _wake(self._readable)

    def eof_received(self) -> bool:
        self._has_ended = True
        _wake(self._readable)
        return self._transport is not None and self._transport.can_write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self._failure = error or ConnectionResetError("the connection is closed")
        self._has_ended = self._has_ended or error is None
        _wake(self._readable)
        _wake(self._writable)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _wake(self._writable)

    # For who relays

    async def read(self) -> bytes:
        """The next piece, b"" behind the last. Raises OSError."""
        while not self._pieces and not self._has_ended and self._failure is None:
            self._readable = self._loop.create_future()
            await self._readable
        if not self._pieces:
            if self._has_ended or self._failure is None:
                return b""
            raise self._failure
        piece = self._pieces.popleft()
        self._held -= len(piece)
        if self._is_paused and self._held <= _HELD_BYTES // 2 and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        self.moved_at = self._loop.time()
        if self.admitted is not None:
            self.admitted.bytes_in += len(piece)
        return piece

    async def write(self, data: bytes | bytearray) -> None:
        """Send, as the server takes it. Raises OSError."""
        if self._failure is not None or self._transport is None:
            raise self._failure or ConnectionResetError("the connection is closed")
        self._transport.write(data)
        if self.admitted is not None:
            self.admitted.bytes_out += len(data)
        while self._is_full and self._failure is None:
            self._writable = self._loop.create_future()
            await self._writable
        if self._failure is not None:
            raise self._failure
        self.moved_at = self._loop.time()

    def write_end(self) -> None:
        """We have sent all; reading goes on. TLS cannot say so: there it stays open."""
        if self._transport is not None and self._failure is None and self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        """Send what is left, then be gone."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


@asynccontextmanager
async def open_outside(admitted: Admitted, tls: ssl.SSLContext | None = None) -> AsyncIterator[Outside]:
    """Take over an admitted connection; with `tls`, speak TLS on it. A body that fails leaves nothing of it open.

    Raises NotReached when it cannot be taken over."""
    try:
        outside = await _take_over(admitted, tls)
    except OSError as error:
        raise NotReached(str(error) or "no answer in time") from None
    try:
        yield outside
    except BaseException:
        outside.abort()
        raise


async def _take_over(admitted: Admitted, tls: ssl.SSLContext | None) -> Outside:
    name = admitted.request.host if tls is not None else None
    try:
        async with asyncio.timeout(TLS_S):
            _, outside = await asyncio.get_running_loop().create_connection(
                Outside, sock=admitted.sock, ssl=tls, server_hostname=name
            )
    except BaseException:
        if admitted.sock is not None:
            admitted.sock.close()
        raise
    outside.admitted = admitted
    return outside
