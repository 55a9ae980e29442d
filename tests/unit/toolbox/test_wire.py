"""The box's own reading and writing of messages."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral_protocol.error import RPC_ERROR, ErrorCode
from corral_protocol.framing import HEADER
from corral_protocol.message import INITIAL_CREDIT, ExecStatus, Method
from corral_toolbox.channel import wire

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 60), 1 << 60)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_names_are_those_of_the_contract() -> None:
    methods = {wire.HELLO, wire.PING, wire.EXEC, wire.CANCEL, wire.FREEZE, wire.THAW, wire.KILL_ALL, wire.STATS}
    methods |= {wire.LISTEN, wire.DIAL, wire.OPEN, wire.RESET, wire.GO, wire.SIGNAL, wire.RESIZE}
    assert methods | wire.FILE_METHODS | {wire.CREDIT, wire.CLOSE, wire.EVENTS} == set(Method) - {Method.LOG}
    statuses = {wire.EXITED, wire.SIGNALED, wire.TIMEOUT, wire.KILLED, wire.NOT_STARTED}
    assert statuses == set(ExecStatus)
    codes = {
        *(wire.INVALID_ARGUMENT, wire.UNKNOWN_METHOD, wire.PIDS_EXHAUSTED, wire.TOO_LARGE, wire.CANCELLED),
        *(wire.BUSY, wire.UNSUPPORTED, wire.IO_ERROR, wire.INTERNAL, wire.TIMEOUT),
    }
    assert codes <= set(ErrorCode)
    assert (wire.RPC_ERROR, wire.INITIAL_CREDIT) == (RPC_ERROR, INITIAL_CREDIT)


@given(params=st.dictionaries(st.text(), _JSON, max_size=4))
def test_reads_and_writes_what_json_does(params: dict[str, object]) -> None:
    message: wire.Message = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": params}
    frame = wire.encode_message(message)
    assert HEADER.unpack_from(frame) == (len(frame) - 4,)
    assert json.loads(frame[4:]) == message
    assert wire.parse_message(json.dumps(message).encode()) == message
    assert wire.parse_message(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")) == message


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b'{"jsonrpc":"2.0"} {}',
        b'{"jsonrpc":"1.0","method":"ping"}',
        b'{"jsonrpc":"2.0","a":NaN}',
        b'{"jsonrpc":"2.0","a":"\xff"}',
        b'{"jsonrpc":"2.0","a":' + b"[" * 100_000,
        b'{"jsonrpc":"2.0","a":"\n"}',
    ],
)
def test_refuses_what_is_no_message(payload: bytes) -> None:
    with pytest.raises(wire.Violation):
        wire.parse_message(payload)


def test_refuses_to_send_what_is_too_large() -> None:
    with pytest.raises(ValueError, match="control message"):
        wire.encode_message({"text": "x" * (1 << 20)})


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"argv": ["a\0b"]}, "NUL byte in a name"),
        ({"argv": ["\ud800"]}, "surrogates not allowed"),
        ({"argv": "ls"}, "argv is missing or has the wrong type"),
        ({"argv": [1]}, "argv must hold strings"),
        ({}, "argv is missing or has the wrong type"),
    ],
)
def test_refuses_names_the_kernel_could_not_take(raw: wire.Message, reason: str) -> None:
    with pytest.raises(wire.Refusal, match=reason) as caught:
        wire.Params(raw).take_names("argv")
    assert caught.value.code == "invalid_argument"


def test_refuses_parameters_nobody_asked_for() -> None:
    params = wire.Params({"a": 1, "b": True})
    assert params.take_int("a", 0, 0, 1) == 1
    with pytest.raises(wire.Refusal, match="unknown parameter 'b'"):
        params.done()


@pytest.mark.parametrize("value", [True, 1.0, "1", None, -1, 11])
def test_a_number_is_a_number_within_its_limits(value: object) -> None:
    with pytest.raises(wire.Refusal):
        wire.Params({"n": value}).take_int("n", 0, 0, 10)


@pytest.mark.parametrize("value", [0, -1, True, "1", 1e10, float("inf")])
def test_a_time_is_over_zero(value: object) -> None:
    with pytest.raises(wire.Refusal):
        wire.Params({"s": value}).take_seconds("s", None)
