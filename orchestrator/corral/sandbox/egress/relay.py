"""Bytes between a connection of the box and one outside, both ways: counted, half-closed, never idle for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from corral.sandbox.channel.tunnel import BoxStream
from corral.sandbox.egress.outside import Outside

IDLE_S = 300.0
"""Without a byte in either direction for so long a connection is over."""


async def relay(box: BoxStream, outside: Outside, *, idle_s: float = IDLE_S) -> None:
    """Until both sides have ended, one gives up, nothing has moved for `idle_s`, or we are cancelled."""
    await run_directions(_send_out(box, outside), _send_in(box, outside), box, outside, idle_s=idle_s)


async def run_directions(
    out: Coroutine[Any, Any, None],
    back: Coroutine[Any, Any, None],
    box: BoxStream,
    outside: Outside,
    *,
    idle_s: float = IDLE_S,
    back_is_all: bool = False,
) -> None:
    """Both directions side by side; the first that fails ends both. With `back_is_all` the end of `back` does, too.

    Says in `admitted` how it ended, and leaves nothing of the outer connection."""
    admitted = outside.admitted
    assert admitted is not None
    tasks = [asyncio.ensure_future(out), asyncio.ensure_future(back)]
    is_whole = False
    try:
        while not all(task.done() for task in tasks) and not (back_is_all and tasks[1].done()):
            left_s = outside.moved_at + idle_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                admitted.ending = "idle"
                return
            pending = [task for task in tasks if not task.done()]
            done, _ = await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(task.exception(), OSError | EOFError) for task in done):
                admitted.ending = "reset"
                return
            for task in done:
                task.result()
        is_whole = True
    except asyncio.CancelledError:
        if admitted.ending == "closed":
            admitted.ending = "over"
        raise
    finally:
        for task in tasks:
            task.cancel()
        # Before anything is awaited: a second cancellation must not leave it open.
        if is_whole:
            outside.close()
        else:
            outside.abort()
            box.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_out(box: BoxStream, outside: Outside) -> None:
    while data := await box.read():
        await outside.write(data)
    outside.write_end()


async def _send_in(box: BoxStream, outside: Outside) -> None:
    while data := await outside.read():
        await box.write(data)
    box.close()
