"""The asyncio end of the channel: requests by id, streams by id, one reader that is never blocked by either.

    socket -> StreamSplitter -> FrameReader -> _on_control / _open_chunk -> futures and sinks

Everything that arrives is judged before it is used. A frame that breaks a rule ends the channel with
SandboxProtocolError; the end of the stream ends it with what `diagnose` finds out.
"""

from __future__ import annotations

import asyncio
import copy
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast

from corral.errors import BoxLost, SandboxError, SandboxProtocolError, ToolError
from corral.sandbox.base import CALL, Observe, Sink
from corral.sandbox.channel.decode import FrameReader, Piece, StreamSplitter
from corral.sandbox.channel.stream import Inbound, Outbound, silence
from corral.sandbox.channel.tunnel import Tunnel
from corral.sandbox.channel.wire import (
    ERROR_CODES,
    decode_message,
    encode_params,
    parse_error,
    parse_params,
    parse_result,
)
from corral.sandbox.reach.stream import TlsStream
from corral.schema.visible import visible
from corral_protocol import encode_chunk, encode_control
from corral_protocol.error import ErrorCode
from corral_protocol.message import (
    FIRST_OPENED_STREAM,
    MAX_EVENTS,
    Credit,
    LogLine,
    Method,
    ProcessEvents,
    StreamClose,
    StreamOpen,
    StreamReset,
)

CRASH_LOG_BYTES = 64 << 10
MAX_DRAINED = 8192
"""Streams whose call is over and that a process in the background still holds open; older ones are forgotten."""
_WRITE_HIGH_BYTES = 128 << 10
"""Above so much unsent data no more is taken: what a control message has to wait behind."""
_BUDGET, _BUDGET_S = 100_000, 1.0
"""Pieces of data that a box may send in a second; a message counts as five, a kilobyte of crash log as one.

An honest toolbox, which sends what lies ready in one piece, stays below a tenth of it.
"""
_MESSAGE_COST = 5

Diagnose = Callable[[], Awaitable[SandboxError]]


@dataclass(frozen=True)
class Request:
    """A request on its way to the box, with the streams that belong to it."""

    id: int
    method: Method
    kind: type
    answer: asyncio.Future[Any]
    inbound: tuple[Inbound, ...] = ()
    names: tuple[str, ...] = ()
    """Of the parameters that hold the ids of `inbound`."""
    outbound: Outbound | None = None


_MAX_SIGNAL = 64


@dataclass
class _Exec:
    """What is kept of an exec for as long as the box lives: its processes may outlive its answer."""

    call: str
    events: int = 0
    ends: int = 0
    dropped: int = 0


class Channel(asyncio.Protocol):
    """One attached box. Made by open_channel(); ends once, for one reason, for good."""

    def __init__(self, diagnose: Diagnose, observe: Observe | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[SandboxError] = self._loop.create_future()
        """Done when everything that waited has been told: why the channel ended."""
        self.is_ending = False
        self.writable = asyncio.Event()
        self.writable.set()
        self._diagnose = diagnose
        self._observe = observe
        self._execs: dict[int, _Exec] = {}
        self._splitter = StreamSplitter(FrameReader(self._on_control, self._open_chunk), self._on_stderr)
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._requests: dict[int, Request] = {}
        self._inbound: dict[int, Inbound] = {}
        self._outbound: dict[int, Outbound] = {}
        self._next_request = 1
        self._next_inbound = 1
        self._next_outbound = 2
        self._crash_log = bytearray()
        self._spent = 0
        self._spent_since = self._loop.time()
        self._data_turn = asyncio.Lock()
        self.tunnel = Tunnel(self)

    @property
    def crash_log(self) -> str:
        """The last lines of the toolbox's stderr and log messages, fit to be shown."""
        return visible(bytes(self._crash_log), keep="\n\t")

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something for as long as the channel lives."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asked for its class: other event loops have transports of their own.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.is_ending:
            return
        try:
            self._splitter.feed(data)
            if self._spent > _BUDGET:
                self._check_pace()
        except SandboxProtocolError as error:
            self.end(error)

    def _check_pace(self) -> None:
        # SECURITY: messages that mean nothing would cost the orchestrator all its time (test_channel_floods).
        now = self._loop.time()
        if now - self._spent_since < _BUDGET_S:
            raise SandboxProtocolError("the box floods the channel with more messages than anything could mean")
        self._spent, self._spent_since = 0, now

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.end(None)

    # Sending

    def write(self, frame: bytes) -> None:
        if self._transport is not None and not self.is_ending:
            self._transport.write(frame)

    async def write_data(self, stream: int, data: memoryview | bytes) -> None:
        """Send one data chunk, in turn with every other stream, once the socket has room for it."""
        async with self._data_turn:
            await self.writable.wait()
            self.write(encode_chunk(stream, data))

    def notify(self, method: Method, params: object) -> None:
        """`params` is the wire dataclass of this method."""
        self.write(encode_control({"jsonrpc": "2.0", "method": method.value, "params": encode_params(params)}))

    def send_request(
        self, method: Method, params: Any, kind: type, sinks: Mapping[str, Sink], body_field: str
    ) -> Request:
        """Send a request. `sinks` and `body_field` name the params that hold stream ids; they are filled in here."""
        wire = encode_params(params) if params is not None else {}
        inbound: list[Inbound] = []
        for position, (name, sink) in enumerate(sinks.items()):
            inbound.append(Inbound(self._next_inbound + 2 * position, sink, self._grant, self._forget_stream))
            wire[name] = inbound[-1].stream
        outbound = Outbound(self._next_outbound) if body_field else None
        if outbound is not None:
            wire[body_field] = outbound.stream
        number = self._next_request
        try:
            frame = encode_control({"jsonrpc": "2.0", "id": number, "method": method.value, "params": wire})
        except ValueError as error:
            raise ToolError(str(error), code=ErrorCode.TOO_LARGE) from None
        request = Request(number, method, kind, self._loop.create_future(), tuple(inbound), tuple(sinks), outbound)
        self._register(request)
        self.write(frame)
        return request

    def _register(self, request: Request) -> None:
        self._next_request += 1
        self._requests[request.id] = request
        if request.method is Method.EXEC:
            self._execs[request.id] = _Exec(CALL.get())
        for stream in request.inbound:
            self._next_inbound += 2
            self._inbound[stream.stream] = stream
        if request.outbound is not None:
            self._next_outbound += 2
            self._outbound[request.outbound.stream] = request.outbound

    def release(self, request: Request) -> None:
        """Nobody waits for this request any more. What the box still sends for it is taken and dropped."""
        silence(request.answer)
        if request.outbound is not None:
            self._outbound.pop(request.outbound.stream, None)
        for stream in request.inbound:
            stream.drain()
        if len(self._inbound) > MAX_DRAINED:
            forgotten = [number for number, stream in self._inbound.items() if stream.is_drained]
            for number in forgotten[: len(self._inbound) - MAX_DRAINED]:
                del self._inbound[number]

    def _forget_stream(self, stream: int) -> None:
        self._inbound.pop(stream, None)  # one that nobody waits for may be forgotten already

    def _grant(self, stream: int, size: int) -> None:
        self.notify(Method.CREDIT, Credit(stream, size))

    # Receiving: every raise in here ends the box

    def _on_stderr(self, piece: memoryview) -> None:
        self._spent += 1 + (len(piece) >> 10)
        self._crash_log += piece[-CRASH_LOG_BYTES:]
        if len(self._crash_log) > CRASH_LOG_BYTES:
            del self._crash_log[:-CRASH_LOG_BYTES]

    def _open_chunk(self, number: int, size: int) -> Piece:
        self._spent += 1
        if number >= FIRST_OPENED_STREAM:
            return self.tunnel.open_chunk(number, size)
        stream = self._inbound.get(number)
        if stream is None:
            raise SandboxProtocolError(f"the box sent data on stream {number}, which is not open")
        stream.open_chunk(size)
        return stream.receive

    def _on_control(self, payload: bytes) -> None:
        self._spent += _MESSAGE_COST
        message = decode_message(payload)
        if message.get("jsonrpc") != "2.0":
            raise SandboxProtocolError("the box sent a message that is no JSON-RPC 2.0")
        if "method" in message:
            self._on_notification(message, payload)
        else:
            self._on_response(message, payload)

    def _on_response(self, message: dict[str, object], payload: bytes) -> None:
        number = message.get("id")
        # SECURITY: the id is matched by type too: True == 1 in a dict (test_channel_replies).
        request = self._requests.get(number) if type(number) is int else None
        if request is None:
            raise SandboxProtocolError("the box answered a request that is not open")
        if message.keys() == {"jsonrpc", "id", "error"}:
            failure = parse_error(message["error"])
            if not request.answer.done():
                request.answer.set_exception(failure)
        elif message.keys() == {"jsonrpc", "id", "result"}:
            result: object = parse_result(payload, request.kind)
            if request.method is Method.EXEC:
                # Processes in the background may keep a stream open: the result says where the call's own part ends.
                for name, stream in zip(request.names, request.inbound, strict=True):
                    capture = getattr(result, name)
                    stream.finish_at(capture.streamed_bytes, is_closed=capture.closed)
            if not request.answer.done():
                request.answer.set_result(result)
        else:
            raise SandboxProtocolError("the box sent a message that is neither result nor error")
        del self._requests[request.id]  # last: who waits for a refused answer is told by the channel's end

    def _on_notification(self, message: dict[str, object], payload: bytes) -> None:
        method = message["method"]
        if method == Method.CREDIT:
            self._on_credit(parse_params(payload, Credit))
        elif method == Method.CLOSE:
            self._on_close(parse_params(payload, StreamClose))
        elif method == Method.EVENTS:
            self._on_events(parse_params(payload, ProcessEvents))
        elif method == Method.OPEN:
            self.tunnel.on_open(parse_params(payload, StreamOpen))
        elif method == Method.RESET:
            self.tunnel.on_reset(parse_params(payload, StreamReset))
        elif method == Method.LOG:
            self._on_stderr(memoryview(parse_params(payload, LogLine).text.encode() + b"\n"))
        else:
            raise SandboxProtocolError("the box sent a request or notification that only the host may send")

    def _on_credit(self, credit: Credit) -> None:
        if credit.stream >= FIRST_OPENED_STREAM:
            self.tunnel.on_credit(credit)
            return
        if credit.stream % 2 or not 0 < credit.stream < self._next_outbound or not credit.bytes:
            raise SandboxProtocolError(f"the box gave credit on stream {credit.stream}, which is not one to it")
        stream = self._outbound.get(credit.stream)
        if stream is not None:  # else it crossed our end of the stream
            stream.grant(credit.bytes)

    def _on_close(self, close: StreamClose) -> None:
        if close.stream >= FIRST_OPENED_STREAM:
            self.tunnel.on_close(close)
            return
        stream = self._inbound.get(close.stream)
        if stream is None:
            raise SandboxProtocolError(f"the box closed stream {close.stream}, which is not open")
        if close.error and close.error not in ERROR_CODES:
            raise SandboxProtocolError("the box closed a stream with an unknown error code")
        stream.close(close.total, close.error)

    def _on_events(self, told: ProcessEvents) -> None:
        known = self._execs.get(told.id)
        if known is None:
            raise SandboxProtocolError(f"the box told of processes of {told.id}, which is no command")
        known.events += len(told.events)
        known.ends += len(told.ends)
        # SECURITY: or a box fills the host's memory and disk with them (test_channel_replies).
        if max(known.events, known.ends) > MAX_EVENTS or told.dropped < known.dropped:
            raise SandboxProtocolError(
                f"the box told of {known.events} starts and {known.ends} ends of one command, {told.dropped} dropped"
            )
        if any(event.port > 0xFFFF for event in told.events):
            raise SandboxProtocolError("the box told of a port that is none")
        if any((end.exit_code or 0) > 0xFF or end.signal > _MAX_SIGNAL for end in told.ends):
            raise SandboxProtocolError("the box told of an end that there is not")
        known.dropped = told.dropped
        if self._observe is not None:
            self._observe(known.call, told)

    # The end

    def end(self, error: SandboxError | None) -> None:
        """End the channel, for `error` or, if None, for what diagnose() finds. Only the first call counts."""
        if self.is_ending:
            return
        self.is_ending = True
        if self._transport is not None:
            self._transport.abort()
        if error is not None:
            self._finish(error)
        else:
            self.spawn(self._find_cause())

    async def _find_cause(self) -> None:
        error: SandboxError = BoxLost("the box is gone")
        try:
            error = await self._diagnose()
        finally:
            self._finish(error)

    def _finish(self, error: SandboxError) -> None:
        self.ended.set_result(error)
        waiting: list[asyncio.Future[Any]] = [request.answer for request in self._requests.values()]
        waiting += [stream.done for stream in self._inbound.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(copy.copy(error))
                silence(future)
        for outbound in self._outbound.values():
            outbound.fail(copy.copy(error))
        self.tunnel.end()
        self.writable.set()
        self._requests.clear()
        self._inbound.clear()
        self._outbound.clear()
        for task in self._tasks - {asyncio.current_task(self._loop)}:
            task.cancel()


async def open_channel(
    attached: socket.socket | TlsStream, diagnose: Diagnose, observe: Observe | None = None
) -> Channel:
    """Take over the attached, connected stream of a container."""
    if isinstance(attached, TlsStream):
        channel = Channel(diagnose, observe)
        attached.hand_over(channel)
        return channel
    attached.setblocking(False)
    _, channel = await asyncio.get_running_loop().create_connection(lambda: Channel(diagnose, observe), sock=attached)
    return channel
