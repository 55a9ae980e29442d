"""Where the `corral` process begins, before anything else is loaded: what Ctrl-C does until somebody listens to it."""

from __future__ import annotations

import signal
import sys

_LISTENING = ("exec", "run", "shell")
"""Commands that listen to signals as soon as they make anything (see cli.interrupt)."""


def main() -> None:
    """Entry point of the `corral` command."""
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started us has it ignored
    if hears:
        # Until there is anything to clean up, Ctrl-C just ends the process, as SIGTERM does. Python's own way is an
        # exception wherever it happens to be: one in a callback of a library being loaded is swallowed, and the run
        # goes on as if nobody had asked it to end.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from corral.cli.main import main as go_on  # late: the line above comes first

    if hears and sys.argv[1:2] not in [[name] for name in _LISTENING]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    go_on()
