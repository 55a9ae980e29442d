"""Commands that stay: what every Sandbox does with them, the real one and the fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.boxes import COUNTER, GREETER, RESIZER, docker_maker, fake_maker

from corral.errors import BoxLost, ToolError
from corral.sandbox.base import Sandbox, TerminalSize
from corral.sandbox.job import Job, start_job
from corral_protocol.message import ExecStatus

WAIT_S = 60.0
"""Far more than anything takes: only a hang waits for so long."""


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.docker), "fake"])
async def box(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sandbox]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    make = docker_maker(request.getfixturevalue("image")) if request.param == "docker" else fake_maker
    async with make(workspace, tmp_path) as started:
        yield started


async def expect(job: Job, words: bytes) -> None:
    async with asyncio.timeout(WAIT_S):
        while words not in job.output.read(0, 1 << 20)[1]:
            assert job.is_running, job.output.read(0, 1 << 20)
            await job.wait_news(WAIT_S)


async def end(job: Job) -> int:
    async with asyncio.timeout(WAIT_S):
        while job.is_running:
            await job.wait_news(WAIT_S)
    assert job.result is not None, job.error
    assert job.result.status is ExecStatus.EXITED
    return job.result.exit_code


async def test_what_is_typed_is_answered(box: Sandbox) -> None:
    job = start_job(box, ["sh", "-c", GREETER])
    await expect(job, b"ready\n")
    job.write(b"hello\n")
    assert await end(job) == 0
    assert job.output.read(0, 100) == (0, b"ready\ngot hello\n")
    with pytest.raises(ToolError, match="has ended"):
        job.write(b"more")


async def test_an_end_of_input_is_one(box: Sandbox) -> None:
    job = start_job(box, ["cat"])
    job.write(b"one\n")
    job.close_input()
    assert await end(job) == 0
    assert job.output.read(0, 100) == (0, b"one\n")


async def test_a_signal_is_heard(box: Sandbox) -> None:
    job = start_job(box, ["sh", "-c", COUNTER])
    await expect(job, b"ready\n")
    job.signal(1)
    assert await end(job) == 5


async def test_a_terminal_has_a_size_that_changes(box: Sandbox) -> None:
    job = start_job(box, ["sh", "-c", RESIZER], terminal=TerminalSize(30, 90))
    await expect(job, b"30 90")
    job.resize(TerminalSize(50, 132))
    assert await end(job) == 3
    assert b"50 132" in job.output.read(0, 100)[1]


async def test_a_job_is_killed_and_its_neighbour_is_not(box: Sandbox) -> None:
    neighbour = start_job(box, ["sh", "-c", GREETER])
    job = start_job(box, ["sh", "-c", COUNTER])
    await expect(neighbour, b"ready\n")
    await expect(job, b"ready\n")
    await job.kill()
    assert not job.is_running
    neighbour.write(b"alive\n")
    assert await end(neighbour) == 0


async def test_jobs_end_with_everything(box: Sandbox) -> None:
    job = start_job(box, ["sh", "-c", COUNTER])
    await expect(job, b"ready\n")
    await box.kill_all()
    async with asyncio.timeout(WAIT_S):
        while job.is_running:
            await job.wait_news(WAIT_S)
    assert job.result is not None
    assert job.result.status is ExecStatus.KILLED


async def test_no_job_outlives_its_box(box: Sandbox) -> None:
    job = start_job(box, ["sh", "-c", COUNTER])
    await expect(job, b"ready\n")
    await box.dispose()
    async with asyncio.timeout(WAIT_S):
        while job.is_running:
            await job.wait_news(WAIT_S)
    assert isinstance(job.error, BoxLost)
