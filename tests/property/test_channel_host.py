"""The host's end of the channel, whole: whatever a box says, its calls end with an error of ours, and only they."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.security.hostile_box import HostileBox, open_hostile_box

from corral.errors import SandboxError, ToolError
from corral_protocol import encode_chunk
from corral_protocol.message import Method, Pong

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"]) | _JSON,
        "id": st.integers(0, 5) | _JSON,
        "result": st.fixed_dictionaries({}, optional={"uptime_s": st.floats(0, 9) | _JSON, "sent": _JSON}) | _JSON,
        "error": st.fixed_dictionaries({"code": st.just(-32000), "message": st.text(), "data": _JSON}) | _JSON,
        "method": st.sampled_from(["stream.credit", "stream.close", "log", "ping", "exec"]) | _JSON,
        "params": st.fixed_dictionaries(
            {}, optional={name: st.integers(0, 9) | _JSON for name in ("stream", "bytes", "total", "error", "text")}
        ),
    },
)


def _frame(message: object) -> bytes:
    # As lenient as Python's own writer: NaN, lone surrogates and all.
    body = json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


_FRAMES = st.one_of(
    _MEMBERS.map(_frame),
    st.tuples(st.integers(0, 6), st.binary(min_size=1, max_size=40)).map(lambda one: encode_chunk(*one)),
    st.binary(max_size=40),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_FRAMES, min_size=1, max_size=8))
def test_whatever_a_box_says_its_calls_end_with_an_error_of_ours(frames: list[bytes]) -> None:
    faults: list[dict[str, Any]] = []

    async def scene() -> list[BaseException | object]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
        async with open_hostile_box() as box, open_hostile_box() as neighbour:
            calls = [
                asyncio.ensure_future(box._ask(Method.PING, None, Pong)),
                asyncio.ensure_future(box.exec(["true"], stdout=lambda piece: None)),
                asyncio.ensure_future(box.fetch_file("f", lambda piece: None)),
            ]
            await asyncio.sleep(0)
            for frame in frames:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    await box.send(frame)
            box.hang_up()
            ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)
            await check_neighbour(neighbour)
            return ends

    for end in asyncio.run(scene()):
        assert not isinstance(end, BaseException) or isinstance(end, SandboxError | ToolError), end
    assert faults == []


async def check_neighbour(box: HostileBox) -> None:
    call = asyncio.ensure_future(box._ask(Method.PING, None, Pong))
    await box.say(id=(await box.hear())["id"], result={"uptime_s": 2.0})
    assert await call == Pong(2.0)
