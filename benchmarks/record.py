"""The same calls as a model makes them: checked, decided by policy, written into the record and synced."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import docker

from benchmarks.call import PAUSE_S, TEXT
from benchmarks.place import open_client, plain_container
from benchmarks.run import Contender, Options, alternate, main, timed, timed_blocking
from benchmarks.table import Group, compare, state
from corral.policy import PolicyEngine, SessionPolicy
from corral.record import RecordLog
from corral.sandbox.docker import DockerSandbox
from corral.schema.policy import Effect, Mode, PolicySession, Preset
from corral.schema.tools import ToolCall
from corral.store.run_dir import RunDir
from corral.tools.base import ToolTimeouts
from corral.tools.builtin import build_tools
from corral.tools.builtin.read import build_read_file
from corral.tools.executor import ToolExecutor
from corral.tools.outputs import OutputStore
from corral.tools.registry import ToolRegistry

FILES = 40
NOTE = """\
Through the tool executor with the preset `auto` and a real record: arguments validated, policy decided, four events
chained and written; before a call with a side effect the record is synced to the disk, which is in the numbers. The
cost of one such sync alone stands beside: one belongs to each `shell` and `write_file`, none to `read_file`. With the
record in memory, where a sync costs nothing, what is left is corral's own part; the same calls to the box alone stand
beside too. Reads and writes go round forty files. Policy keeps its answers: what it costs to ask about a path for the
first time is the row of the new path."""
MEMORY = Path("/dev/shm")


async def measure(options: Options) -> Group:
    place = options.place
    workspace = place.make_tree("small")
    (workspace / "ten").mkdir()
    for number in range(FILES):
        (workspace / "ten" / f"{number}.txt").write_text(TEXT)
    turns = count()
    with open_client() as client, plain_container(client, place.image) as plain:
        engine = docker.DockerClient(version="1.41")
        container = engine.containers.get(plain)
        async with place.box(workspace) as (box, run_dir):
            with (
                RecordLog.open(run_dir.record) as record,
                tempfile.TemporaryDirectory(dir=MEMORY) as memory,
                RecordLog.open(Path(memory) / "record.jsonl") as weightless,
            ):
                use, use_light = (_tools(box, run_dir, log) for log in (record, weightless))
                found = await alternate(
                    options.rounds(200, 40),
                    {
                        "shell": timed(lambda: use("shell", command="true")),
                        "sh": timed_blocking(lambda: subprocess.run(["sh", "-c", "true"], check=True)),
                        "read": timed(lambda: use("read_file", path=f"ten/{next(turns) % FILES}.txt")),
                        "write": timed(lambda: _write(use, f"ten/{next(turns) % FILES}.txt")),
                        "sync": _sync(run_dir),
                        "box shell": timed(lambda: box.shell("true")),
                        "box read": timed(lambda: box.read_file(f"ten/{next(turns) % FILES}.txt")),
                        "box write": timed(lambda: box.write_file(f"ten/{next(turns) % FILES}.txt", TEXT.encode())),
                        "decide": _decide_anew(),
                        "light shell": timed(lambda: use_light("shell", command="true")),
                        "light write": timed(lambda: _write(use_light, f"ten/{next(turns) % FILES}.txt")),
                        "exec_run": timed_blocking(lambda: container.exec_run(["true"])),
                    },
                    pause_s=PAUSE_S,
                    warm=2,
                )
        engine.close()
    docker_name = "docker-py exec_run"
    rows = [
        compare("shell: true", found["shell"], docker_name, found["exec_run"], limit=1 / 15, aim=1 / 20),
        compare("shell: true", found["shell"], "`sh -c true` on the host", found["sh"], limit=4, aim=3),
        compare("read_file, 10 KB", found["read"], docker_name, found["exec_run"], limit=1 / 30),
        compare("write_file, 10 KB", found["write"], docker_name, found["exec_run"], limit=1 / 30),
        state("of these: one sync of the record's disk", found["sync"]),
        state("of these: the same `shell` without record and policy", found["box shell"]),
        state("the same read", found["box read"]),
        state("the same write", found["box write"]),
        state("a decision about a new path", found["decide"]),
        compare("shell, the record in memory", found["light shell"], docker_name, found["exec_run"]),
        compare("the same", found["light shell"], "`sh -c true` on the host", found["sh"]),
        compare("write_file, the record in memory", found["light write"], docker_name, found["exec_run"]),
    ]
    return Group("record", "A warm call with record and policy", NOTE, rows)


def _tools(box: DockerSandbox, run_dir: RunDir, record: RecordLog) -> Callable[..., Awaitable[None]]:
    async def no_diff() -> str:
        return ""

    session = PolicySession(id=run_dir.run_id, preset=Preset.AUTO, mode=Mode.BUILD)
    executor = ToolExecutor(
        ToolRegistry(build_tools(no_diff)),
        decider=SessionPolicy(PolicyEngine.load_preset(Preset.AUTO), session),
        recorder=record,
        sandbox=box,
        outputs=OutputStore(record.path.parent / "outputs"),
    )
    numbers = count(1)

    async def use(name: str, **arguments: object) -> None:
        result = await executor.execute(ToolCall(id=f"c{next(numbers)}", name=name, arguments=arguments))
        assert result.success, result

    return use


async def _write(use: Callable[..., Awaitable[None]], path: str) -> None:
    await use("write_file", path=path, content=TEXT, overwrite=True)


def _decide_anew() -> Contender:
    policy = SessionPolicy(PolicyEngine.load_preset(Preset.AUTO), PolicySession(id="b"))
    spec = build_read_file(ToolTimeouts()).spec
    numbers = count()

    def decide() -> None:
        call = ToolCall(id="c", name=spec.name, arguments={"path": f"src/{next(numbers)}.py"})
        assert policy.decide(spec, call).effect is Effect.ALLOW

    return timed_blocking(decide)


def _sync(run_dir: RunDir) -> Contender:
    descriptor = os.open(run_dir.path / "sync", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def contender() -> float:
        # As a call does it: what was written after the last sync goes with it, and the disk has rested meanwhile.
        os.write(descriptor, b"x" * 900)
        await asyncio.sleep(0.002)
        os.write(descriptor, b"x" * 1900)
        began = time.perf_counter()
        os.fdatasync(descriptor)
        return time.perf_counter() - began

    return contender


if __name__ == "__main__":
    main(measure)
