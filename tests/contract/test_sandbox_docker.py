"""What only a real box can show: process trees, causes of loss, and that nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import pytest
from tests.contract.boxes import find_leftovers, make_spec, output

from corral.errors import BoxLost, ConfigError, EngineUnavailable, ImageError
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.engine import Engine
from corral.sandbox.gc import collect_garbage
from corral.sandbox.labels import RUN
from corral.sandbox.spec import MIB, Limits, WorkspaceMode
from corral_protocol.message import ExecStatus

pytestmark = pytest.mark.docker


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


@pytest.fixture
async def box(workspace: Path, tmp_path: Path, image: str) -> AsyncIterator[DockerSandbox]:
    async with DockerSandbox(make_spec(workspace, tmp_path, image)) as started:
        yield started


async def test_time_limit_kills_the_whole_tree_and_spares_neighbours(box: DockerSandbox) -> None:
    neighbour = asyncio.ensure_future(box.shell("sleep 1.5; echo alive"))
    await asyncio.sleep(0.2)
    result = await box.shell("setsid sleep 333 & (sleep 333 &) ; sleep 333", timeout_s=0.5)
    assert result.status is ExecStatus.TIMEOUT
    assert output((await neighbour).stdout) == b"alive\n"
    assert (await box.shell("pgrep -c -f 'sleep 333$'")).exit_code == 1


async def test_cancel_kills_the_whole_tree(box: DockerSandbox) -> None:
    call = asyncio.ensure_future(box.shell("setsid sleep 333 & sleep 333"))
    await asyncio.sleep(0.3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await box.shell("pgrep -c -f 'sleep 333$'")).exit_code == 1


async def test_a_sink_that_fails_ends_the_command(box: DockerSandbox) -> None:
    def sink(piece: memoryview) -> None:
        raise BrokenPipeError("the reader has gone")

    with pytest.raises(BrokenPipeError):
        await asyncio.wait_for(box.exec(["yes"], stdout=sink, stream_limit=-1), 10)
    assert (await box.shell("pgrep -c yes")).exit_code == 1


async def test_a_background_child_does_not_hang_the_call(box: DockerSandbox) -> None:
    got = bytearray()
    started = time.monotonic()
    result = await box.shell("(while sleep 0.05; do echo tick; done) & echo now", stdout=got.extend)
    assert (time.monotonic() - started < 3, result.background > 0, bytes(got[:4])) == (True, True, b"now\n")
    await asyncio.sleep(0.5)  # the child goes on writing into a stream whose call is over
    assert (await box.shell("true")).exit_code == 0


async def test_freeze_stops_and_thaw_lets_go(box: DockerSandbox, workspace: Path) -> None:
    call = asyncio.ensure_future(box.shell("while :; do echo x >> t; done", timeout_s=20))
    await asyncio.sleep(0.5)
    assert (await box.freeze()).unstoppable == 0
    assert box.prepared.upper is not None
    before = (box.prepared.upper / "t").read_bytes()
    await asyncio.sleep(0.3)
    assert (box.prepared.upper / "t").read_bytes() == before
    await box.thaw()
    await asyncio.sleep(0.3)
    assert (box.prepared.upper / "t").read_bytes() != before
    await box.kill_all()
    assert (await call).status is ExecStatus.KILLED


async def test_the_original_stays_as_it_was(box: DockerSandbox, workspace: Path) -> None:
    await box.shell("echo changed > a.txt; rm -f a.txt; touch b")
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"a.txt": "one\n"}


@pytest.mark.parametrize("mode", [WorkspaceMode.OVERLAY, WorkspaceMode.COPY])
async def test_both_modes_show_the_workspace(workspace: Path, tmp_path: Path, image: str, mode: WorkspaceMode) -> None:
    async with DockerSandbox(make_spec(workspace, tmp_path, image, mode=mode)) as box:
        assert box.info.mode is mode
        result = await box.shell("cat a.txt; pwd; stat -c %U a.txt")
        assert output(result.stdout) == b"one\n/workspace\nbox\n"


async def test_the_command_environment(workspace: Path, tmp_path: Path, image: str) -> None:
    async with DockerSandbox(make_spec(workspace, tmp_path, image, env={"A": "1 é\udcff"})) as box:
        result = await box.shell('printf "$A|$B|$HOME"', env={"B": "2"})
        assert output(result.stdout) == "1 é".encode() + b"\xff|2|/home/box"


async def test_eight_at_once_and_nothing_left(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    boxes = [DockerSandbox(make_spec(workspace, tmp_path, image)) for _ in range(8)]
    try:
        infos = await asyncio.gather(*[box.start() for box in boxes])
        assert len({info.box_id for info in infos}) == 8
        results = await asyncio.gather(*[box.shell("echo $0; ls") for box in boxes])
        assert [output(result.stdout) for result in results] == [b"bash\na.txt\n"] * 8
    finally:
        await asyncio.gather(*[box.dispose() for box in boxes])
    assert [find_leftovers(docker_engine, info.run_id) for info in infos] == [[]] * 8


async def test_cancelled_at_any_moment_of_the_start_leaves_nothing(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    specs = [make_spec(workspace, tmp_path, image) for _ in range(12)]
    for number, spec in enumerate(specs):
        box = DockerSandbox(spec)
        start = asyncio.ensure_future(box.start())
        await asyncio.sleep(0.02 * number)
        start.cancel()
        await asyncio.wait((start,))
        if not start.cancelled():  # it was faster than we are
            await box.dispose()
        assert find_leftovers(docker_engine, spec.run_id) == []


async def test_docker_kill_is_told_within_two_seconds(box: DockerSandbox, docker_engine: docker.DockerClient) -> None:
    call = asyncio.ensure_future(box.shell("sleep 60"))
    await asyncio.sleep(0.2)
    docker_engine.api.kill(box.info.box_id)
    started = time.monotonic()
    with pytest.raises(BoxLost) as caught:
        await call
    assert (caught.value.cause, time.monotonic() - started < 2) == ("killed", True)


async def test_docker_rm_is_told_as_killed(box: DockerSandbox, docker_engine: docker.DockerClient) -> None:
    docker_engine.api.remove_container(box.info.box_id, force=True)
    with pytest.raises(BoxLost) as caught:
        await box.shell("true")
    assert caught.value.cause == "killed"


async def test_a_toolbox_that_is_killed_is_told_as_killed(
    box: DockerSandbox, docker_engine: docker.DockerClient
) -> None:
    pid = docker_engine.api.inspect_container(box.info.box_id)["State"]["Pid"]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(BoxLost) as caught:
        await box.shell("sleep 5")
    assert caught.value.cause == "killed"


async def test_out_of_memory_of_a_command_is_not_the_end_of_the_box(
    workspace: Path, tmp_path: Path, image: str
) -> None:
    limits = Limits(memory_bytes=160 * MIB)
    async with DockerSandbox(make_spec(workspace, tmp_path, image, limits=limits)) as box:
        result = await box.exec(["python3", "-c", "x = bytearray(500 << 20)"])
        assert (result.status, result.signal, result.oom_kills > 0) == (ExecStatus.SIGNALED, 9, True)
        assert (await box.shell("kill -9 $$")).oom_kills == 0


async def test_wall_limit(workspace: Path, tmp_path: Path, image: str) -> None:
    async with DockerSandbox(make_spec(workspace, tmp_path, image, limits=Limits(wall_s=0.5))) as box:
        with pytest.raises(BoxLost) as caught:
            await box.shell("sleep 60")
        assert caught.value.cause == "timeout"


async def test_a_full_workspace_ends_the_box_and_keeps_the_changes(workspace: Path, tmp_path: Path, image: str) -> None:
    limits = Limits(workspace_bytes=20 * MIB)
    async with DockerSandbox(make_spec(workspace, tmp_path, image, limits=limits)) as box:
        await box.shell("echo kept > early")
        with pytest.raises(BoxLost) as caught:
            await box.shell("dd if=/dev/zero of=fill bs=1M count=60; sleep 30")
        assert caught.value.cause == "disk_full"
        assert box.prepared.upper is not None
        assert (box.prepared.upper / "early").read_text() == "kept\n"


async def test_no_image(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError) as caught:
        await DockerSandbox(make_spec(workspace, tmp_path, "corral-no-such-image")).start()
    assert caught.value.hint == "pull or build it, or leave --image out"


async def test_limits_too_small(workspace: Path, tmp_path: Path, image: str) -> None:
    with pytest.raises(ConfigError):
        await DockerSandbox(make_spec(workspace, tmp_path, image, limits=Limits(memory_bytes=MIB))).start()


async def test_a_dead_socket_is_told_as_no_engine(workspace: Path, tmp_path: Path) -> None:
    engine = Engine({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    with pytest.raises(EngineUnavailable):
        await DockerSandbox(make_spec(workspace, tmp_path, "corral-sandbox"), engine=engine).start()


ORCHESTRATOR = """
import asyncio, sys
from pathlib import Path
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import SandboxSpec, WorkspaceMode

async def main() -> None:
    workspace, run_dir, image, mode = sys.argv[1:]
    spec = SandboxSpec(Path(workspace), Path(run_dir), Path(run_dir).name, image=image, mode=WorkspaceMode(mode))
    print("starting", flush=True)
    async with DockerSandbox(spec) as box:
        print("started", flush=True)
        await box.shell("sleep 60")

asyncio.run(main())
"""


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.15, 0.2, 0.3, None])
def test_kill_9_of_the_orchestrator_leaves_nothing(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient, after_s: float | None
) -> None:
    spec = make_spec(workspace, tmp_path, image)
    process = subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, workspace, spec.run_dir, image, "auto"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"starting\n"
    if after_s is None:
        assert process.stdout.readline() == b"started\n"
        time.sleep(0.3)
    else:
        time.sleep(after_s)
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 30
    quiet = 0
    while quiet < 5 and time.monotonic() < deadline:  # a container may still be on its way
        quiet = 0 if find_leftovers(docker_engine, spec.run_id) or find_janitors(process.pid) else quiet + 1
        time.sleep(0.1)
    assert (find_leftovers(docker_engine, spec.run_id), find_janitors(process.pid)) == ([], [])


def find_janitors(owner: int) -> list[str]:
    """Janitors of that process, which must have gone too."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if b"corral.sandbox.janitor" in words and str(owner).encode() in words:
            found.append(entry.name)
    return found


async def test_gc_takes_what_a_dead_owner_left_and_spares_the_living(
    box: DockerSandbox, docker_engine: docker.DockerClient, image: str
) -> None:
    dead = dict(docker_engine.api.inspect_container(box.info.box_id)["Config"]["Labels"])
    dead |= {"corral.owner.pid": "2", "corral.owner.start": "1", RUN: "dead-run"}
    orphan = docker_engine.api.create_container(image, entrypoint=["true"], labels=dead)["Id"]
    docker_engine.api.create_volume(name="corral-test-orphan", labels=dead)
    try:
        planned = await asyncio.to_thread(collect_garbage, Engine(), dry_run=True)
        assert (orphan in planned.containers, "corral-test-orphan" in planned.volumes) == (True, True)
        report = await asyncio.to_thread(collect_garbage, Engine())
        assert (orphan in report.containers, "corral-test-orphan" in report.volumes) == (True, True)
        assert box.info.box_id not in report.containers
        assert find_leftovers(docker_engine, "dead-run") == []
        assert (await box.shell("true")).exit_code == 0
    finally:
        for name in (orphan,):
            try:
                docker_engine.api.remove_container(name, force=True)
            except docker.errors.NotFound:
                pass
