"""Too much, too little at a time, and text that is more than it seems: the box ends, the orchestrator goes on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from tests.security.hostile_box import STDERR, HostileBox, open_hostile_box

from corral.errors import BoxLost, SandboxProtocolError, ToolError
from corral_protocol import MAX_CHUNK_BYTES, encode_chunk, encode_control
from corral_protocol.message import Method, Pong

LOG = encode_control({"jsonrpc": "2.0", "method": "log", "params": {"text": "x"}})


@pytest.fixture
async def box() -> AsyncIterator[HostileBox]:
    async with open_hostile_box() as opened:
        yield opened


async def flood(box: HostileBox, data: bytes, kind: int = 1, limit_s: float = 20.0) -> BaseException:
    """Send the same again and again until the channel ends; the longest the loop was not free is told by `beat`."""
    deadline = time.monotonic() + limit_s
    while not box.channel.is_ending and time.monotonic() < deadline:
        try:
            await box.send(data, kind)
        except (BrokenPipeError, ConnectionResetError):
            break
    return await box.end()


async def test_a_flood_of_messages_ends_the_box_and_disturbs_no_neighbour(box: HostileBox) -> None:
    async with open_hostile_box() as good:
        flooding = asyncio.ensure_future(flood(box, LOG * 500))
        longest = 0.0
        while not flooding.done():
            begun = time.monotonic()
            call = asyncio.ensure_future(good._ask(Method.PING, None, Pong))
            await good.say(id=(await good.hear())["id"], result={"uptime_s": 1.0})
            assert await call == Pong(1.0)
            longest = max(longest, time.monotonic() - begun)
        error = await flooding
    assert isinstance(error, SandboxProtocolError)
    assert "floods the channel" in str(error)
    assert longest < 2.0


async def test_a_flood_of_crumbs_ends_the_box(box: HostileBox) -> None:
    """Data of one byte a frame, as much as the credit for a stream allows, and the credit comes back."""
    fetch = asyncio.ensure_future(box.fetch_file("big", lambda piece: None))
    stream = (await box.hear())["params"]["stream"]
    error = await flood(box, encode_chunk(stream, b"x") * 5000)
    assert "floods the channel" in str(error)
    with pytest.raises(SandboxProtocolError):
        await fetch


async def test_a_flood_of_last_words_ends_the_box(box: HostileBox) -> None:
    error = await flood(box, b"x" * 65_536, STDERR)
    assert "floods the channel" in str(error)
    assert len(box.channel.crash_log) <= 64 << 10


async def test_large_output_at_full_speed_is_no_flood(box: HostileBox) -> None:
    """The control: what an honest toolbox sends, as fast as this machine can."""
    taken = 0

    def sink(piece: memoryview) -> None:
        nonlocal taken
        taken += len(piece)

    total = 128 << 20
    fetch = asyncio.ensure_future(box.fetch_file("big", sink))
    request = await box.hear()
    stream, credit = request["params"]["stream"], 256 << 10
    sent, block = 0, b"x" * MAX_CHUNK_BYTES
    while sent < total:
        if credit < len(block):
            credit += (await box.hear())["params"]["bytes"]
            continue
        await box.chunk(stream, block)
        sent += len(block)
        credit -= len(block)
    await box.say(method="stream.close", params={"stream": stream, "total": sent, "error": ""})
    await box.say(id=request["id"], result={"path": "/workspace/big", "size": sent, "sent": sent, "mode": 0})
    assert (await fetch).sent == taken == total
    assert not box.channel.is_ending


async def test_many_small_calls_are_no_flood(box: HostileBox) -> None:
    for _ in range(3000):
        call = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
        await box.say(id=(await box.hear())["id"], result={"uptime_s": 1.0})
        await call
    assert not box.channel.is_ending


@pytest.mark.parametrize("what", ["frame", "multiplexed header", "data chunk"])
async def test_a_frame_that_drips_ends_the_box(box: HostileBox, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte by byte, never to its end: no call waits for ever, since the heartbeat goes unanswered."""
    from corral.sandbox.channel import call, keep_alive

    monkeypatch.setattr(call, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(call, "PONG_LIMIT_S", 0.3)
    waiting = asyncio.ensure_future(box.fetch_file("big", lambda piece: None))
    stream = (await box.hear())["params"]["stream"]
    heart = asyncio.ensure_future(keep_alive(box.channel))
    data = {
        "frame": (1000).to_bytes(4, "big") + b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 900,
        "data chunk": encode_chunk(stream, bytes(1000)),
        "multiplexed header": b"",
    }[what]
    try:
        for byte in data or b"\1\0\0\0":
            if box.channel.is_ending:
                break
            if data:
                await box.send(bytes((byte,)))
            else:
                await asyncio.get_running_loop().sock_sendall(box._peer, bytes((byte,)))
            await asyncio.sleep(0.02)
        error = await box.end()
    except (BrokenPipeError, ConnectionResetError):
        error = await box.end()
    assert isinstance(error, BoxLost)
    assert "does not answer" in error.message
    with pytest.raises(BoxLost):
        await waiting
    heart.cancel()


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\u202e", "\x85", "\ufeff", "\U000e0041", "\x1b]0;x\x07"])
async def test_text_that_breaks_lines_or_acts_on_a_terminal_stays_one_line(box: HostileBox, odd: str) -> None:
    """Legal in JSON, and a new line to some readers of the record, or an order to a terminal."""
    call = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
    number = (await box.hear())["id"]
    error = {"code": -32000, "message": f"a{odd}b", "data": {"code": "busy", "details": {f"k{odd}": odd}}}
    payload = json.dumps({"jsonrpc": "2.0", "id": number, "error": error}, ensure_ascii=False)
    await box.send_payload(payload.encode())
    with pytest.raises(ToolError) as caught:
        await call
    assert odd not in caught.value.message
    assert caught.value.message.isprintable()
    assert not box.channel.is_ending
