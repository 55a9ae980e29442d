"""Ctrl-C and friends: the first asks the run to end and clean up, the second stops waiting for what it was doing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def cancel_on_signals(work: Coroutine[Any, Any, Result], *, gone: asyncio.Event | None = None) -> Result:
    """Run `work`; a signal cancels it, and so does `gone`: nobody reads the output any more.

    `work` decides what a cancel ends (see agent.run) and always cleans up.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_cancel_when(gone, task)) if gone else None
    for number in _SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        if watch is not None:
            watch.cancel()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def _cancel_when(gone: asyncio.Event, task: asyncio.Future[Any]) -> None:
    await gone.wait()
    task.cancel()
