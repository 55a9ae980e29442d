"""Outliving the call: processes that ought to end with it, when its time is up, and hide."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from .attack import PLANTED, Table
from .syscall import LIBC

DAEMONS = Table("persistence")
MARK = "corral-attack-daemon"
"""In the arguments of what must be gone; the host and a second call look for it."""


def _sleeper(name: str) -> None:
    """Become a process that can be found by its arguments."""
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)", f"{MARK}-{name}"])


def _daemon(name: str, what: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(prepare: Callable[[], None]) -> Callable[[], None]:
        def attempt() -> str:
            if os.fork() == 0:
                prepare()
                _sleeper(name)
            time.sleep(60)  # the call itself goes on until it is cut off
            return PLANTED

        DAEMONS.add(f"daemon-{name}", what, attempt, needs="cut", path=f"{MARK}-{name}", timeout_s=90)
        return prepare

    return keep


@_daemon("child", "a plain child in the background")
def _() -> None:
    pass


@_daemon("setsid", "a session of its own")
def _() -> None:
    os.setsid()


@_daemon("double-fork", "a grandchild whose parent has gone")
def _() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)


@_daemon("deaf", "one that ignores every signal it can")
def _() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    os.setsid()


@_daemon("stopped", "one that is stopped, and deaf to anything but the last signal")
def _() -> None:
    os.setsid()
    if os.fork() == 0:
        time.sleep(0.5)
        os.kill(os.getppid(), signal.SIGSTOP)
        os._exit(0)


@_daemon("subreaper", "one that adopts its own descendants")
def _() -> None:
    LIBC.prctl(36, 1, 0, 0, 0)
    os.setsid()
    if os.fork():
        time.sleep(60)
    os.setsid()


@_daemon("group", "a process group of its own")
def _() -> None:
    os.setpgid(0, 0)


@_daemon("undumpable", "one that nobody may look into")
def _() -> None:
    LIBC.prctl(4, 0, 0, 0, 0)
    os.setsid()


@_daemon("runner", "one that forks again and again, each time with another number")
def _() -> None:
    os.setsid()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        time.sleep(0.002)


@_daemon("threads", "one whose first thread has ended")
def _() -> None:
    os.setsid()
    if os.fork():
        threading.Thread(target=lambda: time.sleep(60)).start()
        LIBC.syscall(60, 0)  # exit of this thread only
