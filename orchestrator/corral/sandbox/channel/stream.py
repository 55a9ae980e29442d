"""Streams inside the channel: bulk bytes by stream id, with credit in both directions.

Ids are given out by the host alone: odd ones carry data from the box, even ones to it. So an id says its direction,
and a number at or above the next id was never given out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from corral.errors import CorralError, SandboxError, SandboxProtocolError
from corral.sandbox.base import Sink
from corral_protocol.message import INITIAL_CREDIT

GRANT_BYTES = INITIAL_CREDIT // 2
"""Credit goes back in lumps of this size: the sender never runs dry, and credits stay under 1 % of the messages."""
MAX_WINDOW = 1 << 20
"""A sink that keeps up gets a wider window, up to this: four pipes lie between the command and us."""
MAX_CREDIT = 1 << 30
_NO_TARGET = 1 << 63
_SINK_FAILURES = (OSError, ValueError, CorralError)


def silence(future: asyncio.Future[Any]) -> None:
    """Nobody may come for this future's error, and that is fine."""
    future.add_done_callback(_take_failure)


def _take_failure(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


class Inbound:
    """Data from the box into a sink. Without a sink it is drained: a call that nobody waits for must not block."""

    def __init__(
        self, stream: int, sink: Sink | None, grant: Callable[[int, int], None], forget: Callable[[int], None]
    ) -> None:
        self.stream = stream
        self.received = 0
        self.error = ""
        self.is_drained = False
        self.failure: Exception | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sink = sink
        self._grant = grant
        self._forget = forget
        self._credit = INITIAL_CREDIT
        self._consumed = 0
        self._granted = 0
        self._window = INITIAL_CREDIT
        self._target = _NO_TARGET
        self._is_closed = False
        self._queue: deque[bytes] = deque()
        self._emptying: asyncio.Task[None] | None = None

    def open_chunk(self, size: int) -> None:
        """Judge a chunk by its announced size. Raises SandboxProtocolError when it is beyond credit."""
        # SECURITY: credit is what bounds the orchestrator's memory (test_channel_streams).
        if size > self._credit:
            raise SandboxProtocolError(f"the box sent {size} bytes on stream {self.stream} with credit {self._credit}")
        if self._is_closed and self.received + size > self._target:
            raise SandboxProtocolError(
                f"the box sent more on stream {self.stream} than the {self._target} bytes it said"
            )
        self._credit -= size

    def receive(self, piece: memoryview) -> None:
        """Hand a piece to the sink; what the sink has consumed is granted anew."""
        self.received += len(piece)
        if self.received >= self._target:
            self._reach_target()
        if self._emptying is None:
            self._offer(piece)
        else:
            # A copy: the slice would keep alive the whole read it came from. Bounded by credit.
            self._queue.append(bytes(piece))

    def _offer(self, piece: memoryview) -> None:
        pending: Awaitable[None] | None = None
        if self._sink is not None:
            try:
                pending = self._sink(piece)
            except _SINK_FAILURES as failure:
                self._fail(failure)
        if pending is None:
            self._consume(len(piece))
        else:
            self._emptying = asyncio.ensure_future(self._empty(pending, len(piece)))

    async def _empty(self, pending: Awaitable[None] | None, size: int) -> None:
        """Wait for the sink, then hand it what came meanwhile, piece by piece."""
        while True:
            try:
                if pending is not None:
                    await pending
                self._consume(size)
                if not self._queue:
                    break
                piece = self._queue.popleft()
                size = len(piece)
                pending = self._sink(memoryview(piece)) if self._sink is not None else None
            except _SINK_FAILURES as failure:
                self._fail(failure)
                pending = None
        self._emptying = None

    def _fail(self, failure: Exception) -> None:
        """The sink is the caller's: its trouble ends the call, not the channel."""
        self.failure = failure
        self._sink = None
        if not self.done.done():
            self.done.set_exception(failure)
            silence(self.done)

    def _consume(self, size: int) -> None:
        self._consumed += size
        fresh = self._consumed - self._granted
        if fresh >= GRANT_BYTES and not self._is_closed:
            wider = min(fresh, MAX_WINDOW - self._window)
            self._window += wider
            self._granted += fresh
            self._credit += fresh + wider
            self._grant(self.stream, fresh + wider)

    def close(self, total: int, error: str) -> None:
        """The box says that it has sent all."""
        if total != self.received or total < self._target < _NO_TARGET:
            raise SandboxProtocolError(
                f"the box closed stream {self.stream} at {total} bytes after sending {self.received}"
            )
        self.error = error
        self._is_closed = True
        self._set_done()
        self._forget(self.stream)

    def finish_at(self, total: int, *, is_closed: bool) -> None:
        """The first `total` bytes are all that is wanted, or, with `is_closed`, all that come: done when they are here.

        They may come later: an answer overtakes data.
        """
        if self._is_closed or (is_closed and self.received > total):
            if total != self.received:
                raise SandboxProtocolError(
                    f"the box says {total} bytes and ended stream {self.stream} at {self.received}"
                )
            return
        self._target, self._is_closed = total, is_closed
        if self.received >= total:
            self._reach_target()
        elif self.failure is not None:
            self._set_done()

    def _reach_target(self) -> None:
        self._set_done()
        if self._is_closed:
            self._forget(self.stream)

    def _set_done(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    @property
    def is_held(self) -> bool:
        """The sink has not consumed what it was given: the box waits for us, not we for it."""
        return self._emptying is not None

    def drain(self) -> None:
        """Nobody wants the rest."""
        self._sink = None
        self.is_drained = True
        if self._emptying is not None:
            self._emptying.cancel()
            self._emptying = None
        self._queue.clear()
        self._consume(self.received - self._consumed)

    async def finish_sink(self) -> None:
        """Wait for what the sink still has in hand. Raises what the sink raised."""
        if self._emptying is not None:
            await asyncio.shield(self._emptying)
        if self.failure is not None:
            raise self.failure


class Outbound:
    """Data to the box, as much as it has given credit for."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.sent = 0
        self._credit = INITIAL_CREDIT
        self._wake: asyncio.Future[None] | None = None
        self._failure: SandboxError | None = None

    def fail(self, failure: SandboxError) -> None:
        """The channel is gone: whoever waits for credit is told."""
        self._failure = failure
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def grant(self, size: int) -> None:
        """The box lets us send more. Raises SandboxProtocolError for credit without bounds."""
        self._credit += size
        if self._credit > MAX_CREDIT:
            raise SandboxProtocolError(f"the box gave credit of {self._credit} bytes on stream {self.stream}")
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def take(self, wanted: int) -> int:
        """Wait for credit; return how many of `wanted` bytes may be sent now."""
        while not self._credit and self._failure is None:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        if self._failure is not None:
            raise self._failure
        taken = min(wanted, self._credit)
        self._credit -= taken
        self.sent += taken
        return taken
