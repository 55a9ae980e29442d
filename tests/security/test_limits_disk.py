"""A box that writes as fast as it can: how far past a limit of the workspace it gets before it is ended."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.boxes import make_spec, output

from corral.errors import BoxLost, SandboxError, ToolError
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import GIB, MIB, Limits, WorkspaceMode
from corral.sandbox.workspace.tree.usage import Usage, measure_usage

pytestmark = pytest.mark.docker

MAX_BYTES, MAX_INODES = 100 * MIB, 10_000
LIMITS = Limits(workspace_bytes=MAX_BYTES, workspace_inodes=MAX_INODES, file_bytes=8 * GIB)
OVERSHOOT_BYTES, OVERSHOOT_INODES = 64 * MIB, 5_000

WRITERS = {
    "one large file": "f = open(f'f{me}', 'wb', 0)\nwhile True: f.write(block)",
    "files of a megabyte": "for n in itertools.count(): open(f'f{me}-{n}', 'wb', 0).write(block)",
    "small files": "for n in itertools.count(): open(f'f{me}-{n}', 'wb', 0).write(block[:65536])",
    "files without a name": "fs = []\nwhile True:\n f = open(f'f{me}', 'wb', 0); fs.append(f); os.unlink(f.name)\n"
    " for _ in range(64): f.write(block)",
    "writes of half a gigabyte": "block = bytes(1 << 29)\nf = open(f'f{me}', 'wb', 0)\nwhile True: f.write(block)",
    "reserved space": "for n in itertools.count(): os.posix_fallocate(os.open(f'f{me}-{n}', 66), 0, 1 << 30)",
    "a tree too deep to walk": "for _ in range(140): os.mkdir(f'd{me}'); os.chdir(f'd{me}')\n"
    "for n in itertools.count(): open(f'f{me}-{n}', 'wb', 0).write(block)",
    "a directory nobody may list": "os.mkdir(f'd{me}'); os.chdir(f'd{me}'); os.chmod('.', 0o300)\n"
    "for n in itertools.count(): open(f'f{me}-{n}', 'wb', 0).write(block)",
}
MAKERS = {
    "empty files": "for n in itertools.count(): os.close(os.open(f'f{me}-{n}', os.O_CREAT | os.O_WRONLY))",
    "directories": "for n in itertools.count(): os.mkdir(f'd{me}-{n}')",
    "links": "for n in itertools.count(): os.symlink('x', f'l{me}-{n}')",
}
_HEAD = "import itertools, os\nblock = bytes(1 << 20)\nos.fork(); os.fork(); me = os.getpid()\n"


@pytest.fixture
async def box(tmp_path: Path, image: str) -> AsyncIterator[DockerSandbox]:
    (tmp_path / "workspace").mkdir()
    async with DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image, limits=LIMITS)) as started:
        yield started


def measure(upper: Path) -> Usage:
    descriptor = os.open(upper, os.O_RDONLY)
    try:
        return measure_usage(descriptor, 1 << 60, 1 << 40)
    finally:
        os.close(descriptor)


async def run_to_its_end(box: DockerSandbox, program: str) -> tuple[BoxLost, float]:
    begun = time.monotonic()
    with pytest.raises(BoxLost) as lost:
        await box.exec(["python3", "-c", _HEAD + program], timeout_s=60)
    return lost.value, time.monotonic() - begun


async def test_a_copy_on_the_engines_disk_is_watched_through_the_toolbox(tmp_path: Path, image: str) -> None:
    """No host directory to look into: the toolbox tells what its disk has left, and scans when that is suspicious."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/large").write_bytes(os.urandom(60 * MIB))
    limits = Limits(
        memory_bytes=256 * MIB,  # too little for a tmpfs of this size
        tmp_bytes=8 * MIB,
        home_bytes=8 * MIB,
        shm_bytes=MIB,
        workspace_bytes=MAX_BYTES,
        workspace_inodes=MAX_INODES,
        file_bytes=8 * GIB,
    )
    spec = make_spec(tmp_path / "workspace", tmp_path, image, limits=limits, mode=WorkspaceMode.COPY)
    for program, limit, slack in (
        (WRITERS["files of a megabyte"], MAX_BYTES, OVERSHOOT_BYTES),
        (MAKERS["empty files"], MAX_INODES, OVERSHOOT_INODES),
    ):
        tries = list[int]()  # see find_least
        while len(tries) < TRIES and (not tries or min(tries) >= limit + slack):
            async with DockerSandbox(spec) as box:
                assert "watched" in box.info.warnings[0]
                lost, _ = await run_to_its_end(box, program)
            assert (lost.cause, ("bytes" in lost.message)) == ("disk_full", limit == MAX_BYTES)
            tries.append(int(re.findall(r"\d+", lost.message)[0]))
        assert limit < min(tries) < limit + slack


TRIES = 6


async def overshoot(folder: Path, image: str, program: str) -> tuple[int, int]:
    """How many bytes and inodes past the limits a new box got."""
    folder.mkdir()
    (folder / "workspace").mkdir()
    async with DockerSandbox(make_spec(folder / "workspace", folder, image, limits=LIMITS)) as box:
        upper = box.prepared.upper
        assert upper is not None
        lost, took_s = await run_to_its_end(box, program)
        assert lost.cause == "disk_full"
        # du goes as deep as it must. What had no name is gone with the box: then the watch's own word.
        told = subprocess.run(["du", "-s", "--block-size=1", upper], capture_output=True, check=True)
        seen = int(re.findall(r"\d+", lost.message)[0]) if "bytes" in lost.message else 0
        past = max(int(told.stdout.split()[0]), seen) - MAX_BYTES, measure(upper).inodes - MAX_INODES
        print(f"{past[0] / MIB:+.0f} MiB, {past[1]:+d} files in {took_s:.2f} s")
        return past


async def find_least(tmp_path: Path, image: str, program: str, which: int, bound: int) -> int:
    """On a machine that is busy with other things, the watch may not get a processor in time."""
    tries = list[int]()
    while len(tries) < TRIES and (not tries or min(tries) >= bound):
        tries.append((await overshoot(tmp_path / str(len(tries)), image, program))[which])
    return min(tries)


@pytest.mark.parametrize("name", WRITERS)
async def test_a_writer_at_full_speed_is_ended_in_time(tmp_path: Path, image: str, name: str) -> None:
    assert 0 < await find_least(tmp_path, image, WRITERS[name], 0, OVERSHOOT_BYTES) < OVERSHOOT_BYTES


@pytest.mark.parametrize("name", MAKERS)
async def test_a_maker_of_files_at_full_speed_is_ended_in_time(tmp_path: Path, image: str, name: str) -> None:
    assert 0 < await find_least(tmp_path, image, MAKERS[name], 1, OVERSHOOT_INODES) < OVERSHOOT_INODES


async def test_space_cannot_be_reserved_at_a_stroke_and_programs_fall_back(box: DockerSandbox) -> None:
    program = (
        "import ctypes, errno, os; libc = ctypes.CDLL(None, use_errno=True); f = os.open('f', os.O_CREAT | os.O_RDWR)\n"
        "off = ctypes.c_long\n"
        "failed = libc.fallocate(f, 0, off(0), off(1 << 20)) and ctypes.get_errno() == errno.EOPNOTSUPP\n"
        "print(failed, os.fstat(f).st_size)\n"
        "os.posix_fallocate(f, 0, 1 << 20); print(os.fstat(f).st_size, os.fstat(f).st_blocks >= 2048)"
    )
    result = await box.exec(["python3", "-c", program])
    assert output(result.stdout).decode().splitlines() == ["True 0", "1048576 True"]


async def test_nobody_is_refused_while_a_box_is_looked_at(box: DockerSandbox, tmp_path: Path) -> None:
    """Somebody else's files on the same disk make the box suspicious again and again."""
    (box_side := tmp_path / "others").mkdir()
    refused = list[ToolError]()
    for round_ in range(6):
        (box_side / str(round_)).write_bytes(bytes(130 * MIB))
        for _ in range(20):
            try:
                assert (await box.shell("echo x >> log")).exit_code == 0
            except ToolError as error:
                refused.append(error)
    assert refused == []
    assert (await box.shell("wc -l < log")).stdout.total_bytes == 4


async def test_a_box_that_is_frozen_stays_so_while_it_is_looked_at(box: DockerSandbox, tmp_path: Path) -> None:
    ticking = asyncio.ensure_future(box.shell("while sleep 0.02; do echo x >> ticks; done", timeout_s=8))
    await asyncio.sleep(0.4)
    await box.freeze()
    (tmp_path / "others").write_bytes(bytes(130 * MIB))
    upper = box.prepared.upper
    assert upper is not None
    before = (upper / "ticks").stat().st_size
    await asyncio.sleep(0.7)
    assert (upper / "ticks").stat().st_size == before
    await box.thaw()
    await asyncio.sleep(0.3)
    assert (upper / "ticks").stat().st_size > before
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)


async def test_no_box_starts_on_a_disk_that_is_nearly_full(tmp_path: Path, image: str) -> None:
    (tmp_path / "workspace").mkdir()
    limits = Limits(min_free_bytes=1 << 60)
    with pytest.raises(SandboxError, match="the disk is nearly full"):
        await DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image, limits=limits)).start()
