"""Attacks on the streams: more than credit allows, wrong directions, false totals, and slow or broken sinks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.security.hostile_box import HostileBox, open_hostile_box

from corral.errors import SandboxProtocolError, ToolError
from corral.sandbox.channel.stream import MAX_WINDOW
from corral_protocol import MAX_CHUNK_BYTES
from corral_protocol.message import INITIAL_CREDIT, FetchReply

REPLY = {"path": "/workspace/f", "size": 5, "sent": 5, "mode": 0o644}


async def start_fetch(box: HostileBox, sink: Any) -> tuple[asyncio.Task[FetchReply], int, int]:
    task = asyncio.ensure_future(box.fetch_file("f", sink))
    request = await box.hear()
    return task, request["id"], request["params"]["stream"]


async def test_honest_fetch() -> None:
    got = bytearray()
    async with open_hostile_box() as box:
        task, number, stream = await start_fetch(box, got.extend)
        await box.say(id=number, result=REPLY)  # control overtakes data
        await box.chunk(stream, b"he")
        await box.chunk(stream, b"llo")
        await box.say(method="stream.close", params={"stream": stream, "total": 5, "error": ""})
        assert await task == FetchReply("/workspace/f", 5, 5, 0o644)
        assert got == b"hello"


@pytest.mark.parametrize(
    "attack",
    [
        lambda s: [("chunk", s + 2, b"x")],  # never opened
        lambda s: [("chunk", 0, b"x")],
        lambda s: [("chunk", 2, b"x")],  # the direction of the host
        lambda s: [("close", s, 1, "")],  # a total that was not sent
        lambda s: [("chunk", s, b"x"), ("close", s, 0, "")],
        lambda s: [("close", s, 0, ""), ("chunk", s, b"x")],
        lambda s: [("close", s, 0, ""), ("close", s, 0, "")],
        lambda s: [("close", s, 0, "SystemExit")],
        lambda s: [("close", s + 2, 0, "")],
        lambda s: [("credit", s, 10)],
        lambda s: [("credit", 2, 10)],  # never opened
        lambda s: [("credit", 0, 10)],
        lambda s: [("chunk", s, bytes(MAX_CHUNK_BYTES))] * (INITIAL_CREDIT // MAX_CHUNK_BYTES) + [("chunk", s, b"x")],
    ],
)
async def test_refuses(attack: Any) -> None:
    async with open_hostile_box() as box:
        forever = asyncio.get_running_loop().create_future()
        task, _, stream = await start_fetch(box, lambda piece: forever)
        for kind, number, *rest in attack(stream):
            if kind == "chunk":
                await box.chunk(number, rest[0])
            elif kind == "close":
                await box.say(method="stream.close", params={"stream": number, "total": rest[0], "error": rest[1]})
            else:
                await box.say(method="stream.credit", params={"stream": number, "bytes": rest[0]})
        with pytest.raises(SandboxProtocolError):
            await asyncio.wait_for(task, 5)


async def test_a_slow_sink_gets_no_more_than_the_credit_and_one_piece_at_a_time() -> None:
    held: list[tuple[bytes, asyncio.Future[None]]] = []

    def sink(piece: memoryview) -> asyncio.Future[None]:
        held.append((bytes(piece), asyncio.get_running_loop().create_future()))
        return held[-1][1]

    async with open_hostile_box() as box:
        task, number, stream = await start_fetch(box, sink)
        for value in range(4):
            await box.chunk(stream, bytes([value]) * MAX_CHUNK_BYTES)
        await box.say(id=number, result=REPLY | {"sent": INITIAL_CREDIT})
        await box.say(method="stream.close", params={"stream": stream, "total": INITIAL_CREDIT, "error": ""})
        await asyncio.sleep(0.05)
        assert len(held) == 1
        got = b""
        while not task.done():
            piece, future = held.pop()
            got += piece
            future.set_result(None)
            for _ in range(3):
                await asyncio.sleep(0)
        assert got == b"".join(bytes([value]) * MAX_CHUNK_BYTES for value in range(4))


async def test_credit_comes_back_as_the_sink_consumes_and_the_window_has_an_end() -> None:
    async with open_hostile_box() as box:
        _, _, stream = await start_fetch(box, lambda piece: None)
        sent = granted = 0
        credit = INITIAL_CREDIT
        for _ in range(60):
            await box.chunk(stream, bytes(MAX_CHUNK_BYTES))
            sent += MAX_CHUNK_BYTES
            if sent % (INITIAL_CREDIT // 2) == 0:
                message = await box.hear()
                assert (message["method"], message["params"]["stream"]) == ("stream.credit", stream)
                granted += message["params"]["bytes"]
            assert (credit := INITIAL_CREDIT + granted - sent) <= MAX_WINDOW
        assert credit == MAX_WINDOW


async def test_a_broken_sink_fails_its_call_only() -> None:
    def sink(piece: memoryview) -> None:
        raise OSError("disk full")

    async with open_hostile_box() as box:
        task, number, stream = await start_fetch(box, sink)
        await box.chunk(stream, b"hello")
        cancel = await box.hear()  # at once: a command that writes for ever would never end by itself
        assert (cancel["method"], cancel["params"]) == ("exec.cancel", {"id": number})
        await box.chunk(stream, b"more!")
        await box.say(method="stream.close", params={"stream": stream, "total": 10, "error": ""})
        await box.say(id=number, error={"code": -32000, "message": "", "data": {"code": "cancelled"}})
        await box.say(id=cancel["id"], result={})
        with pytest.raises(OSError, match="disk full"):
            await task
        assert not box.channel.is_ending


async def test_a_stream_that_ends_early_is_a_failure() -> None:
    async with open_hostile_box() as box:
        task, number, stream = await start_fetch(box, lambda piece: None)
        await box.chunk(stream, b"he")
        await box.say(method="stream.close", params={"stream": stream, "total": 2, "error": "io_error"})
        await box.say(id=number, result=REPLY | {"sent": 2})
        with pytest.raises(ToolError) as caught:
            await task
        assert caught.value.code == "io_error"


async def test_more_than_the_limit_asked_for_is_refused() -> None:
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.fetch_file("f", lambda piece: None, limit=3))
        request = await box.hear()
        await box.chunk(request["params"]["stream"], b"hello")
        await box.say(id=request["id"], result=REPLY)
        await box.say(method="stream.close", params={"stream": request["params"]["stream"], "total": 5, "error": ""})
        with pytest.raises(SandboxProtocolError):
            await task


async def test_a_body_waits_for_credit_and_is_closed_once() -> None:
    size = INITIAL_CREDIT + 1000

    async def body() -> AsyncIterator[bytes]:
        yield bytes(size)

    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.store_file("f", body(), size))
        request = await box.hear()
        stream, got = request["params"]["stream"], 0
        while got < INITIAL_CREDIT:
            got += len((await box.hear())["chunk"])
        assert got == INITIAL_CREDIT
        await box.say(method="stream.credit", params={"stream": stream, "bytes": 5000})
        assert len((await box.hear())["chunk"]) == 1000
        assert (await box.hear())["params"] == {"stream": stream, "total": size, "error": ""}
        await box.say(id=request["id"], result={"path": "/workspace/f", "action": "created"})
        assert (await task).action == "created"
        await box.say(method="stream.credit", params={"stream": stream, "bytes": 5000})  # crossed our end: fine
        await asyncio.sleep(0.02)
        assert not box.channel.is_ending


async def test_refuses_credit_without_bounds() -> None:
    async def body() -> AsyncIterator[bytes]:
        await asyncio.sleep(10)
        yield b""

    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.store_file("f", body(), 1))
        stream = (await box.hear())["params"]["stream"]
        await box.say(method="stream.credit", params={"stream": stream, "bytes": 1 << 31})
        with pytest.raises(SandboxProtocolError):
            await task


async def test_a_body_that_fails_ends_the_call_with_its_own_error() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"x"
        raise OSError("cannot read")

    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.store_file("f", body(), 5))
        request = await box.hear()
        assert (await box.hear())["chunk"] == b"x"
        assert (await box.hear())["params"] == {"stream": 2, "total": 1, "error": "cancelled"}
        await box.hear()  # the cancel
        await box.say(id=request["id"], error={"code": -32000, "message": "", "data": {"code": "cancelled"}})
        with pytest.raises(OSError, match="cannot read"):
            await task


@pytest.mark.parametrize("streamed", [4, 6])
async def test_exec_output_ends_where_the_result_says(streamed: int) -> None:
    """A background process keeps the stream open: the call must not wait for its end, nor believe a false total."""
    got = bytearray()
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.exec(["x"], stdout=got.extend))
        request = await box.hear()
        stream = request["params"]["stdout"]
        await box.chunk(stream, b"four")
        capture = {"head_b64": "", "tail_b64": "", "total_bytes": streamed, "streamed_bytes": streamed}
        await box.say(id=request["id"], result={"status": "exited", "stdout": capture})
        if streamed == 4:
            assert (await task).stdout.streamed_bytes == 4
            await box.chunk(stream, b"later")  # of the background: dropped
        else:
            await box.say(method="stream.close", params={"stream": stream, "total": 4, "error": ""})
            with pytest.raises(SandboxProtocolError):
                await task
        assert got == b"four"


def ended_at(total: int) -> dict[str, object]:
    capture = {"total_bytes": total, "streamed_bytes": total, "closed": True}
    return {"status": "exited", "stdout": capture}


async def test_an_answer_that_ends_a_stream_may_overtake_its_data() -> None:
    got = bytearray()
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.exec(["x"], stdout=got.extend))
        request = await box.hear()
        stream = request["params"]["stdout"]
        await box.chunk(stream, b"fo")
        await box.say(id=request["id"], result=ended_at(4))
        await asyncio.sleep(0.02)
        assert not task.done()
        await box.chunk(stream, b"ur")
        assert (await task).stdout.closed
        assert got == b"four"
        await box.chunk(stream, b"x")  # nothing is open by that number any more
        assert isinstance(await box.channel.ended, SandboxProtocolError)


LIES_ABOUT_AN_END = {
    "more_than_it_said": (b"fo", 4, b"ur!"),
    "more_before_than_it_said": (b"four", 2, b""),
    "more_after_all_came": (b"four", 4, b"!"),
}


@pytest.mark.parametrize("name", LIES_ABOUT_AN_END)
async def test_refuses_a_false_end_of_a_stream(name: str) -> None:
    before, total, after = LIES_ABOUT_AN_END[name]
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.exec(["x"], stdout=lambda data: None))
        request = await box.hear()
        stream = request["params"]["stdout"]
        await box.chunk(stream, before)
        await box.say(id=request["id"], result=ended_at(total))
        if after:
            await box.chunk(stream, after)
        assert isinstance(await box.channel.ended, SandboxProtocolError)
        await asyncio.gather(task, return_exceptions=True)


async def test_refuses_to_end_a_stream_twice() -> None:
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.exec(["x"], stdout=lambda data: None))
        request = await box.hear()
        await box.say(id=request["id"], result=ended_at(0))
        await task
        await box.say(method="stream.close", params={"stream": request["params"]["stdout"], "total": 0, "error": ""})
        assert isinstance(await box.channel.ended, SandboxProtocolError)


async def test_the_end_of_a_stream_of_a_cancelled_call_is_taken() -> None:
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.exec(["x"], stdout=lambda data: None))
        request = await box.hear()
        task.cancel()
        await box.hear()  # the cancel
        await box.chunk(request["params"]["stdout"], b"late")
        await box.say(id=request["id"], result=ended_at(4))
        await asyncio.gather(task, return_exceptions=True)
        assert not box.channel.is_ending
