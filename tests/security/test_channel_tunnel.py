"""Attacks on the tunnel's streams: numbers that were not given, more than credit allows, false totals, floods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.security.hostile_box import HostileBox, open_hostile_box

from corral.errors import SandboxError, SandboxProtocolError, ToolError
from corral.sandbox.channel.port import dial, open_tunnel
from corral.sandbox.channel.tunnel import BoxStream
from corral_protocol import MAX_CHUNK_BYTES
from corral_protocol.message import FIRST_DIALED_STREAM, FIRST_OPENED_STREAM, INITIAL_CREDIT

FIRST = FIRST_OPENED_STREAM
FULL = INITIAL_CREDIT // MAX_CHUNK_BYTES


async def enable(box: HostileBox, most: int = 4) -> list[BoxStream]:
    """An open tunnel; the streams that were handed to be served."""
    streams: list[BoxStream] = []
    task = asyncio.ensure_future(open_tunnel(box.channel, streams.append, most))
    request = await box.hear()
    assert request["params"] == {"listeners": 2, "max_streams": most}
    await box.say(id=request["id"], result={"ports": [3128, 1080]})
    variables = await task
    assert variables["https_proxy"] == "http://127.0.0.1:3128"
    assert variables["CORRAL_SOCKS_PROXY"] == "socks5h://127.0.0.1:1080"
    return streams


async def open_stream(box: HostileBox, streams: list[BoxStream], number: int = FIRST) -> BoxStream:
    await box.say(method="stream.open", params={"stream": number, "listener": 0})
    while not streams or streams[-1].number != number:
        await asyncio.sleep(0)
    return streams[-1]


async def catch_up(box: HostileBox) -> None:
    """Until the host has taken in all that was said; it has nothing against it."""
    before = box.channel.crash_log.count("so far")
    await box.say(method="log", params={"text": "so far"})
    while box.channel.crash_log.count("so far") == before:
        assert not box.channel.is_ending
        await asyncio.sleep(0)


async def play(box: HostileBox, steps: list[tuple[Any, ...]]) -> None:
    for kind, number, *rest in steps:
        if kind == "open":
            await box.say(method="stream.open", params={"stream": number, "listener": rest[0]})
        elif kind == "chunk":
            await box.chunk(number, rest[0])
        elif kind == "credit":
            await box.say(method="stream.credit", params={"stream": number, "bytes": rest[0]})
        elif kind == "reset":
            await box.say(method="stream.reset", params={"stream": number})
        else:
            await box.say(method="stream.close", params={"stream": number, "total": rest[0], "error": rest[1]})


@pytest.mark.parametrize(
    "steps",
    [
        [("open", FIRST, 0)],  # again
        [("open", FIRST + 2, 0)],  # one left out
        [("open", 1, 0)],
        [("open", FIRST_DIALED_STREAM, 0)],
        [("open", FIRST + 1, 2)],  # no such port
        [("chunk", FIRST + 1, b"x")],
        [("chunk", FIRST_DIALED_STREAM, b"x")],
        [("chunk", FIRST, bytes(MAX_CHUNK_BYTES))] * FULL + [("chunk", FIRST, b"x")],
        [("close", FIRST, 1, "")],
        [("close", FIRST, 0, "io_error")],
        [("close", FIRST, 0, ""), ("close", FIRST, 0, "")],
        [("close", FIRST, 0, ""), ("chunk", FIRST, b"x")],
        [("close", FIRST + 1, 0, "")],
        [("credit", FIRST, 0)],
        [("credit", FIRST, 1 << 31)],
        [("credit", FIRST + 1, 1)],
        [("reset", FIRST + 1)],
        [("reset", FIRST_DIALED_STREAM)],
        [("open", FIRST + number, 0) for number in range(1, 5)],  # five at once, where four may be
    ],
)
async def test_refuses(steps: list[tuple[Any, ...]]) -> None:
    async with open_hostile_box() as box:
        await open_stream(box, await enable(box))
        await play(box, steps)
        assert isinstance(await box.end(), SandboxProtocolError)


async def test_a_box_without_a_tunnel_may_open_nothing() -> None:
    async with open_hostile_box() as box:
        await box.say(method="stream.open", params={"stream": FIRST, "listener": 0})
        assert isinstance(await box.end(), SandboxProtocolError)


@pytest.mark.parametrize("ports", [[], [1], [1, 0], [1, 65536], [1, 2, 3]])
async def test_ports_that_are_none(ports: list[int]) -> None:
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(open_tunnel(box.channel, lambda stream: None, 4))
        await box.say(id=(await box.hear())["id"], result={"ports": ports})
        with pytest.raises(SandboxProtocolError):
            await task


async def test_honest_stream() -> None:
    async with open_hostile_box() as box:
        stream = await open_stream(box, await enable(box))
        await play(box, [("chunk", FIRST, b"he"), ("chunk", FIRST, b"llo"), ("close", FIRST, 5, "")])
        got = b""
        while piece := await stream.read():
            got += piece
        assert (got, stream.received) == (b"hello", 5)
        await stream.write(b"answer")
        stream.close()
        assert await box.hear() == {"chunk": b"answer"}
        assert (await box.hear())["params"] == {"stream": FIRST, "total": 6, "error": ""}
        # It is over: a late word about it is no crime, but no data may come.
        await play(box, [("credit", FIRST, 1), ("reset", FIRST), ("chunk", FIRST, b"x")])
        assert isinstance(await box.end(), SandboxProtocolError)


async def test_what_is_not_read_is_not_granted() -> None:
    """A server that does not keep up slows its own client only, and costs one window."""
    async with open_hostile_box() as box:
        stream = await open_stream(box, await enable(box))
        await play(box, [("chunk", FIRST, bytes(MAX_CHUNK_BYTES))] * FULL)
        await catch_up(box)
        got = 0
        while got < INITIAL_CREDIT:
            got += len(await stream.read())
        assert (await box.hear())["method"] == "stream.credit"


async def test_single_bytes_cost_what_they_are() -> None:
    """Pieces are put together: a window of single bytes is no million of objects."""
    async with open_hostile_box() as box:
        stream = await open_stream(box, await enable(box))
        for _ in range(2000):
            await box.chunk(FIRST, b"x")
        await play(box, [("close", FIRST, 2000, "")])
        pieces = 0
        while await stream.read():
            pieces += 1
        assert pieces < 10


async def test_we_send_no_more_than_credit() -> None:
    async with open_hostile_box() as box:
        stream = await open_stream(box, await enable(box))
        task = asyncio.ensure_future(stream.write(bytes(INITIAL_CREDIT + 5)))
        got = 0
        while got < INITIAL_CREDIT:
            got += len((await box.hear())["chunk"])
        assert (got, task.done()) == (INITIAL_CREDIT, False)
        await play(box, [("credit", FIRST, 3)])
        assert await box.hear() == {"chunk": bytes(3)}
        await play(box, [("reset", FIRST)])
        with pytest.raises(ConnectionResetError):
            await task


async def test_giving_up_is_told_and_late_data_is_dropped() -> None:
    async with open_hostile_box() as box:
        stream = await open_stream(box, await enable(box))
        stream.abort()
        stream.abort()
        assert (await box.hear())["method"] == "stream.reset"
        assert (await box.hear())["params"] == {"stream": FIRST, "total": 0, "error": "cancelled"}
        await play(box, [("chunk", FIRST, b"late"), ("close", FIRST, 4, "cancelled"), ("reset", FIRST)])
        await play(box, [("open", FIRST + 1, 0)])
        await catch_up(box)


async def test_the_end_of_the_box_is_told_to_who_reads_and_writes() -> None:
    async with open_hostile_box() as box:
        stream = await open_stream(box, await enable(box))
        reading = asyncio.ensure_future(stream.read())
        writing = asyncio.ensure_future(stream.write(bytes(INITIAL_CREDIT + 1)))
        await asyncio.sleep(0.05)
        box.hang_up()
        for task in (reading, writing):
            with pytest.raises(ConnectionResetError):
                await task


async def test_a_refused_dial_leaves_no_stream() -> None:
    async with open_hostile_box() as box:
        await enable(box, most=1)
        for _ in range(3):
            task = asyncio.ensure_future(dial(box.channel, 8000))
            request = await box.hear()
            error = {"code": -32000, "message": "nobody", "data": {"code": "io_error", "details": {}}}
            await box.say(id=request["id"], error=error)
            with pytest.raises(ToolError, match="nobody"):
                await task
        task = asyncio.ensure_future(dial(box.channel, 8000))
        request = await box.hear()
        assert request["params"] == {"stream": FIRST_DIALED_STREAM + 3, "port": 8000}
        await box.say(id=request["id"], result={})
        stream = await task
        await box.chunk(stream.number, b"hi")
        assert await stream.read() == b"hi"
        with pytest.raises(ToolError, match="1 streams are open"):
            await dial(box.channel, 8000)


async def test_a_dial_that_nobody_waits_for_is_closed_when_the_box_has_opened_it() -> None:
    """A server that speaks first: what it says on a stream we have given up is no crime of the box."""
    async with open_hostile_box() as box:
        await enable(box, most=1)
        task = asyncio.ensure_future(dial(box.channel, 8000))
        request = await box.hear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await box.say(id=request["id"], result={})
        await box.chunk(FIRST_DIALED_STREAM, b"220 ready")
        assert (await box.hear())["method"] == "stream.reset"
        assert (await box.hear())["params"] == {"stream": FIRST_DIALED_STREAM, "total": 0, "error": "cancelled"}
        await play(box, [("close", FIRST_DIALED_STREAM, 9, "cancelled")])
        await catch_up(box)
        task = asyncio.ensure_future(dial(box.channel, 8000))
        assert (await box.hear())["params"] == {"stream": FIRST_DIALED_STREAM + 1, "port": 8000}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_dial_that_nobody_waits_for_and_the_box_refuses_leaves_no_stream() -> None:
    async with open_hostile_box() as box:
        await enable(box, most=1)
        for number in range(3):
            task = asyncio.ensure_future(dial(box.channel, 8000))
            request = await box.hear()
            assert request["params"] == {"stream": FIRST_DIALED_STREAM + number, "port": 8000}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            error = {"code": -32000, "message": "nobody", "data": {"code": "io_error", "details": {}}}
            await box.say(id=request["id"], error=error)
            await catch_up(box)


async def test_the_end_of_the_box_is_told_to_who_dials() -> None:
    async with open_hostile_box() as box:
        await enable(box)
        task = asyncio.ensure_future(dial(box.channel, 8000))
        await box.hear()
        box.hang_up()
        with pytest.raises(SandboxError):
            await task
        with pytest.raises(SandboxError):
            await dial(box.channel, 8000)


async def test_a_full_house_while_we_dial_is_no_crime() -> None:
    """The box cannot know yet that one of its places is taken."""
    async with open_hostile_box() as box:
        streams = await enable(box, most=2)
        task = asyncio.ensure_future(dial(box.channel, 8000))
        await box.hear()
        await open_stream(box, streams)
        await open_stream(box, streams, FIRST + 1)
        assert not box.channel.is_ending
        await play(box, [("open", FIRST + 2, 0)])
        assert isinstance(await box.end(), SandboxProtocolError)
        await asyncio.gather(task, return_exceptions=True)
