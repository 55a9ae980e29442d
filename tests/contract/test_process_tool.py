"""The `process` tool, through the executor, in every kind of box."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.boxes import COUNTER, GREETER, docker_maker, fake_maker

from corral.policy import PolicyEngine, SessionPolicy
from corral.record import RecordLog
from corral.schema.policy import PolicySession, Preset
from corral.schema.tools import ToolCall, ToolResult
from corral.tools import OutputStore, ToolExecutor, ToolRegistry, build_tools
from corral.tools.jobs import MAX_RUNNING


async def _no_diff() -> str:
    return ""


class Desk:
    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor
        self._count = 0

    async def __call__(self, action: str, **arguments: Any) -> ToolResult:
        self._count += 1
        call = ToolCall(id=f"call-{self._count}", name="process", arguments={"action": action, **arguments})
        return await self._executor.execute(call)


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.docker), "fake"])
async def process(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    make = docker_maker(request.getfixturevalue("image")) if request.param == "docker" else fake_maker
    log = RecordLog.open(tmp_path / "record.jsonl")
    async with make(workspace, tmp_path) as box:
        policy = SessionPolicy(PolicyEngine.load_preset(Preset.AUTO), PolicySession(id="s", preset=Preset.AUTO))
        yield Desk(
            ToolExecutor(
                ToolRegistry(build_tools(_no_diff)),
                decider=policy,
                recorder=log,
                sandbox=box,
                outputs=OutputStore(tmp_path / "outputs"),
            )
        )
    log.close()


async def test_a_job_is_talked_to_until_its_end(process: Desk) -> None:
    started = await process("start", command=GREETER, until="ready", wait_s=60)
    assert started.summary == "job-1 still running; the text was written"
    assert "ready" in started.output
    answered = await process("write", job="job-1", text="hello\n", until="got hello", wait_s=60)
    assert "got hello" in answered.output
    assert "ready" not in answered.output
    ended = await process("wait", job="job-1", until="never", wait_s=60)
    assert ended.summary == "job-1 ended: exit code 0; the text was not written so far"
    assert "job-1  exit code 0" in (await process("list")).output


async def test_a_signal_ends_a_job_that_hears_it(process: Desk) -> None:
    await process("start", command=COUNTER, until="ready", wait_s=60)
    await process("signal", job="job-1", signal="HUP")
    ended = await process("wait", job="job-1", until="never", wait_s=60)
    assert ended.data["state"] == "exit code 5"


async def test_a_job_that_goes_on_is_no_hang_and_can_be_killed(process: Desk) -> None:
    await process("start", command=COUNTER, until="ready", wait_s=60)
    waited = await process("wait", job="job-1", until="never", wait_s=0)
    assert (waited.success, waited.data["state"]) == (True, "running")
    killed = await process("kill", job="job-1")
    assert killed.data["state"] == "killed"
    refused = await process("write", job="job-1", text="x")
    assert refused.error is not None
    assert refused.error.code == "not_found"


async def test_jobs_are_bounded(process: Desk) -> None:
    for _ in range(MAX_RUNNING):
        assert (await process("start", command=COUNTER, wait_s=0)).success
    refused = await process("start", command=COUNTER, wait_s=0)
    assert refused.error is not None
    assert refused.error.code == "busy"


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "write", "job": "job-1", "text": "rm -r x\n", "command": "ls"},
        {"action": "start", "command": "ls", "text": "x"},
        {"action": "kill", "job": "job-1", "command": "ls"},
        {"action": "start"},
        {"action": "read"},
        {"action": "signal", "job": "job-1"},
    ],
)
async def test_a_command_is_only_for_start(process: Desk, arguments: dict[str, Any]) -> None:
    refused = await process(**arguments)
    assert refused.error is not None
    assert refused.error.code == "invalid_argument"
