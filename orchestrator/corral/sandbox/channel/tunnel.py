"""The host's end of the tunnel: streams in both directions that belong to no call.

The box opens them by connecting to a port of its loopback, or we do, towards a port of the box. Everything the box says
about them is judged here: numbers, totals, credit. Who serves a stream reads and writes it like a connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from corral.errors import SandboxProtocolError, ToolError
from corral_protocol import MAX_CHUNK_BYTES
from corral_protocol.error import ErrorCode
from corral_protocol.message import (
    FIRST_DIALED_STREAM,
    FIRST_OPENED_STREAM,
    INITIAL_CREDIT,
    Credit,
    Method,
    StreamClose,
    StreamOpen,
    StreamReset,
)

if TYPE_CHECKING:
    from corral.sandbox.channel.rpc import Channel

WIDE_STREAMS = 16
"""So many streams may have a window of WIDE_WINDOW; the others keep INITIAL_CREDIT. Together they bound our memory."""
WIDE_WINDOW = 1 << 20
_GRANT_BYTES = 64 << 10
_MAX_CREDIT = 1 << 30
_ERRORS = frozenset({"", ErrorCode.CANCELLED.value})

Serve = Callable[["BoxStream"], None]
"""Gets each stream that the box opens, on the event loop: takes it over and returns at once."""


class BoxStream:
    """One connection of the box, or to it. One task reads, one writes; whoever serves it calls close() or abort()."""

    def __init__(self, tunnel: Tunnel, number: int, listener: int) -> None:
        self.number = number
        self.listener = listener
        """Which of the tunnel's ports it came in by; -1 when we opened it."""
        self.received = 0
        self.sent = 0
        self._tunnel = tunnel
        self._pieces: deque[bytearray] = deque()
        self._held = 0
        self._in_credit = INITIAL_CREDIT
        self._owed = 0
        self._is_wide = False
        self._out_credit = INITIAL_CREDIT
        self._is_ended = False  # the box has sent all
        self._is_closed = False  # we have
        self._is_reset = False
        self._readable: asyncio.Future[None] | None = None
        self._sendable: asyncio.Future[None] | None = None

    # For who serves it

    @property
    def is_reset(self) -> bool:
        return self._is_reset

    async def read(self) -> bytes | bytearray:
        """The next bytes, empty behind the last. Raises ConnectionResetError."""
        while not self._pieces and not self._is_ended and not self._is_reset:
            self._readable = asyncio.get_running_loop().create_future()
            await self._readable
        if self._is_reset:
            raise ConnectionResetError("the connection in the box was given up")
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        self._held -= len(piece)
        self._grant(len(piece))
        return piece

    async def write(self, data: bytes | memoryview) -> None:
        """Send, as the box takes it. Raises ConnectionResetError."""
        view = memoryview(data)
        while view:
            while not self._out_credit and not self._is_reset:
                self._sendable = asyncio.get_running_loop().create_future()
                await self._sendable
            if self._is_reset or self._is_closed:
                raise ConnectionResetError("the connection in the box was given up")
            taken = min(len(view), self._out_credit, MAX_CHUNK_BYTES)
            self._out_credit -= taken
            self.sent += taken
            await self._tunnel.channel.write_data(self.number, view[:taken])
            view = view[taken:]

    def close(self) -> None:
        """We have sent all; reading goes on. Idempotent."""
        self._say_end("")

    def abort(self) -> None:
        """Give the stream up in both directions: a client in the box sees a reset. Idempotent."""
        if not self._is_reset and not (self._is_ended and self._is_closed):
            self._tunnel.channel.notify(Method.RESET, StreamReset(self.number))
        self._drop()
        self._say_end(ErrorCode.CANCELLED.value)

    # For the tunnel

    def open_chunk(self, size: int) -> Callable[[memoryview], None]:
        # SECURITY: credit is what bounds the orchestrator's memory (test_channel_tunnel).
        if self._is_ended or size > self._in_credit:
            raise SandboxProtocolError(
                f"the box sent {size} bytes on stream {self.number} with credit {self._in_credit}"
            )
        self._in_credit -= size
        return self._receive

    def _receive(self, piece: memoryview) -> None:
        self.received += len(piece)
        if self._is_reset:
            return  # on its way while we gave up
        if self._pieces and len(self._pieces[-1]) + len(piece) <= MAX_CHUNK_BYTES:
            self._pieces[-1] += piece  # or single bytes would cost us forty times their number
        else:
            self._pieces.append(bytearray(piece))
        self._held += len(piece)
        _wake(self._readable)

    def _grant(self, size: int) -> None:
        self._owed += size
        if self._owed < _GRANT_BYTES or self._is_ended or self._is_reset:
            return
        fresh, self._owed = self._owed, 0
        if not self._is_wide and not self._held and self._tunnel.take_wide():
            self._is_wide = True
            fresh += WIDE_WINDOW - INITIAL_CREDIT
        self._in_credit += fresh
        self._tunnel.channel.notify(Method.CREDIT, Credit(self.number, fresh))

    def grant(self, size: int) -> None:
        self._out_credit += size
        if self._out_credit > _MAX_CREDIT:
            raise SandboxProtocolError(f"the box gave credit of {self._out_credit} bytes on stream {self.number}")
        _wake(self._sendable)

    def end(self, close: StreamClose) -> None:
        if self._is_ended or close.total != self.received:
            raise SandboxProtocolError(
                f"the box closed stream {self.number} at {close.total} bytes after sending {self.received}"
            )
        self._is_ended = True
        if close.error:
            self._drop()
        _wake(self._readable)
        self._settle()

    def reset(self) -> None:
        self._drop()
        self._say_end(ErrorCode.CANCELLED.value)

    def _drop(self) -> None:
        self._is_reset = True
        self._pieces.clear()
        self._held = 0
        _wake(self._readable)
        _wake(self._sendable)

    def _say_end(self, error: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._tunnel.channel.notify(Method.CLOSE, StreamClose(self.number, self.sent, error))
            self._settle()

    def _settle(self) -> None:
        if self._is_ended and self._is_closed:
            if self._is_wide:
                self._is_wide = False
                self._tunnel.wide += 1
            self._tunnel.retire(self.number)

    def lose(self) -> None:
        """The channel is gone."""
        self._is_closed = True
        self._drop()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class Tunnel:
    """All streams of one box. Closed until enable()."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.wide = WIDE_STREAMS
        self._serve: Serve | None = None
        self._listeners = 0
        self._max_streams = 0
        self._streams: dict[int, BoxStream] = {}
        self._next_opened = FIRST_OPENED_STREAM
        self._next_dialed = FIRST_DIALED_STREAM

    def enable(self, serve: Serve, listeners: int, max_streams: int) -> None:
        """From here on the box may open streams."""
        self._serve, self._listeners, self._max_streams = serve, listeners, max_streams

    def take_wide(self) -> bool:
        if not self.wide:
            return False
        self.wide -= 1
        return True

    def prepare_dial(self) -> BoxStream:
        """A stream of ours, before the box is asked for it. Raises ToolError when too many are open."""
        if len(self._streams) >= self._max_streams:
            raise ToolError(f"{self._max_streams} streams are open", code=ErrorCode.BUSY)
        stream = BoxStream(self, self._next_dialed, -1)
        self._next_dialed += 1
        self._streams[stream.number] = stream
        return stream

    def forget(self, stream: BoxStream) -> None:
        """The box refused it: it never was."""
        stream.lose()
        self.retire(stream.number)

    def retire(self, number: int) -> None:
        self._streams.pop(number, None)

    # Receiving: every raise ends the box

    def open_chunk(self, number: int, size: int) -> Callable[[memoryview], None]:
        stream = self._streams.get(number)
        if stream is None:
            raise SandboxProtocolError(f"the box sent data on stream {number}, which is not open")
        return stream.open_chunk(size)

    def on_open(self, opened: StreamOpen) -> None:
        if self._serve is None or opened.stream != self._next_opened or opened.listener >= self._listeners:
            raise SandboxProtocolError(f"the box opened stream {opened.stream}, which it may not")
        # SECURITY: a box that opens more than it may fills our memory and descriptors (test_channel_tunnel). Those that
        # we dial do not count: it cannot know yet of the last ones.
        if sum(number < FIRST_DIALED_STREAM for number in self._streams) >= self._max_streams:
            raise SandboxProtocolError(f"the box opened more than {self._max_streams} streams")
        self._next_opened += 1
        stream = self._streams[opened.stream] = BoxStream(self, opened.stream, opened.listener)
        self._serve(stream)

    def on_credit(self, credit: Credit) -> None:
        stream = self._find(credit.stream, "gave credit on")
        if not credit.bytes:
            raise SandboxProtocolError(f"the box gave no credit on stream {credit.stream}")
        if stream is not None:
            stream.grant(credit.bytes)

    def on_close(self, close: StreamClose) -> None:
        stream = self._streams.get(close.stream)
        if stream is None or close.error not in _ERRORS:
            raise SandboxProtocolError(f"the box closed stream {close.stream}, which is not open or not so")
        stream.end(close)

    def on_reset(self, reset: StreamReset) -> None:
        stream = self._find(reset.stream, "reset")
        if stream is not None:
            stream.reset()

    def _find(self, number: int, verb: str) -> BoxStream | None:
        """An open stream, or None for one that is over: the message crossed our own end of it."""
        known = self._next_dialed if number >= FIRST_DIALED_STREAM else self._next_opened
        if number >= known:
            raise SandboxProtocolError(f"the box {verb} stream {number}, which is not open")
        return self._streams.get(number)

    def end(self) -> None:
        """The channel is gone: whoever reads or writes is told."""
        for stream in list(self._streams.values()):
            stream.lose()
        self._streams.clear()
