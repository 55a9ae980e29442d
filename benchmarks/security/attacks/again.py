"""Outliving the box into the next one over the same workspace: each leaves something, and looks for it there."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from .attack import PLANTED, Table
from .syscall import LIBC

AGAIN = Table("persistence")
_KEY = 0x434F5252
_NAME = "\0corral-attack-again"


def _both(name: str, what: str, plant: Callable[[], None], look: Callable[[], str | None]) -> None:
    def attempt() -> str | None:
        if os.environ.get("ATTACK_PHASE") == "look":
            return look()
        plant()
        return PLANTED

    AGAIN.add(f"again-{name}", what, attempt, needs="next")


def _file(name: str, path: str, what: str) -> None:
    def place() -> str:
        return os.path.expanduser(path)

    def plant() -> None:
        os.makedirs(os.path.dirname(place()), exist_ok=True)
        with open(place(), "w", encoding="utf-8") as file:
            file.write("left by the box before\n")

    _both(name, what, plant, lambda: f"{place()} is there" if os.path.exists(place()) else None)


def _fill() -> None:
    for name, path, what in (
        ("tmp", "/tmp/attack-again", "a file in /tmp"),
        ("shm", "/dev/shm/attack-again", "a file in /dev/shm"),
        ("home", "~/attack-again", "a file in the home directory"),
        ("profile", "~/.bash_profile", "what the next shell reads"),
        ("git-config", "~/.config/git/config", "what the next git obeys"),
        ("python-user", "~/.local/lib/python3.11/site-packages/usercustomize.py", "code at every start of Python"),
        ("pip", "~/.config/pip/pip.conf", "where the next pip finds packages"),
        ("ssh", "~/.ssh/config", "a program that ssh starts"),
        ("build-cache", "/workspace/.cache/poisoned", "a poisoned build cache in the workspace"),
    ):
        _file(name, path, f"into the next box: {what}")


_fill()


def _make_segment() -> None:
    if LIBC.shmget(_KEY, 4096, 0o1666) < 0:
        raise PermissionError(1, "no shared memory")


def _find_segment() -> str | None:
    found = LIBC.shmget(_KEY, 4096, 0o666)
    if found >= 0:
        LIBC.shmctl(found, 0, None)
        return f"segment {found}"
    return None


_both("sysv", "into the next box: shared memory without an owner", _make_segment, _find_segment)


def _serve() -> None:
    """A process that answers at a name of the network namespace, in a session of its own."""
    if os.fork():
        time.sleep(0.5)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(_NAME)
        server.listen()
        time.sleep(60)
    os._exit(0)


def _dial() -> str | None:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(_NAME)
    return "somebody answers"


_both("process", "into the next box: a process that waits for it", _serve, _dial)
