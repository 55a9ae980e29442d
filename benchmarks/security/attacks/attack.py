"""What an attack is, seen from inside a container: a function that tries something and says how it ended.

This package runs inside the box as it is (python3 -m attacks): standard library only, nothing of corral.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

HELD, BREACH, UNKNOWN, PLANTED = "held", "breach", "unknown", "planted"
MIB = 1 << 20
PAST = 1.1
"""How far past a limit an attack aims."""
REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS)


class Unable(Exception):
    """The attempt could not be made; the text says why."""


@dataclass(frozen=True)
class Attack:
    """`run` returns what it got (a breach), or None; an OSError says that it was refused."""

    id: str
    family: str
    what: str
    run: Callable[[], str | None]
    needs: str = ""
    """What the host does about it: `end` looks at `path` in the workspace's original when the container has gone,
    `cut` ends its call by the time limit and looks for what is left, `calls` makes other calls meanwhile, `next` has it
    look for itself in a second box (ATTACK_PHASE), `small` gives it a container with little memory and disk, `slow` one
    with little processor, `host` judges it wholly from outside, by `path`."""
    path: str = ""
    can_kill: bool = False
    """Being killed is how it is held: by the memory limit, by the file size limit."""
    timeout_s: float = 10


class Table:
    """The attacks of one family, in the order of their source."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.attacks: list[Attack] = []

    def add(self, name: str, what: str, run: Callable[[], str | None], **more: object) -> None:
        self.attacks.append(Attack(name, self.family, what, run, **more))  # type: ignore[arg-type]  # fields of Attack

    def __call__(
        self, name: str, what: str, **more: object
    ) -> Callable[[Callable[[], str | None]], Callable[[], str | None]]:
        def keep(run: Callable[[], str | None]) -> Callable[[], str | None]:
            self.add(name, what, run, **more)
            return run

        return keep


def read_limit(name: str) -> int:
    """One of the limits that the host has told."""
    limits = json.loads(os.environ.get("ATTACK_LIMITS", "{}"))
    if name not in limits:
        raise Unable(f"the host did not name the limit {name}")
    return int(limits[name])


def park() -> None:
    """What a child does that takes a place and nothing else."""
    signal.pause()
    os._exit(0)
