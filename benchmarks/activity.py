"""What the record of processes and connections costs: the same work in a box that is watched and in one that is not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from benchmarks.place import Place
from benchmarks.run import Contender, Options, alternate, main
from benchmarks.table import Group, Row, compare
from corral.agent.processes import ProcessTrail
from corral.record import RecordLog
from corral.sandbox.docker import DockerSandbox

NOTE = """\
Each in two boxes by turns: one is watched and its events go into a record, all the way; the other is not, and says
nothing. The build is `make -j2` over small C files, five programs each (make's shell, gcc, cc1, as, and `true` in place
of a linker). What watching adds is per program, and dominated by the two changes of process (the caller waits until its
supervisor has looked) and by the dozen reads of /proc and of its memory in between; writing the event goes on beside.
So it shows most where programs do nothing, and is lost in a compiler's own time. `xargs -P2` waits for each program to
have begun before it starts the next, and what is added is added to that."""
BUILD = """
sources := $(wildcard src/*.c)
all: $(sources:.c=.o)
%.o: %.c
	@gcc -O1 -c $< -o $@ && /bin/true
"""
PER_FILE = 5
SOURCE = "int f{0}(int a) {{ int sum = 0; for (int i = 0; i < a; i++) sum += i * {0}; return sum; }}\n"


async def measure(options: Options) -> Group:
    files = options.rounds(4000, 200)
    many = options.rounds(2000, 400)
    workspace = _make_sources(options.place, files)
    build = f"find src -name '*.o' -delete; make -s -j2; test $(ls src/*.o | wc -l) = {files}"
    plain = f"for ((i = 0; i < {many}; i++)); do /bin/true; done"
    side_by_side = f"seq {many} | xargs -P2 -n1 /bin/true"
    rows: list[Row] = []
    async with _watched_box(options.place, workspace) as watched, _silent_box(options.place, workspace) as silent:
        for what, command, rounds, limit in (
            (f"parallel build, {PER_FILE * files:,} processes", build, options.rounds(2, 1), 1.3),
            (f"{many:,} × `true`, one after the other", plain, options.rounds(10, 3), 2.0),
            (f"{many:,} × `true` by `xargs -P2`", side_by_side, options.rounds(10, 3), None),
        ):
            found = await alternate(
                rounds, {"watched": _run(watched, command), "silent": _run(silent, command)}, pause_s=0.2
            )
            rows.append(compare(what, found["watched"], "the same, not watched", found["silent"], limit=limit))
    return Group("activity", "Watching what runs", NOTE, rows)


def _make_sources(place: Place, files: int) -> Path:
    workspace = place.root / "build"
    (workspace / "src").mkdir(parents=True)
    (workspace / "Makefile").write_text(BUILD)
    for number in range(files):
        (workspace / "src" / f"f{number}.c").write_text(SOURCE.format(number))
    return workspace


@contextlib.asynccontextmanager
async def _watched_box(place: Place, workspace: Path) -> AsyncIterator[DockerSandbox]:
    with place.run_dir() as run_dir, RecordLog.open(run_dir.record, max_claims=10_000_000) as log:
        spec = replace(place.spec(workspace, run_dir), observe=ProcessTrail(log).observe)
        async with DockerSandbox(spec) as box:
            yield box


@contextlib.asynccontextmanager
async def _silent_box(place: Place, workspace: Path) -> AsyncIterator[DockerSandbox]:
    with place.run_dir() as run_dir:
        async with DockerSandbox(replace(place.spec(workspace, run_dir), watch=False)) as box:
            yield box


def _run(box: DockerSandbox, command: str) -> Contender:
    async def contender() -> float:
        began = time.perf_counter()
        result = await box.shell(command, timeout_s=1200)
        seconds = time.perf_counter() - began
        assert result.exit_code == 0, result
        return seconds

    return contender


if __name__ == "__main__":
    main(measure)
