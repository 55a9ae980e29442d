"""One call over a channel, from request to last streamed byte: waiting, limits, bodies, cancelling."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from corral.errors import BoxLost, CorralError, ToolError
from corral.sandbox.base import ExecHandle, Hold, Sink
from corral.sandbox.channel.rpc import Channel, Request
from corral.sandbox.channel.stream import Inbound, Outbound
from corral.sandbox.channel.wire import Empty
from corral_protocol import MAX_CHUNK_BYTES
from corral_protocol.error import ErrorCode
from corral_protocol.message import Cancel, Go, Method, Pong, StreamClose

HEARTBEAT_S = 15.0
PONG_LIMIT_S = 30.0
STREAM_IDLE_S = 30.0
"""An answered call waits so long for the next byte of its streams."""
CANCEL_LIMIT_S = 2.0

T = TypeVar("T")


async def run_call(
    channel: Channel,
    method: Method,
    params: object,
    kind: type[T],
    *,
    sinks: Mapping[str, Sink] | None = None,
    body: tuple[str, AsyncIterator[bytes]] | None = None,
    limit_s: float | None = None,
    hold: Hold | None = None,
    handle: ExecHandle | None = None,
) -> T:
    """Ask the box; wait for its answer and for all that streams with it.

    `sinks` and `body` name the fields of `params` that hold stream ids. `hold`, of an exec that is sent with it: the
    box prepares it meanwhile, and starts it when that has ended well. Raises ToolError when the box refuses or
    `limit_s` is over, BoxLost or SandboxProtocolError when the channel ends, and what a sink or the body raises.
    """
    if channel.is_ending:
        raise copy.copy(await asyncio.shield(channel.ended))
    request = channel.send_request(method, params, kind, sinks or {}, body[0] if body else "")
    if handle is not None:
        handle.bind(request.id, channel.notify)
    pump = channel.spawn(_send_body(channel, request.outbound, body[1])) if body and request.outbound else None
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            result: T = await _wait_answer(channel, request, pump, hold)
            for stream in request.inbound:
                await _finish_stream(stream, method)
            return result
    except TimeoutError:
        if not limit.expired():
            raise
        raise ToolError(f"no answer to {method.value!r} within {limit_s} s", code=ErrorCode.TIMEOUT) from None
    finally:
        if handle is not None:
            handle.bind(request.id, None)
        channel.release(request)
        if pump is not None:
            pump.cancel()


async def _wait_answer(channel: Channel, request: Request, pump: asyncio.Task[None] | None, hold: Hold | None) -> Any:
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(settled: asyncio.Future[Any]) -> None:
        if turn.done() or settled.cancelled():
            return
        if settled is request.answer:
            turn.set_result(None)
        elif (failure := settled.exception()) is not None:
            turn.set_exception(failure)  # a sink or a body that fails ends the call with its own error

    request.answer.add_done_callback(wake)
    for stream in request.inbound:
        stream.done.add_done_callback(wake)
    if pump is not None:
        pump.add_done_callback(wake)
    try:
        if hold is not None:
            await hold()
            channel.notify(Method.GO, Go(request.id))
        await turn
        return request.answer.result()
    except BaseException:
        if not request.answer.done() and not channel.is_ending:
            channel.spawn(_cancel(channel, request.id))
            # Brief: the box sees to it by itself that the command dies.
            await asyncio.wait((request.answer,), timeout=CANCEL_LIMIT_S)
        raise


async def _cancel(channel: Channel, number: int) -> None:
    """Kill the command, or stop the file operation, of a call that nobody waits for."""
    with contextlib.suppress(CorralError):
        await run_call(channel, Method.CANCEL, Cancel(number), Empty, limit_s=PONG_LIMIT_S)


async def _finish_stream(stream: Inbound, method: Method) -> None:
    while not stream.done.done():
        before = stream.received
        await asyncio.wait((stream.done,), timeout=STREAM_IDLE_S)
        if not stream.done.done() and stream.received == before and not stream.is_held:
            raise ToolError(f"the box answered {method.value!r} and left its stream open", code=ErrorCode.TIMEOUT)
    stream.done.result()
    await stream.finish_sink()
    if stream.error and method is not Method.EXEC:  # an exec says in its own result how it ended
        raise ToolError(f"the stream of {method.value!r} ended early: {stream.error}", code=stream.error)


async def _send_body(channel: Channel, stream: Outbound, body: AsyncIterator[bytes]) -> None:
    """Send a body as fast as the box gives credit and the socket takes it; then say that it is complete."""
    error = ErrorCode.CANCELLED.value
    try:
        async for data in body:
            view = memoryview(data)
            while view:
                taken = await stream.take(min(len(view), MAX_CHUNK_BYTES))
                await channel.write_data(stream.stream, view[:taken])
                view = view[taken:]
        error = ""
    finally:
        channel.notify(Method.CLOSE, StreamClose(stream.stream, stream.sent, error))


async def keep_alive(channel: Channel) -> None:
    """Renew the box's lease until the channel ends, and end it when the box is silent."""
    while not channel.is_ending:
        await asyncio.sleep(HEARTBEAT_S)
        try:
            await run_call(channel, Method.PING, None, Pong, limit_s=PONG_LIMIT_S)
        except ToolError as error:
            channel.end(BoxLost("the box does not answer", hint=error.message))
