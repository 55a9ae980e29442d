from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.record import RECORD_NAME, RecordLog
from corral.schema import events as ev

START_NS = 1_796_000_000_123_456_789


def tick() -> Iterator[int]:
    now = START_NS
    while True:
        yield now
        now += 1_000_000_000


def run_started(goal: str = "fix the test") -> ev.RunStarted:
    actor = ev.Actor(type="os_user", name="ada", id="1000")
    return ev.RunStarted(run_id="r1", door="run", goal=goal, actor=actor, host="h", version="0.1.0")


def tool_started(call: str = "c1", command: str = "true") -> ev.ToolStarted:
    return ev.ToolStarted(step=1, call_id=call, tool="shell", arguments={"command": command})


def tool_finished(call: str = "c1", output: str = "", status: str = "ok") -> ev.ToolFinished:
    return ev.ToolFinished(step=1, call_id=call, tool="shell", status=status, success=status == "ok", output=output)


def run_finished() -> ev.RunFinished:
    return ev.RunFinished(stop_reason="finished", exit_code=0)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / RECORD_NAME


def write_run(path: Path, calls: int = 2) -> list[ev.Event]:
    clock = tick()
    with RecordLog.open(path, clock_ns=lambda: next(clock)) as log:
        events = [log.append(run_started())]
        for number in range(calls):
            events.append(log.append(tool_started(f"c{number}")))
            events.append(log.append(tool_finished(f"c{number}", output=f"out {number}")))
        events.append(log.append(run_finished()))
    return events
