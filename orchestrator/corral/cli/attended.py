"""A command of the box in the person's own terminal: `corral shell` and `corral exec -t`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from corral.cli.terminal_mode import TerminalMode, check_terminal, keep_terminal, read_size

if TYPE_CHECKING:
    from corral.app import ExecOutcome, ExecRequest

_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def execute_attended(request: ExecRequest, *, on_wait: Callable[[str], None]) -> ExecOutcome:
    """Run it with the person at its keyboard. Raises ConfigError where there is no terminal."""
    check_terminal()
    term = os.environ.get("TERM", "")
    # What the box tells programs otherwise is for output that nobody looks at.
    env = {"TERM": term if _TERM.fullmatch(term) else "xterm", "NO_COLOR": ""}
    with keep_terminal() as mode:
        return asyncio.run(_execute(replace(request, env={**env, **request.env}), mode, on_wait))


async def _execute(request: ExecRequest, mode: TerminalMode, on_wait: Callable[[str], None]) -> ExecOutcome:
    from corral import app  # late: start-up time
    from corral.cli.interrupt import cancel_on_signals
    from corral.cli.network import Forwards
    from corral.cli.screen import ScreenFilter
    from corral.cli.stdio import Output, read_stdin
    from corral.sandbox.base import ExecHandle

    gone, handle, screen = asyncio.Event(), ExecHandle(), ScreenFilter()
    sys.stdout.flush()
    output = Output(sys.stdout.fileno(), gone, screen.feed)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, lambda: handle.resize(read_size()))
    try:
        work = app.execute(
            request,
            stdin=read_stdin(),
            stdout=output.sink,
            terminal=read_size(),
            handle=handle,
            watch=Forwards().event if request.network.forwards else None,
            on_box=lambda box: mode.make_raw(),
            on_wait=on_wait,
        )
        return await cancel_on_signals(work, gone=gone)
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        if not output.broken:
            await output.write(screen.finish() + b"\r")
