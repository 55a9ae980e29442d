from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.tools.conftest import Bench
from tests.unit.tools.fake_box import Run
from tests.unit.tools.test_executor import unwrap

from corral.schema.tools import ToolStatus
from corral_protocol.message import ExecStatus

Build = Callable[..., Bench]


async def test_an_exit_code_is_told_and_is_no_error(bench: Build) -> None:
    desk = bench(Run(stdout=b"out\n", stderr=b"err\n", exit_code=3, background=2))
    result = await desk.call("shell", command="false")
    assert (result.success, result.status, result.error) == (False, ToolStatus.OK, None)
    assert unwrap(result) == "out\n[stderr]\nerr\n"
    assert result.summary == (
        "exit code 3 in 0.50 s; working directory /workspace; 2 background processes still running"
    )
    assert result.data == {"exit_code": 3, "cwd": "/workspace", "state": "exited", "background": 2}


async def test_the_working_directory_is_kept_for_the_next_call(bench: Build) -> None:
    desk = bench(Run(cwd="/tmp/x"), Run(cwd=""), Run(cwd="relative"), Run(cwd="\0!!"), Run())
    for _ in range(5):
        await desk.call("shell", command="true")
    assert [options["cwd"] for _, (_, options) in desk.box.calls] == ["", "/tmp/x", "/tmp/x", "/tmp/x", "/tmp/x"]


async def test_a_timeout_keeps_what_was_printed(bench: Build) -> None:
    desk = bench(Run(stdout=b"before\n", stderr=b"err\n", status=ExecStatus.TIMEOUT))
    result = await desk.call("shell", command="sleep 60", timeout_s=1)
    assert result.error is not None
    assert (result.status, result.success, result.error.code) == (ToolStatus.TIMEOUT, False, "timeout")
    assert unwrap(result) == "before\n[stderr]\nerr\n"
    assert desk.box.calls[0][1][1]["timeout_s"] == 1
    assert desk.events()[-1].payload.model_dump()["cause"] == "timeout"


async def test_the_default_time_is_two_minutes(bench: Build) -> None:
    desk = bench(Run())
    await desk.call("shell", command="true")
    assert desk.box.calls[0][1][1]["timeout_s"] == 120
    assert desk.events()[2].payload.model_dump()["timeout_s"] == 135


@pytest.mark.parametrize(
    ("run", "cause", "words"),
    [
        (Run(status=ExecStatus.SIGNALED, signal=9, oom_kills=1), "oom", "ended by signal 9 (SIGKILL)"),
        (Run(exit_code=1, pids_refused=3), "pids_exhausted", "the box's limit of processes was reached"),
        (Run(status=ExecStatus.KILLED), "killed", "stopped in"),
        (Run(status=ExecStatus.SIGNALED, signal=11), "", "ended by signal 11 (SIGSEGV)"),
        (Run(status=ExecStatus.NOT_STARTED, exit_code=127), "", "the shell could not be started (exit code 127)"),
    ],
)
async def test_causes_come_from_counters(bench: Build, run: Run, cause: str, words: str) -> None:
    desk = bench(run)
    result = await desk.call("shell", command="x")
    assert (result.success, result.data.get("cause", "")) == (False, cause)
    assert words in result.summary


async def test_output_that_says_out_of_memory_is_no_cause(bench: Build) -> None:
    desk = bench(Run(stdout=b"Killed: out of memory\n[exit code 0]\n", exit_code=1))
    result = await desk.call("shell", command="x")
    assert (result.success, "cause" in result.data, result.data["exit_code"]) == (False, False, 1)


async def test_a_progress_bar_becomes_its_last_state(bench: Build) -> None:
    bar = "".join(f"\r\x1b[32m{number:3}%\x1b[0m downloading" for number in range(1, 5001)) + "\n"
    desk = bench(Run(stdout=bar.encode()))
    result = await desk.call("shell", command="fetch")
    assert (unwrap(result), result.truncation) == ("5000% downloading\n", None)
    assert (desk.outputs._directory / "call_1.stdout").read_bytes() == bar.encode()  # raw bytes only there


async def test_bytes_that_are_no_text_are_shown_as_such(bench: Build) -> None:
    desk = bench(Run(stdout=b"\xff\xfecaf\xe9\n\x00\x07"))
    result = await desk.call("shell", command="x")
    assert unwrap(result) == "\ufffd\ufffdcaf\ufffd\n\\x00\\x07\n"


async def test_errors_are_not_pushed_out_by_output(bench: Build) -> None:
    desk = bench(Run(stdout=b"o\n" * 100_000, stderr=b"e\n" * 100_000 + b"the cause\n"))
    result = await desk.call("shell", command="x")
    shown = unwrap(result)
    assert result.truncation is not None
    assert (len(shown.encode()) <= 32 << 10, shown.endswith("the cause\n"), result.status) == (
        True,
        True,
        ToolStatus.TRUNCATED,
    )
    assert "/outputs/call_1 " in shown
    assert "/outputs/call_1.stderr " in shown


async def test_one_huge_line_is_bounded_and_its_size_told(bench: Build) -> None:
    desk = bench(Run(stdout=b"x" * 5_000_000))
    result = await desk.call("shell", command="x")
    assert result.truncation is not None
    assert (result.truncation.total_bytes, result.truncation.full_at) == (5_000_000, "/outputs/call_1")
    assert len(unwrap(result)) < 33 << 10


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        (b"unshare: unshare failed: Operation not permitted\n", "blocked by the sandbox's policy"),
        (b"bash: sudo: command not found\n", "blocked by the sandbox's policy"),
        (b"mount: /mnt: must be superuser to use mount.\n", "blocked by the sandbox's policy"),
        (b"curl: (6) Could not resolve host: example.org\n", "no network"),
        (b"ERROR: Could not find a version that satisfies the requirement x\n", "no network"),
        (b"touch: cannot touch '/usr/x': Read-only file system\n", "only the workspace"),
        (b"EOFError: EOF when reading a line\n", "non-interactive"),
    ],
)
async def test_refusals_of_the_sandbox_come_with_a_hint(bench: Build, stderr: bytes, words: str) -> None:
    desk = bench(Run(stderr=stderr, exit_code=1), Run(stderr=stderr))
    assert words in (await desk.call("shell", command="x")).recovery_hint
    assert (await desk.call("shell", command="x")).recovery_hint == ""


async def test_notices_are_told_and_harmless(bench: Build) -> None:
    desk = bench(Run(notices=["cwd was removed, now in /workspace\n\x1b[2J"]))
    result = await desk.call("shell", command="x")
    assert result.summary.endswith("; cwd was removed, now in /workspace\\n\\x1b[2J")
