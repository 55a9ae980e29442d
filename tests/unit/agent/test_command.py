"""`corral exec`'s body: exit codes, causes, what the record says of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.fake_box import FakeBox, Run

from corral.agent.command import Command, describe_result, exit_code
from corral.agent.limit import Count, find_touched
from corral.agent.stop import StopReason
from corral.record import RecordLog, read_events
from corral.sandbox.cause import find_cause
from corral.sandbox.spec import Limits
from corral_protocol.message import Capture, ExecResult, ExecStatus


def result(status: ExecStatus, code: int = 0, number: int = 0, **more: Any) -> ExecResult:
    return ExecResult(
        status=status,
        exit_code=code,
        signal=number,
        cwd="/workspace",
        stdout=Capture("", "", 0, 0),
        stderr=Capture("", "", 0, 0),
        duration_s=0.1,
        **more,
    )


@pytest.mark.parametrize(
    ("ended", "code", "cause", "words"),
    [
        (result(ExecStatus.EXITED), 0, "", "exit 0"),
        (result(ExecStatus.EXITED, 3), 3, "", "exit 3"),
        (result(ExecStatus.EXITED, 255), 255, "", "exit 255"),
        (result(ExecStatus.SIGNALED, 0, 11), 139, "", "ended by signal 11"),
        (result(ExecStatus.SIGNALED, 0, 9, oom_kills=1), 137, "oom", "ended by signal 9"),
        (result(ExecStatus.TIMEOUT, 0, 9), 124, "timeout", "time limit reached"),
        (result(ExecStatus.TIMEOUT, 0, 9, oom_kills=2), 124, "timeout", "time limit reached"),
        (result(ExecStatus.KILLED), 137, "killed", "killed"),
        (result(ExecStatus.KILLED, 0, 15), 143, "killed", "killed"),
        (result(ExecStatus.EXITED, 1, pids_refused=4), 1, "pids_exhausted", "exit 1"),
        (result(ExecStatus.EXITED, 1, full=["tmp"]), 1, "disk_full", "exit 1"),
        (result(ExecStatus.NOT_STARTED, 126), 126, "", "could not be started"),
        (result(ExecStatus.NOT_STARTED, 127), 127, "", "not found"),
    ],
)
def test_how_a_command_ended(ended: ExecResult, code: int, cause: str, words: str) -> None:
    assert (exit_code(ended), find_cause(ended), describe_result(ended)) == (code, cause, words)


@pytest.mark.parametrize(
    ("ended", "touched"),
    [
        (result(ExecStatus.EXITED, 1), ()),
        (result(ExecStatus.SIGNALED, 0, 25), ("file size 1.0 GiB",)),
        (
            result(ExecStatus.EXITED, 0, oom_kills=2, pids_refused=7),
            ("memory 4.0 GiB (2 killed)", "processes 512 (7 refused)"),
        ),
        (
            result(ExecStatus.EXITED, 1, full=["workspace", "tmp", "home", "shm"]),
            ("/tmp 512.0 MiB", "home 256.0 MiB", "/dev/shm 64.0 MiB", "the workspace's disk is full"),
        ),
    ],
)
def test_which_limits_a_command_ran_into(ended: ExecResult, touched: tuple[str, ...]) -> None:
    assert find_touched(Count.of_command(ended), Limits()) == touched


async def run(tmp_path: Path, box: FakeBox, **more: Any) -> tuple[Any, list[Any]]:
    with RecordLog.open(tmp_path / "record.jsonl") as log:
        ending = await Command(record=log, **more)(box)  # type: ignore[arg-type]
    return ending, [one.payload for one in read_events(log.path)]  # type: ignore[union-attr]


async def test_a_command_is_recorded_with_names_of_variables_only(tmp_path: Path) -> None:
    argv = [b"./run", b"a b", b"\xff"]
    box = FakeBox(Run(stdout=b"out", stderr=b"error!", exit_code=4))
    ending, (started, finished) = await run(tmp_path, box, argv=argv, env={"TOKEN": "secret", "A": "1"}, timeout_s=9)
    assert (ending.reason, ending.exit_code, ending.summary) == (StopReason.FINISHED, 4, "exit 4")
    assert started.arguments == {"argv": ["./run", "a b", "\\xff"], "env": ["A", "TOKEN"]}
    assert (started.tool, started.timeout_s, started.side_effect) == ("exec", 9, "workspace_write")
    assert (finished.success, finished.exit_code, finished.output_bytes) == (False, 4, 9)
    assert "secret" not in (tmp_path / "record.jsonl").read_text()
    assert box.calls[0][1][0] == argv and box.calls[0][1][1]["kill_background"] is True


async def test_a_time_limit_is_a_limit(tmp_path: Path) -> None:
    ending, (_, finished) = await run(tmp_path, FakeBox(Run(status=ExecStatus.TIMEOUT, signal=9)), argv=[b"x"])
    assert (ending.reason, ending.exit_code) == (StopReason.TIME_LIMIT, 124)
    assert (finished.status, finished.cause, finished.signal, finished.exit_code) == ("timeout", "timeout", 9, None)


async def test_streams_are_passed_through(tmp_path: Path) -> None:
    async def stdin() -> AsyncIterator[bytes]:
        yield b"in"

    pieces: list[bytes] = []
    source = stdin()
    box = FakeBox(Run(stdout=b"o" * 100_000, stderr=b"e"))
    await run(
        tmp_path,
        box,
        argv=[b"x"],
        stdin=source,
        stdout=lambda data: pieces.append(bytes(data)),
        stderr=lambda data: pieces.append(bytes(data)),
    )
    assert b"".join(pieces) == b"o" * 100_000 + b"e"
    assert box.calls[0][1][1]["stdin"] is source
