"""What the toolbox itself takes in a box at rest."""

from __future__ import annotations

import asyncio
import os

from benchmarks.place import open_client
from benchmarks.run import Options, main
from benchmarks.table import Group, state_size
from corral.sandbox.docker import DockerSandbox

NOTE = """\
Proportional size (PSS) of all its processes together, after twenty calls and file operations: the first process, the
supervisors that wait for the next call, the file workers. At rest, after ten seconds without a request, there is one
of each, forked anew. Every box has it inside its own memory limit. Root reads it from outside; else it is what the
toolbox says of itself."""
REST_S = 12.0


async def measure(options: Options) -> Group:
    place = options.place
    workspace = place.make_tree("small")
    rest, busy = list[int](), list[int]()
    for _ in range(options.rounds(3, 1)):
        async with place.box(workspace) as (box, _):
            for _ in range(20):
                await box.shell("true")
                await box.read_file("d000/f000.txt")
            busy.append(await _read_pss(box))
            await asyncio.sleep(REST_S)
            rest.append(await _read_pss(box))
    rows = [state_size("toolbox at rest", rest, limit=18), state_size("toolbox after a burst", busy)]
    return Group("memory", "Memory of the toolbox", NOTE, rows)


async def _read_pss(box: DockerSandbox) -> int:
    if os.geteuid() != 0:
        return (await box.stats()).pss
    with open_client() as client:
        rows = client.top(box.info.box_id, "-eo pid")["Processes"]
    return sum(_read_rollup(int(row[0])) for row in rows)


def _read_rollup(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))


if __name__ == "__main__":
    main(measure)
