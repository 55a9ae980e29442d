"""Head and tail of an output, and the order of the queue to the host."""

from __future__ import annotations

import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral_protocol.framing import FrameDecoder, encode_chunk, encode_control
from corral_toolbox.channel.outbox import HostGone, Outbox
from corral_toolbox.channel.stream import Capture


@given(
    parts=st.lists(st.binary(max_size=50), max_size=20),
    head_bytes=st.integers(0, 60),
    tail_bytes=st.integers(0, 60),
)
def test_capture_keeps_exactly_head_and_tail(parts: list[bytes], head_bytes: int, tail_bytes: int) -> None:
    capture = Capture(head_bytes, tail_bytes)
    for part in parts:
        capture.add(part)
    whole = b"".join(parts)
    rest = whole[head_bytes:]
    assert capture.report(7, True) == {
        "head_b64": base64.b64encode(whole[:head_bytes]).decode(),
        "tail_b64": base64.b64encode(rest[-tail_bytes:] if tail_bytes else b"").decode(),
        "total_bytes": len(whole),
        "streamed_bytes": 7,
        "closed": True,
    }


@pytest.fixture
def pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    return reader, writer


def test_control_overtakes_data_and_no_frame_is_torn(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    outbox = Outbox(writer)
    for number in range(6):
        outbox.put_data(number, b"x" * 60_000)
    outbox.flush()
    assert outbox.is_blocked
    outbox.put_control(encode_control({"late": True}))
    decoder = FrameDecoder()
    payloads: list[bytes] = []
    while not outbox.is_empty:
        outbox.flush()
        payloads += decoder.feed(os.read(reader, 1 << 20))
    order = ["control" if payload[:1] == b"{" else "data" for payload in payloads]
    # At most what was handed to the kernel at once, 128 KiB, may be in front of it.
    assert order.index("control") <= 3
    assert [payload for payload in payloads if payload[:1] != b"{"] == [
        encode_chunk(number, b"x" * 60_000)[4:] for number in range(6)
    ]
    os.close(reader)
    os.close(writer)


def test_queue_says_when_it_is_full_and_when_nobody_reads(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    outbox = Outbox(writer)
    for number in range(20):
        outbox.put_data(number, b"x" * 60_000)
    assert outbox.is_congested
    os.close(reader)
    with pytest.raises(HostGone):
        outbox.flush()
    os.close(writer)
