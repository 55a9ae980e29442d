"""A command that prints 100 MB: how long until the orchestrator has it all, and what that costs in memory."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from docker import APIClient

from benchmarks.place import Place, open_client, plain_container
from benchmarks.run import Contender, Options, alternate, main
from benchmarks.table import Group, compare, state_size
from corral.sandbox.docker import DockerSandbox

NOTE = """\
`head -c 100000000 /dev/zero`, every byte received. corral keeps stdout and stderr apart, and so does docker-py's
`exec_run(demux=True)`: that is the call it is held against, ended after 15 seconds because it may take minutes (it
copies all it has for each piece), so the ratio is an upper bound. Beside it, for the transport alone, docker-py's mixed
stream, read piece by piece and thrown away. Memory is the growth of the orchestrator's largest
resident size over the call, in a process of its own that has done a small call before."""
SIZE = 100_000_000
_PATIENCE_S = 15.0
_APART = """
import sys, docker
docker.from_env(timeout=300).containers.get(sys.argv[1]).exec_run(sys.argv[2:], demux=True)
"""
COMMAND: list[str | bytes] = ["head", "-c", str(SIZE), "/dev/zero"]
_SELF = """
import asyncio, json, sys
from pathlib import Path
from benchmarks.output import measure_growth
from benchmarks.place import Place
print(json.dumps(asyncio.run(measure_growth(Place(Path(sys.argv[1]), *sys.argv[2:])))))
"""


async def measure(options: Options) -> Group:
    place = options.place
    workspace = place.make_tree("small")
    with open_client() as client, plain_container(client, place.image) as plain:
        async with place.box(workspace) as (box, _):
            found = await alternate(
                options.rounds(5, 2),
                {"box": _stream(box), "docker": _docker(client, plain), "apart": _docker_apart(plain)},
                pause_s=0.1,
            )
    growth = [await _grow_in_fresh_process(options) for _ in range(options.rounds(5, 2))]
    rows = [
        compare("100 MB of output", found["box"], "docker-py exec_run, streams apart", found["apart"], limit=1 / 4),
        compare("the same", found["box"], "docker-py, one mixed stream", found["docker"]),
        state_size("more memory in the orchestrator", growth, limit=8),
    ]
    return Group("output", "A flood of output", NOTE, rows)


def _stream(box: DockerSandbox) -> Contender:
    async def contender() -> float:
        seen = 0

        def take(data: memoryview) -> None:
            nonlocal seen
            seen += len(data)

        began = time.perf_counter()
        result = await box.exec(COMMAND, stdout=take, stream_limit=-1)
        seconds = time.perf_counter() - began
        assert (seen, result.exit_code) == (SIZE, 0)
        return seconds

    return contender


def _docker(client: APIClient, container: str) -> Contender:
    async def contender() -> float:
        began = time.perf_counter()
        command = client.exec_create(container, [*COMMAND])["Id"]
        seen = sum(len(piece) for piece in client.exec_start(command, stream=True))
        seconds = time.perf_counter() - began
        assert seen == SIZE
        return seconds

    return contender


def _docker_apart(container: str) -> Contender:
    async def contender() -> float:
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", _APART, container, *map(str, COMMAND))
        try:
            await asyncio.wait_for(process.wait(), _PATIENCE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        return time.perf_counter() - began

    return contender


async def _grow_in_fresh_process(options: Options) -> int:
    place = options.place
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SELF, str(place.root), place.image, place.base, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return int(json.loads(out))


async def measure_growth(place: Place) -> int:
    """Bytes by which this process has grown at its largest while a command printed 100 MB."""
    async with place.box(place.root / "small") as (box, _):
        await box.exec(["head", "-c", "100000", "/dev/zero"], stdout=lambda data: None, stream_limit=-1)
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # forget the largest size so far
        before = _read_status("VmRSS")
        await _stream(box)()
        return _read_status("VmHWM") - before


def _read_status(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) << 10
    raise LookupError(name)


if __name__ == "__main__":
    main(measure)
