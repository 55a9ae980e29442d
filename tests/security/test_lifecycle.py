"""How boxes end, and that none is left: many of them, out of memory, killed, on a full disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import docker
import psutil
import pytest
from tests.contract.boxes import find_leftovers, make_spec, output
from tests.support.command import corral

from corral.errors import BoxLost
from corral.record import load_state, verify_record
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.labels import OWNER_PID
from corral.sandbox.spec import MIB, Limits

pytestmark = pytest.mark.docker


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
async def small(workspace: Path, tmp_path: Path, image: str) -> AsyncIterator[DockerSandbox]:
    """A box with little memory."""
    limits = Limits(memory_bytes=256 * MIB)
    async with DockerSandbox(make_spec(workspace, tmp_path, image, limits=limits)) as started:
        yield started


def count_own(engine: docker.DockerClient) -> tuple[int, int, int, int]:
    """What this process has now: containers, volumes, directories of links, open descriptors."""
    mark = {"label": f"{OWNER_PID}={os.getpid()}"}
    return (
        len(engine.api.containers(all=True, filters=mark)),
        len(engine.api.volumes(filters=mark)["Volumes"] or ()),
        sum(f'"{os.getpid()}"' in owner.read_text() for owner in Path("/tmp").glob("corral-*/owner.json")),
        len(os.listdir("/proc/self/fd")),
    )


async def settle(engine: docker.DockerClient, before: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    for _ in range(100):
        if count_own(engine) <= before:
            break
        await asyncio.sleep(0.1)
    return count_own(engine)


async def test_a_row_of_boxes_leaves_none(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient, rounds: Callable[[int], int]
) -> None:
    async with DockerSandbox(make_spec(workspace, tmp_path, image)) as box:  # what is made once is made now
        assert (await box.exec(["true"])).exit_code == 0
    before = count_own(docker_engine)
    for _ in range(rounds(200)):
        async with DockerSandbox(make_spec(workspace, tmp_path, image)) as box:
            assert (await box.exec(["true"])).exit_code == 0
    after = await settle(docker_engine, before)
    assert after[:3] == before[:3]
    assert after[3] <= before[3] + 2


async def test_sixteen_at_once_leave_none(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    before = count_own(docker_engine)
    boxes = [DockerSandbox(make_spec(workspace, tmp_path, image)) for _ in range(16)]
    try:
        infos = await asyncio.gather(*[box.start() for box in boxes])
        results = await asyncio.gather(*[box.shell("echo $((1 + 1))") for box in boxes])
        assert [output(result.stdout) for result in results] == [b"2\n"] * 16
    finally:
        await asyncio.gather(*[box.dispose() for box in boxes])
    assert [find_leftovers(docker_engine, info.run_id) for info in infos] == [[]] * 16
    assert (await settle(docker_engine, before))[:3] == before[:3]


def find_processes(engine: docker.DockerClient, box: DockerSandbox) -> tuple[psutil.Process, list[psutil.Process]]:
    """The box's first process, and the rest."""
    first = psutil.Process(engine.api.inspect_container(box.info.box_id)["State"]["Pid"])
    return first, first.children(recursive=True)


HUNGRY = """
import os, time
open("/tmp/ready", "w").close()
while not os.path.exists("/tmp/go"):
    time.sleep(0.01)
kept = [bytearray(1 << 20) for _ in range(1000)]
"""
"""Takes all memory, once it is told to."""


async def wait_for_hungry(box: DockerSandbox) -> None:
    while (await box.exec(["test", "-e", "/tmp/ready"])).exit_code:
        await asyncio.sleep(0.02)


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the score of another user's process: needs root")
@pytest.mark.parametrize("losses", [0, 1])
async def test_a_box_whose_toolbox_the_kernel_takes_is_told_as_out_of_memory(
    small: DockerSandbox, docker_engine: docker.DockerClient, losses: int
) -> None:
    """Whatever the kernel took before. The host makes the toolbox the victim: else the kernel never takes it."""
    for _ in range(losses):
        result = await small.exec(["python3", "-c", "x = bytearray(400 << 20)"])
        assert (result.signal, result.oom_kills) == (9, 1)
    hungry = asyncio.ensure_future(small.exec(["python3", "-c", HUNGRY], timeout_s=60))
    await wait_for_hungry(small)
    first, rest = find_processes(docker_engine, small)
    for process in rest:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that has just ended
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("0")
    Path(f"/proc/{first.pid}/oom_score_adj").write_text("1000")
    with contextlib.suppress(BoxLost):  # it may be gone before this is answered
        await small.exec(["touch", "/tmp/go"])
    with pytest.raises(BoxLost, match="ran out of memory") as lost:
        await hungry
    assert lost.value.cause == "oom"


@pytest.mark.skipif(os.geteuid() != 0, reason="kills another user's process: needs root")
async def test_a_kill_after_an_earlier_shortage_of_memory_is_a_kill(
    small: DockerSandbox, docker_engine: docker.DockerClient
) -> None:
    result = await small.exec(["python3", "-c", "x = bytearray(400 << 20)"])
    assert (result.signal, result.oom_kills) == (9, 1)
    await asyncio.sleep(0.3)  # the engine tells it, and the toolbox answers since
    first, _ = find_processes(docker_engine, small)
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(BoxLost) as lost:
        await small.shell("sleep 5")
    assert lost.value.cause == "killed"


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 MiB for corral's data, as a host's disk."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "none", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system of its own can be mounted here: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_box_that_fills_the_hosts_disk_ends_with_a_whole_record(
    workspace: Path, home: Path, image: str, little_disk: Path
) -> None:
    settings = home / "xdg_config_home/corral/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'image = "{image}"\n[limits]\nmin_free = "100 MiB"\n')
    env = {"XDG_DATA_HOME": str(little_disk)}
    command = "echo kept > kept; for i in $(seq 100); do head -c 10000000 /dev/zero > f$i || exit 9; done; sleep 30"
    ran = corral("exec", "--json", "-C", str(workspace), "--", "sh", "-c", command, env=env)
    answer = ran.json()
    assert (ran.code, answer["cause"]) == (125, "disk_full")
    assert "the disk is nearly full" in str(answer["error"])
    free = os.statvfs(little_disk)
    assert free.f_bavail * free.f_frsize > 30 * MIB  # min_free less the overshoot
    (record,) = little_disk.glob("corral/runs/*/record.jsonl")
    report = verify_record(record)
    assert (report.ok, report.finished) == (True, True)
    finished = load_state(record).finished
    assert finished is not None
    assert finished.stop_reason == "box_lost"


def test_no_run_starts_on_a_disk_that_is_nearly_full(
    workspace: Path, home: Path, image: str, little_disk: Path
) -> None:
    settings = home / "xdg_config_home/corral/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'image = "{image}"\n')
    ran = corral("exec", "-C", str(workspace), "--", "true", env={"XDG_DATA_HOME": str(little_disk)})
    assert ran.code == 125
    assert any("the disk is nearly full: " in line for line in ran.err)
    assert any("limits.min_free" in line for line in ran.err)


def test_a_disk_without_a_byte_left_ends_no_record_in_the_middle(
    workspace: Path, home: Path, image: str, little_disk: Path
) -> None:
    """The box is faster than the watch when next to nothing is to stay free."""
    settings = home / "xdg_config_home/corral/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'image = "{image}"\n[limits]\nmin_free = "1 MiB"\n')
    env = {"XDG_DATA_HOME": str(little_disk)}
    ran = corral("exec", "-C", str(workspace), "--", "sh", "-c", "cat /dev/zero > big 2> /dev/null; sleep 1", env=env)
    assert ran.code == 125
    (record,) = little_disk.glob("corral/runs/*/record.jsonl")
    report = verify_record(record)
    assert (report.ok, report.finished) == (True, True)
