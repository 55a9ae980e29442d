"""From nothing to the first result: a started box, one command run in it."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from docker import APIClient

from benchmarks.place import Place, create_plain, drop_nothing_dirty, open_client, run_quiet
from benchmarks.run import Contender, Options, alternate, main
from benchmarks.table import Group, compare, state

NOTE = """\
A box with all of its hardening, started over a workspace until `shell true` has answered. Beside it what one does
without corral: `docker run -d`, `docker cp` of 20 files, `docker exec true`, by the docker command; and the least that
any container costs, create and start over the API, without a command run in it. Removal is not counted on any side,
but for the row of the whole process."""


async def measure(options: Options) -> Group:
    place = options.place
    small = place.make_tree("small")
    files = 5_000 if options.quick else 50_000
    large = place.make_tree("large", files=files, file_bytes=20_000)
    drop_nothing_dirty()
    with open_client() as client:
        engine = await alternate(
            options.rounds(15, 5),
            {
                "box": _first_result(place, small),
                "other": _first_result(place, small, image=place.base),
                "docker": _docker_cli(place, small),
                "api": _bare_api(client, place.image),
                "large": _first_result(place, large),
            },
            pause_s=0.1,
        )
    cli = await alternate(
        options.rounds(10, 4),
        {"first": _cli(place, small, _read_first), "whole": _cli(place, small, subprocess.Popen.communicate)},
        pause_s=0.1,
    )
    docker = engine["docker"][: len(cli["whole"])]
    size = f"{files:,} files, {files * 20_000 / 1e9:g} GB"
    rows = [
        compare(
            "first result, in process, 20 files", engine["box"], "docker run, cp, exec", engine["docker"], limit=0.75
        ),
        compare("the same", engine["box"], "API create, start", engine["api"], limit=1.3),
        compare(
            "first result, an image that is not corral's",
            engine["other"],
            "the sandbox image",
            engine["box"],
            limit=1.15,
        ),
        compare(f"first result, {size}", engine["large"], "20 files", engine["box"], limit=1.3),
        compare("`corral exec`, until its first output", cli["first"], "docker run, cp, exec", docker),
        compare(
            "`corral exec`, whole process, patch and removal included", cli["whole"], "docker run, cp, exec", docker
        ),
        state("of these: Python, doing nothing", [await _bare_python() for _ in range(5)]),
    ]
    return Group("start", "First result from nothing", NOTE, rows)


def _first_result(place: Place, workspace: Path, *, image: str | None = None) -> Contender:
    async def contender() -> float:
        began = time.perf_counter()
        with place.run_dir() as run_dir:
            async with place.sandbox(workspace, run_dir, image) as box:
                result = await box.shell("true")
                seconds = time.perf_counter() - began
        assert result.exit_code == 0, result
        return seconds

    return contender


def _docker_cli(place: Place, workspace: Path) -> Contender:
    async def contender() -> float:
        began = time.perf_counter()
        box = run_quiet("docker", "run", "-d", "--network", "none", "--entrypoint", "sleep", place.image, "infinity")
        try:
            run_quiet("docker", "cp", f"{workspace}/.", f"{box}:/workspace")
            run_quiet("docker", "exec", box, "true")
            return time.perf_counter() - began
        finally:
            run_quiet("docker", "rm", "-f", "-v", box)

    return contender


def _bare_api(client: APIClient, image: str) -> Contender:
    async def contender() -> float:
        began = time.perf_counter()
        box = create_plain(client, image)
        try:
            client.start(box)
            return time.perf_counter() - began
        finally:
            client.remove_container(box, force=True, v=True)

    return contender


def _cli(place: Place, workspace: Path, until: Callable[[subprocess.Popen[bytes]], object]) -> Contender:
    command: list[str | Path] = [
        Path(sys.executable).with_name("corral"),
        "exec",
        "-q",
        "-C",
        workspace,
        "--",
        "echo",
        "first",
    ]
    environment = {**os.environ, "XDG_DATA_HOME": str(place.root / "data")}

    async def contender() -> float:
        began = time.perf_counter()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment) as process:
            until(process)
            seconds = time.perf_counter() - began
        assert process.returncode == 0
        return seconds

    return contender


def _read_first(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.read(1) == b"f"


async def _bare_python() -> float:
    began = time.perf_counter()
    await asyncio.to_thread(functools.partial(run_quiet, sys.executable, "-c", "pass"))
    return time.perf_counter() - began


if __name__ == "__main__":
    main(measure)
