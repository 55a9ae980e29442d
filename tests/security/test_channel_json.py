"""Malformed control messages: each ends the box with a protocol error, and nothing else happens."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.hostile_box import open_hostile_box

from corral.errors import SandboxProtocolError
from corral.sandbox.channel.wire import MAX_DEPTH, decode_message, parse_result
from corral_protocol.message import ExecResult, HelloReply, Method, Pong

PONG = b'{"jsonrpc":"2.0","id":1,"result":{"uptime_s":%s}}'
BAD = {
    "duplicate_key": b'{"jsonrpc":"2.0","id":1,"id":1,"result":{"uptime_s":1.0}}',
    "duplicate_key_inside": PONG % b'1.0,"uptime_s":2.0',
    "nan": PONG % b"NaN",
    "infinity": PONG % b"-Infinity",
    "infinity_by_exponent": PONG % b"1e999",
    "integer_over_64_bits": PONG % b"9223372036854775808",
    "integer_of_a_megabyte": PONG % (b"1" * 500_000),
    "lone_surrogate": b'{"jsonrpc":"2.0","id":1,"result":{"uptime_s":1.0},"x":"\\ud800"}',
    "lone_surrogate_as_key": PONG % b'1.0,"\\udfff":1',
    "nesting": PONG % (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH),
    "nesting_of_a_megabyte": b'{"a":' + b"[" * 1_000_000,
    "not_utf8": b'{"jsonrpc":"2.0","id":1,"result":"\xff"}',
    "utf16": b"{" + '"jsonrpc":"2.0"}'.encode("utf-16-le"),
    "array": b"{}[]",
    "trailing": PONG % b"1.0" + b"x",
    "control_character": b'{"jsonrpc":"2.0","id":1,"result":{"uptime_s":1.0,"\n":1}}',
    "text_for_number": PONG % b'"1.0"',
    "true_for_number": PONG % b"true",
    "null": PONG % b"null",
    "missing_field": b'{"jsonrpc":"2.0","id":1,"result":{}}',
    "unknown_field": PONG % b'1.0,"more":1',
    "negative": PONG % b"-1.0",
    "result_is_a_list": b'{"jsonrpc":"2.0","id":1,"result":[1.0]}',
    "wrong_version": b'{"jsonrpc":"1.0","id":1,"result":{"uptime_s":1.0}}',
    "no_version": b'{"id":1,"result":{"uptime_s":1.0}}',
}


@pytest.mark.parametrize("payload", BAD.values(), ids=BAD.keys())
async def test_refuses(payload: bytes) -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
        await box.hear()
        await box.send_payload(payload)
        with pytest.raises(SandboxProtocolError):
            await asyncio.wait_for(call, 5)
        assert isinstance(await box.end(), SandboxProtocolError)


async def test_takes_the_clean_form() -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
        await box.hear()
        await box.send_payload(PONG % b"1.5")
        assert await call == Pong(1.5)


def test_takes_surrogate_pairs_and_escaped_backslashes() -> None:
    text = '{"a":"\\ud83d\\ude00","b":"\\\\ud800"}'
    assert decode_message(text.encode()) == {"a": "😀", "b": "\\ud800"}


def test_brackets_inside_strings_are_no_nesting() -> None:
    assert decode_message(json.dumps({"a": '["{' * 500}).encode()) == {"a": '["{' * 500}


@given(st.binary(max_size=200).map(lambda rest: b"{" + rest))
def test_any_bytes_give_an_object_or_a_protocol_error(payload: bytes) -> None:
    try:
        assert isinstance(decode_message(payload), dict)
    except SandboxProtocolError:
        pass


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
fields = st.sampled_from(["status", "exit_code", "stdout", "cwd", "notices", "protocol", "version", "boot_id", "x"])


@given(st.dictionaries(fields, json_values))
def test_any_result_is_typed_or_a_protocol_error(result: dict[str, object]) -> None:
    payload = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
    for kind in (ExecResult, HelloReply):
        try:
            decode_message(payload)
            assert type(parse_result(payload, kind)) is kind
        except SandboxProtocolError:
            pass
