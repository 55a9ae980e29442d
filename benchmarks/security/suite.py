"""The whole trial: every attack on our box and on controls in which it must succeed, or it is no check."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
from tests.support.gvisor import ARGUMENTS, RUNTIME
from tests.support.own_engine import OwnEngine

from benchmarks.security.attacks import ATTACKS
from benchmarks.security.attacks.attack import BREACH, HELD, Attack
from benchmarks.security.box import attack_box
from benchmarks.security.control import attack_control
from benchmarks.security.workplace import Outcome

RESIDUAL = {
    "home-writable": "programs need a home; it is memory, limited, and goes with the box",
    "see-overlay-path": "the kernel shows an overlay's options to whoever is in it; they are neutral names of ours",
    "resolv-conf": "the engine puts the file there; it names no server",
}
"""The only attacks that may succeed in our box, and why. SECURITY.md says the same."""
_ABSENT = "Function not implemented"


@dataclass(frozen=True)
class Row:
    """One attack, and how it ended everywhere."""

    attack: Attack
    ours: Outcome
    plain: Outcome
    open: Outcome | None
    """Of the control that is left open; None where plain Docker did not hold it either."""
    gvisor: Outcome | None = None
    """Of plain Docker with gVisor as its runtime, where the engine has it; nothing that uses up the machine."""
    ours_gvisor: Outcome | None = None
    """Of our box with that runtime, likewise."""

    @property
    def is_breach(self) -> bool:
        return self.ours.verdict == BREACH and self.attack.id not in RESIDUAL

    @property
    def is_proven(self) -> bool:
        """It has been seen to succeed somewhere."""
        return BREACH in (self.plain.verdict, self.open.verdict if self.open else "")

    @property
    def is_absent(self) -> bool:
        """This kernel has nothing of the kind: it says so even to a container without any filter."""
        return self.open is not None and self.open.verdict == HELD and self.open.reason == _ABSENT


@contextlib.contextmanager
def use_gvisor(place: Path, image: str) -> Iterator[None]:
    """The environment's engine where it has gVisor; else one of our own meanwhile, which has the image, too."""
    with contextlib.closing(docker.from_env()) as engine, contextlib.ExitStack() as stack:
        if RUNTIME not in engine.info()["Runtimes"]:
            program = shutil.which(RUNTIME)
            if program is None:
                raise SystemExit(f"{RUNTIME!r} is not installed: apt-get install {RUNTIME}, or leave --gvisor out")
            own = stack.enter_context(OwnEngine(place, runtimes={RUNTIME: [program, *ARGUMENTS]}))
            own.copy_image(engine, image)
            before = os.environ.get("DOCKER_HOST")
            os.environ["DOCKER_HOST"] = own.url
            stack.callback(_restore, before)
        yield


def _restore(address: str | None) -> None:
    if address is None:
        del os.environ["DOCKER_HOST"]
    else:
        os.environ["DOCKER_HOST"] = address


def try_attacks(folder: Path, image: str, ids: Iterable[str], *, gvisor: bool = False) -> list[Row]:
    """The rows for these attacks, in the order of the tables. The open control gets what plain Docker held."""
    wanted = set(ids)
    names = [name for name in ATTACKS if name in wanted]
    for part in ("ours", "controls"):
        (folder / part).mkdir()
    ours = asyncio.run(attack_box(folder / "ours", image, names))
    plain = attack_control(folder / "controls", image, names, "plain")
    rest = [name for name in names if plain[name].verdict != BREACH]
    opened = attack_control(folder / "controls", image, rest, "open") if rest else {}
    mild = [name for name in names if ATTACKS[name].family != "resources"]
    under: dict[str, Outcome] = {}
    ours_under: dict[str, Outcome] = {}
    if gvisor and mild:
        (folder / "ours-gvisor").mkdir()
        with use_gvisor(folder / "engine", image):
            under = attack_control(folder / "controls", image, mild, "gvisor")
            ours_under = asyncio.run(attack_box(folder / "ours-gvisor", image, mild, runtime=RUNTIME))
    return [
        Row(ATTACKS[name], ours[name], plain[name], opened.get(name), under.get(name), ours_under.get(name))
        for name in names
    ]


def find_faults(rows: Sequence[Row]) -> list[str]:
    """Breaches outside the residual list, what could not be tried, and checks that have never failed."""
    faults = [f"{row.attack.id}: breach: {row.ours.reason}" for row in rows if row.is_breach]
    faults += [
        f"{row.attack.id}: {row.ours.verdict}: {row.ours.reason}"
        for row in rows
        if row.ours.verdict not in (HELD, BREACH)
    ]
    faults += [
        f"{row.attack.id}: never seen to succeed: {(row.open or row.plain).reason or 'held'}"
        for row in rows
        if not row.is_proven and not row.is_absent
    ]
    return faults
