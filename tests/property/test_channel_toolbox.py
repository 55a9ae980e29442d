"""The toolbox's end of the channel: whatever bytes come, they are frames, a refusal, or the orderly end of the box."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral_protocol.framing import FrameDecoder, FrameError, encode_chunk, encode_control
from corral_toolbox.channel import wire
from corral_toolbox.channel.request import ExecRequest

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
_FIELDS = st.sampled_from(
    [
        "argv",
        "shell",
        "cwd",
        "env",
        "timeout_s",
        "stdin",
        "stdout",
        "stderr",
        "merge_stderr",
        "head_bytes",
        "umask",
        "x",
    ]
)
_FRAMES = st.one_of(
    st.binary(min_size=1, max_size=50).map(lambda data: encode_chunk(7, data)),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3).map(encode_control),
)


@settings(deadline=None)
@given(st.lists(_FRAMES, max_size=6), st.lists(st.integers(1, 40), min_size=1))
def test_any_slicing_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    decoder, data, out = FrameDecoder(), b"".join(frames), list[bytes]()
    for size in cuts:
        out += decoder.feed(data[:size])
        data = data[size:]
    out += decoder.feed(data)
    assert out == [frame[4:] for frame in frames]
    assert decoder.pending_bytes == 0


@settings(deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=5))
def test_any_bytes_are_frames_or_the_end(pieces: list[bytes]) -> None:
    decoder = FrameDecoder()
    try:
        for piece in pieces:
            for payload in decoder.feed(piece):
                assert payload[0] in (1, 0x7B)
    except FrameError:
        pass
    assert decoder.pending_bytes <= sum(map(len, pieces))


@settings(deadline=None)
@given(st.binary(max_size=200).map(lambda rest: b"{" + rest))
def test_any_payload_is_a_message_or_the_end(payload: bytes) -> None:
    try:
        assert wire.parse_message(payload)["jsonrpc"] == "2.0"
    except wire.Violation:
        pass


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 500_000,
        b'{"a":' * 200_000,
        b"1" * 500_000,
        b"NaN",
        b"-Infinity",
        b'"\xed\xa0\x80"',
        b'"\x00"',
        b"1e5 x",
    ],
    ids=["lists", "objects", "digits", "nan", "infinity", "surrogate bytes", "control character", "more"],
)
def test_hostile_json_is_the_end_and_nothing_worse(value: bytes) -> None:
    with pytest.raises(wire.Violation):
        wire.parse_message(b'{"jsonrpc":"2.0","id":1,"method":"exec","params":' + value)


def test_separators_of_lines_are_text() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "exec", "params": {"argv": ["a\u2028b\u2029\x85c"]}}
    raw = json.dumps(message, ensure_ascii=False).encode()
    assert ExecRequest(wire.parse_message(raw)["params"]).argv == ["a\u2028b\u2029\x85c".encode()]


@settings(deadline=None)
@given(st.dictionaries(_FIELDS, _JSON | st.lists(st.text(max_size=6), max_size=3), max_size=6))
def test_any_request_is_taken_or_refused(params: dict[str, object]) -> None:
    try:
        request = ExecRequest(params)
    except wire.Refusal as refusal:
        assert refusal.code in ("invalid_argument", "too_large")
        return
    assert request.argv and all(b"\0" not in part for part in request.argv)
    assert 0 <= request.umask <= 0o777
