"""Boxes to hold to the contract: one maker per implementation, with the commands the suite uses."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker

from corral.sandbox.base import Sandbox
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.engine import Engine
from corral.sandbox.labels import RUN
from corral.sandbox.spec import SandboxSpec
from corral.testing import FakeCall, FakeConsole, FakeOutcome, FakeSandbox
from corral_protocol.message import Capture

MakeBox = Callable[..., Sandbox]


def run_script(call: FakeCall) -> FakeOutcome | None:
    """What the suite's commands do, for the fake."""
    line = b" ".join(call.argv).decode()
    if line == "cat":
        return FakeOutcome(stdout=call.stdin)
    if line == "echo > ran":
        (Path(os.fsdecode(call.cwd)) / "ran").write_text("\n")
        return FakeOutcome()
    return {
        "true": FakeOutcome(),
        "echo out; echo err >&2; exit 3": FakeOutcome(3, b"out\n", b"err\n"),
        "kill -9 $$": FakeOutcome(signal=9),
        "sleep 60": FakeOutcome(takes_s=60.0),
        "head -c 100000 /dev/zero": FakeOutcome(stdout=bytes(100_000)),
        "printf '\\377\\000'": FakeOutcome(stdout=b"\xff\0"),
    }.get(line)


GREETER = "echo ready; read -r line; echo got $line"
COUNTER = "trap 'echo hup; exit 5' HUP; echo ready; while :; do sleep 0.05; done"
RESIZER = "trap 'stty size; exit 3' WINCH; stty size; while :; do sleep 0.05; done"


async def _greet(console: FakeConsole) -> int:
    await console.write(b"ready\n")
    async for line in console.stdin:
        await console.write(b"got " + line)
        return 0
    return 1


async def _count(console: FakeConsole) -> int:
    await console.write(b"ready\n")
    while await console.signals.get() != 1:
        pass
    await console.write(b"hup\n")
    return 5


async def _resize(console: FakeConsole) -> int:
    assert console.size is not None
    await console.write(b"%d %d\n" % (console.size.rows, console.size.columns))
    size = await console.sizes.get()
    await console.write(b"%d %d\n" % (size.rows, size.columns))
    return 3


_PROGRAMS = {f"sh -c {line}": program for line, program in ((GREETER, _greet), (COUNTER, _count), (RESIZER, _resize))}


def make_spec(workspace: Path, folder: Path, image: str, **changes: Any) -> SandboxSpec:
    run_dir = folder / f"run-{secrets.token_hex(4)}"
    run_dir.mkdir(mode=0o700)
    spec = SandboxSpec(workspace=workspace, run_dir=run_dir, run_id=run_dir.name, image=image)
    return replace(spec, **changes)


def docker_maker(image: str, engine: Engine | None = None) -> MakeBox:
    def make(workspace: Path, folder: Path, **changes: Any) -> Sandbox:
        return DockerSandbox(make_spec(workspace, folder, image, **changes), engine=engine)

    return make


def fake_maker(workspace: Path, folder: Path) -> Sandbox:
    return FakeSandbox(workspace, run_script, programs=_PROGRAMS)


def output(capture: Capture) -> bytes:
    return base64.b64decode(capture.head_b64) + base64.b64decode(capture.tail_b64)


def find_leftovers(client: docker.DockerClient, run_id: str) -> list[str]:
    """Everything in the engine, the mount table and /tmp that a run left."""
    label = {"label": f"{RUN}={run_id}"}
    found = [str(c["Names"]) for c in client.api.containers(all=True, filters=label)]
    found += [v["Name"] for v in client.api.volumes(filters=label)["Volumes"] or []]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if run_id in line]
    for entry in os.scandir("/tmp"):
        owner = Path(entry.path) / "owner.json"
        if entry.name.startswith("corral-") and owner.is_file() and run_id in owner.read_text():
            found.append(entry.path)
    return found
