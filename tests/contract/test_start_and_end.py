"""Boxes that start at the same moment, need nothing that runs out, and end at once."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker
import pytest
from tests.contract.boxes import make_spec, output
from tests.support.command import corral

from corral.sandbox.docker import DockerSandbox
from corral.sandbox.engine import QUICK_S

pytestmark = pytest.mark.docker


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


def test_eight_processes_start_a_box_at_once(home: Path, workspace: Path, image: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        command = ("exec", "-q", "--image", image, "-C", str(workspace), "--", "echo")
        ran = list(pool.map(lambda number: corral(*command, str(number)), range(8)))
    assert [(one.code, one.out) for one in ran] == [(0, b"%d\n" % number) for number in range(8)], ran


async def test_boxes_use_up_no_network_of_the_engine(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    before = {one["Id"] for one in docker_engine.api.networks()}
    boxes = [DockerSandbox(make_spec(workspace, tmp_path, image)) for _ in range(4)]
    try:
        infos = await asyncio.gather(*[box.start() for box in boxes])
        modes = {docker_engine.api.inspect_container(info.box_id)["HostConfig"]["NetworkMode"] for info in infos}
        assert (modes, {one["Id"] for one in docker_engine.api.networks()} - before) == ({"none"}, set())
    finally:
        await asyncio.gather(*[box.dispose() for box in boxes])


async def test_the_end_of_a_box_waits_for_no_grace_period(workspace: Path, tmp_path: Path, image: str) -> None:
    """An engine's `stop` takes ten seconds where the first process does not listen."""
    box = DockerSandbox(make_spec(workspace, tmp_path, image))
    await box.start()
    busy = asyncio.ensure_future(box.shell("trap '' TERM; sleep 60"))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    await box.dispose()
    assert time.monotonic() - began < 5
    await asyncio.wait((busy,))
    assert busy.exception() is not None


@pytest.mark.slow
async def test_a_command_may_take_longer_than_any_question_to_the_engine(
    workspace: Path, tmp_path: Path, image: str
) -> None:
    async with DockerSandbox(make_spec(workspace, tmp_path, image)) as box:
        result = await box.shell(f"sleep {QUICK_S + 2}; echo ok", timeout_s=60)
    assert output(result.stdout) == b"ok\n"
