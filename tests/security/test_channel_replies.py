"""Forged, duplicated and unasked replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.security.hostile_box import open_hostile_box

from corral.errors import BoxLost, SandboxProtocolError, ToolError
from corral_protocol.message import MAX_EVENTS, EventKind, Method, Pong, ProcessEvent, ProcessEvents

PONG = {"uptime_s": 1.0}
ERROR = {"code": -32000, "message": "no", "data": {"code": "busy", "details": {}}}
FORGED: dict[str, dict[str, Any]] = {
    "unknown_id": {"id": 2, "result": PONG},
    "id_true": {"id": True, "result": PONG},
    "id_as_text": {"id": "1", "result": PONG},
    "id_as_float": {"id": 1.0, "result": PONG},
    "id_null": {"id": None, "result": PONG},
    "no_id": {"result": PONG},
    "result_and_error": {"id": 1, "result": PONG, "error": ERROR},
    "neither": {"id": 1},
    "more": {"id": 1, "result": PONG, "method_": "x"},
    "request": {"id": 1, "method": "ping", "params": {}},
    "unknown_notification": {"method": "approve", "params": {}},
    "host_notification": {"method": "exec.cancel", "params": {"id": 1}},
    "events_of_no_command": {"method": "process.events", "params": {"id": 1, "dropped": 0, "events": []}},
    "log_without_text": {"method": "log", "params": {}},
    "error_is_text": {"id": 1, "error": "no"},
    "error_of_another_number": {"id": 1, "error": ERROR | {"code": -32601}},
    "error_of_unknown_code": {"id": 1, "error": ERROR | {"data": {"code": "KeyboardInterrupt", "details": {}}}},
    "error_without_code": {"id": 1, "error": ERROR | {"data": {}}},
    "error_with_class": {"id": 1, "error": ERROR | {"class": "builtins.SystemExit"}},
    "error_details_are_a_list": {"id": 1, "error": ERROR | {"data": {"code": "busy", "details": [1]}}},
    "error_message_is_a_number": {"id": 1, "error": ERROR | {"message": 1}},
}


@pytest.mark.parametrize("message", FORGED.values(), ids=FORGED.keys())
async def test_refuses(message: dict[str, Any]) -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
        await box.hear()
        await box.say(**message)
        with pytest.raises(SandboxProtocolError):
            await asyncio.wait_for(call, 5)


async def test_refuses_a_second_reply() -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
        await box.hear()
        await box.say(id=1, result=PONG)
        assert await call == Pong(1.0)
        await box.say(id=1, result=PONG)
        assert isinstance(await box.end(), SandboxProtocolError)


async def test_error_becomes_a_tool_error_of_the_closed_set() -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
        await box.hear()
        await box.say(id=1, error=ERROR | {"message": "no\x1b[31m\n" + "x" * 10_000})
        with pytest.raises(ToolError) as caught:
            await call
        assert (caught.value.code, caught.value.data) == ("busy", {})
        assert caught.value.message.startswith("no\\x1b[31m\\nxxx")
        assert len(caught.value.message) < 4200
        assert not box.channel.is_ending


async def test_a_late_reply_to_a_cancelled_call_is_no_violation() -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
        await box.hear()
        call.cancel()
        cancel = await box.hear()
        assert (cancel["method"], cancel["params"]) == ("exec.cancel", {"id": 1})
        await box.say(id=1, result=PONG)
        with pytest.raises(asyncio.CancelledError):
            await call
        await box.say(id=cancel["id"], result={})
        again = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
        await box.say(id=(await box.hear())["id"], result=PONG)
        assert await again == Pong(1.0)


async def test_a_hostile_box_does_not_disturb_its_neighbour() -> None:
    async with open_hostile_box() as bad, open_hostile_box() as good:
        call = asyncio.ensure_future(good._ask(Method.PING, None, Pong))
        await good.hear()
        await bad.send(b"\xff" * 100)
        assert isinstance(await bad.end(), SandboxProtocolError)
        await good.say(id=1, result=PONG)
        assert await call == Pong(1.0)


async def test_every_open_call_learns_of_the_end() -> None:
    async with open_hostile_box() as box:
        calls = [asyncio.ensure_future(box._ask(Method.PING, None, Pong)) for _ in range(3)]
        await box.hear()
        box.hang_up()
        assert [type(e) for e in await asyncio.gather(*calls, return_exceptions=True)] == [BoxLost] * 3
        with pytest.raises(BoxLost, match="hung up"):
            await box._ask(Method.PING, None, Pong)


async def test_silence_ends_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    from corral.sandbox.channel import call, keep_alive

    monkeypatch.setattr(call, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(call, "PONG_LIMIT_S", 0.05)
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(keep_alive(box.channel))
        error = await box.end()
        assert isinstance(error, BoxLost)
        assert "does not answer" in error.message
        task.cancel()


EVENT = {"kind": "exec", "pid": 7, "parent": 1, "uid": 5}
END = {"pid": 7, "lived_s": 0.5}
FORGED_EVENTS: dict[str, dict[str, Any]] = {
    "of_another_call": {"id": 2, "dropped": 0, "events": []},
    "of_true": {"id": True, "dropped": 0, "events": []},
    "unknown_kind": {"id": 1, "dropped": 0, "events": [EVENT | {"kind": "approve"}]},
    "unknown_mark": {"id": 1, "dropped": 0, "events": [EVENT | {"mark": "trusted"}]},
    "unknown_field": {"id": 1, "dropped": 0, "events": [EVENT | {"exit_code": 0}]},
    "pid_is_text": {"id": 1, "dropped": 0, "events": [EVENT | {"pid": "7"}]},
    "pid_is_negative": {"id": 1, "dropped": 0, "events": [EVENT | {"pid": -7}]},
    "port_is_none": {"id": 1, "dropped": 0, "events": [EVENT | {"kind": "connect", "port": 65536}]},
    "argument_is_no_name": {"id": 1, "dropped": 0, "events": [EVENT | {"argv": ["a\0b"]}]},
    "path_is_no_name": {"id": 1, "dropped": 0, "events": [EVENT | {"path": "\0!"}]},
    "end_with_a_code_over_255": {"id": 1, "dropped": 0, "events": [], "ends": [END | {"exit_code": 256}]},
    "end_by_a_signal_that_is_none": {"id": 1, "dropped": 0, "events": [], "ends": [END | {"signal": 65}]},
    "end_with_text": {"id": 1, "dropped": 0, "events": [], "ends": [END | {"exit_code": "0"}]},
    "end_before_its_start": {"id": 1, "dropped": 0, "events": [], "ends": [END | {"lived_s": -1.0}]},
    "dropped_is_negative": {"id": 1, "dropped": -1, "events": []},
}


@pytest.mark.parametrize("params", FORGED_EVENTS.values(), ids=FORGED_EVENTS.keys())
async def test_refuses_forged_process_events(params: dict[str, Any]) -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box.exec(["true"]))
        await box.hear()
        await box.say(method="process.events", params={"id": 1, "dropped": 0, "events": [EVENT]})
        await box.say(method="process.events", params=params)
        with pytest.raises(SandboxProtocolError):
            await asyncio.wait_for(call, 5)
        assert [told for _, told in box.told] == [ProcessEvents(1, 0, [ProcessEvent(EventKind.EXEC, 7, 1, 5)])]


async def test_a_box_that_tells_of_too_many_processes_is_ended() -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box.exec(["true"]))
        await box.hear()
        for _ in range(MAX_EVENTS // 2000):
            await box.say(method="process.events", params={"id": 1, "dropped": 0, "events": [EVENT] * 2000})
        await box.say(method="process.events", params={"id": 1, "dropped": 3, "events": []})
        assert not box.channel.is_ending
        await box.say(method="process.events", params={"id": 1, "dropped": 3, "events": [EVENT]})
        with pytest.raises(SandboxProtocolError, match=str(MAX_EVENTS + 1)):
            await asyncio.wait_for(call, 5)
        assert sum(len(told.events) for _, told in box.told) == MAX_EVENTS


async def test_a_box_that_tells_of_too_many_ends_is_ended() -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box.exec(["true"]))
        await box.hear()
        for _ in range(MAX_EVENTS // 2000):
            await box.say(method="process.events", params={"id": 1, "dropped": 0, "events": [], "ends": [END] * 2000})
        assert not box.channel.is_ending
        await box.say(method="process.events", params={"id": 1, "dropped": 0, "events": [], "ends": [END]})
        with pytest.raises(SandboxProtocolError, match=str(MAX_EVENTS + 1)):
            await asyncio.wait_for(call, 5)


async def test_a_count_of_dropped_events_never_shrinks() -> None:
    async with open_hostile_box() as box:
        call = asyncio.ensure_future(box.exec(["true"]))
        await box.hear()
        for dropped in (3, 2):
            await box.say(method="process.events", params={"id": 1, "dropped": dropped, "events": []})
        with pytest.raises(SandboxProtocolError):
            await asyncio.wait_for(call, 5)
