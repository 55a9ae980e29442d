"""Broken frames, and honest frames in any slicing."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.hostile_box import STDERR, open_hostile_box

from corral.errors import BoxLost, SandboxError, SandboxProtocolError
from corral.sandbox.channel import Channel
from corral.sandbox.channel.decode import FrameReader, StreamSplitter
from corral_protocol import MAX_CHUNK_BYTES, MAX_CONTROL_BYTES, encode_chunk, encode_control

BAD = {
    "empty": struct.pack(">I", 0) + b"{",
    "one_byte": struct.pack(">I", 1) + b"{",
    "control_over_the_limit": struct.pack(">I", MAX_CONTROL_BYTES + 1) + b"{",
    "four_gigabytes": b"\xff\xff\xff\xff{",
    "unknown_type": struct.pack(">I", 10) + b"\x02" + b"x" * 9,
    "array": struct.pack(">I", 2) + b"[]",
    "chunk_over_the_limit": struct.pack(">IBI", 6 + MAX_CHUNK_BYTES, 1, 1),
    "chunk_without_stream": struct.pack(">IB", 3, 1) + b"xx",
    "empty_chunk": struct.pack(">IBI", 5, 1, 1),
}


@pytest.mark.parametrize("frames", BAD.values(), ids=BAD.keys())
async def test_refuses(frames: bytes) -> None:
    async with open_hostile_box() as box:
        await box.send(frames + b"\0" * 16)
        assert isinstance(await box.end(), SandboxProtocolError)


@pytest.mark.parametrize("head", [b"\x04\0\0\0\0\0\0\1", b"\1\1\0\0\0\0\0\1", b"HTTP/1.1"])
def test_refuses_a_stream_that_is_not_multiplexed(head: bytes) -> None:
    splitter = StreamSplitter(FrameReader(lambda payload: None, lambda stream, size: lambda piece: None), list)
    with pytest.raises(SandboxProtocolError):
        splitter.feed(head + b"x")


class Recorder:
    """What comes out of the splitter, with data pieces joined per chunk."""

    def __init__(self) -> None:
        self.out: list[tuple[str, int, bytes]] = []
        self.splitter = StreamSplitter(FrameReader(self._control, self._chunk), self._stderr)

    def _control(self, payload: bytes) -> None:
        self.out.append(("control", 0, payload))

    def _chunk(self, stream: int, size: int):  # type: ignore[no-untyped-def]
        self.out.append((f"chunk of {size}", stream, b""))

        def take(piece: memoryview) -> None:
            kind, number, data = self.out[-1]
            self.out[-1] = (kind, number, data + bytes(piece))

        return take

    def _stderr(self, piece: memoryview) -> None:
        if not self.out or self.out[-1][0] != "stderr":
            self.out.append(("stderr", 0, b""))
        self.out[-1] = ("stderr", 0, self.out[-1][2] + bytes(piece))


messages = st.one_of(
    st.binary(min_size=1, max_size=50).map(lambda data: (encode_chunk(7, data), (f"chunk of {len(data)}", 7, data))),
    st.text(max_size=20).map(
        lambda text: (encode_control({"a": text}), ("control", 0, encode_control({"a": text})[4:]))
    ),
)


@given(st.lists(messages, max_size=8), st.lists(st.integers(1, 40), max_size=30), st.lists(st.integers(1, 40)))
def test_any_slicing_gives_the_same_frames(
    frames: list[tuple[bytes, tuple[str, int, bytes]]], mux_cuts: list[int], socket_cuts: list[int]
) -> None:
    multiplexed = b"".join(struct.pack(">BxxxI", 1, len(p)) + p for p in _cut(b"".join(f for f, _ in frames), mux_cuts))
    recorder = Recorder()
    for piece in _cut(multiplexed, socket_cuts):
        recorder.splitter.feed(piece)
    assert recorder.out == [expected for _, expected in frames]


def _cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [piece for piece in [*pieces, data] if piece]


@given(st.binary(max_size=300))
def test_any_bytes_end_in_frames_or_a_protocol_error(data: bytes) -> None:
    recorder = Recorder()
    try:
        recorder.splitter.feed(struct.pack(">BxxxI", 1, len(data)) + data)
    except SandboxProtocolError:
        pass
    assert sum(len(piece) for _, _, piece in recorder.out) <= len(data)


async def test_stderr_never_reaches_the_frames_and_is_bounded() -> None:
    async with open_hostile_box() as box:
        for _ in range(3):
            await box.send(encode_control({"jsonrpc": "2.0", "id": 1, "result": {}}), STDERR)
            await box.send(b"\x1b[2Jx" * 16_000, STDERR)
        await box.send(b"last words", STDERR)
        for _ in range(100):
            if box.channel.crash_log.endswith("last words"):
                break
            await asyncio.sleep(0.01)
        assert box.channel.crash_log.endswith("last words")
        assert not box.channel.is_ending
        assert "\x1b" not in box.channel.crash_log
        assert len(box.channel._crash_log) <= 64 << 10


async def test_the_channel_takes_a_transport_of_another_event_loop() -> None:
    """uvloop's are none of asyncio's classes; a channel that refused one would wait for its hello in vain."""

    class Foreign(asyncio.BaseTransport):
        def __init__(self) -> None:
            super().__init__()
            self.written = b""

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            assert high

        def write(self, data: bytes) -> None:
            self.written += data

        def abort(self) -> None:
            pass

    async def diagnose() -> SandboxError:
        return BoxLost("gone")

    channel, transport = Channel(diagnose), Foreign()
    channel.connection_made(transport)
    channel.write(b"frame")
    assert transport.written == b"frame"
    channel.end(BoxLost("over"))
    assert isinstance(await channel.ended, BoxLost)
