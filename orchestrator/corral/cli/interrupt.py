"""Ctrl-C and friends: the first asks the run to end and clean up, the second stops waiting for what it was doing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def cancel_on_signals(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work`; a signal cancels it. `work` decides what a cancel ends (see agent.run) and always cleans up."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    for number in _SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
