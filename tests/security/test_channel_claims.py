"""Well-formed lies: names that climb, output that was not asked for, numbers that cannot be."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from tests.security.hostile_box import open_hostile_box

from corral.errors import SandboxProtocolError

ENTRY = {"path": "a", "kind": "file"}
BIG = base64.b64encode(bytes(40_000)).decode()
EXEC: dict[str, dict[str, Any]] = {
    "exit_code": {"status": "exited", "exit_code": 256},
    "negative_exit_code": {"status": "exited", "exit_code": -1},
    "signal": {"status": "signaled", "signal": 65},
    "status": {"status": "approved"},
    "bad_base64": {"status": "exited", "stdout": {"head_b64": "!!!!"}},
    "head_over_the_limit": {"status": "exited", "stdout": {"head_b64": BIG, "total_bytes": 40_000}},
    "more_than_counted": {"status": "exited", "stdout": {"head_b64": "aGVsbG8=", "total_bytes": 1}},
    "streamed_without_a_stream": {"status": "exited", "stdout": {"streamed_bytes": -1}},
    "nul_in_cwd": {"status": "exited", "cwd": "/a\x00b"},
    "bad_name": {"status": "exited", "cwd": "\x00!!!"},
    "negative_time": {"status": "exited", "duration_s": -0.5},
    "a_place_that_is_none": {"status": "exited", "exit_code": 1, "full": ["/etc"]},
}
LISTING: dict[str, list[dict[str, Any]]] = {
    "climbs": [ENTRY | {"path": "../x"}],
    "climbs_inside": [ENTRY | {"path": "a/../../x"}],
    "absolute": [ENTRY | {"path": "/etc/passwd"}],
    "climbs_encoded": [ENTRY | {"path": "\x00" + base64.b64encode(b"../\xff").decode()}],
    "too_many": [ENTRY] * 6,
    "negative_size": [ENTRY | {"size": -1}],
    "mode_true": [ENTRY | {"mode": True}],
}


@pytest.mark.parametrize("result", EXEC.values(), ids=EXEC.keys())
async def test_refuses_exec(result: dict[str, Any]) -> None:
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.exec(["true"]))
        await box.say(id=(await box.hear())["id"], result=result)
        with pytest.raises(SandboxProtocolError):
            await asyncio.wait_for(task, 5)
        assert isinstance(await box.end(), SandboxProtocolError)


@pytest.mark.parametrize("entries", LISTING.values(), ids=LISTING.keys())
async def test_refuses_listing(entries: list[dict[str, Any]]) -> None:
    async with open_hostile_box() as box:
        task = asyncio.ensure_future(box.list_files("d", limit=5))
        await box.say(id=(await box.hear())["id"], result={"path": "/workspace/d", "entries": entries})
        with pytest.raises(SandboxProtocolError):
            await asyncio.wait_for(task, 5)
        assert isinstance(await box.end(), SandboxProtocolError)


@pytest.mark.parametrize(
    ("lines", "entries"),
    [
        (b'{"path":"../a","kind":"file","mode":0,"size":0,"mtime_ns":0}\n', 1),
        (b'{"path":"a","kind":"file","mode":0,"size":0,"mtime_ns":0}\n', 2),
        (b'{"path":"a","kind":"file","mode":0,"size":0,"mtime_ns":0}', 1),
        (b'{"path":"a"}\n', 1),
        (b"[1]\n", 1),
        (b"\n", 1),
    ],
)
async def test_refuses_scan(lines: bytes, entries: int) -> None:
    async with open_hostile_box() as box:
        scan = asyncio.ensure_future(_collect(box.scan_tree()))
        request = await box.hear()
        stream = request["params"]["stream"]
        await box.chunk(stream, lines)
        await box.say(method="stream.close", params={"stream": stream, "total": len(lines), "error": ""})
        await box.say(id=request["id"], result={"entries": entries})
        with pytest.raises(SandboxProtocolError):
            await asyncio.wait_for(scan, 5)
        assert isinstance(await box.end(), SandboxProtocolError)


async def test_honest_scan_may_tell_times_before_1970() -> None:
    async with open_hostile_box() as box:
        scan = asyncio.ensure_future(_collect(box.scan_tree()))
        request = await box.hear()
        stream, line = request["params"]["stream"], b'{"path":"a","kind":"file","mode":0,"size":0,"mtime_ns":-5}\n'
        for part in (line[:7], line[7:] + line, line):
            await box.chunk(stream, part)
        await box.say(id=request["id"], result={"entries": 3})
        await box.say(method="stream.close", params={"stream": stream, "total": 3 * len(line), "error": ""})
        assert [(e.path, e.mtime_ns) for e in await scan] == [("a", -5)] * 3


async def _collect(scan: Any) -> list[Any]:
    return [entry async for entry in scan]
