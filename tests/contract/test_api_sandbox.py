"""corral.Sandbox against a real engine: typed calls, policy, record, patch, the ways it can end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import docker
import pytest

import corral
from corral import SearchResult
from corral.record import read_events, verify_record
from corral.sandbox.labels import RUN
from corral.schema.events import Event, PatchMade, RunFinished, RunStarted, ToolFinished, ToolStarted
from corral.store.run_dir import load_meta

pytestmark = pytest.mark.docker


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "bin").write_bytes(bytes(range(256)))
    return folder


@pytest.fixture
def sandbox(repo: Path, sandbox_image: str) -> Any:
    return lambda **more: corral.Sandbox(repo, image=sandbox_image, **more)


def payloads(path: Path, kind: type) -> list[Any]:
    return [one.payload for one in read_events(path) if isinstance(one, Event) and isinstance(one.payload, kind)]


def left_behind(engine: docker.DockerClient, run_id: str) -> list[str]:
    marks = {"label": f"{RUN}={run_id}"}
    return [one.name for one in engine.containers.list(all=True, filters=marks)] + [
        one.name for one in engine.volumes.list(filters=marks)
    ]


async def test_a_session_from_first_call_to_patch(
    sandbox: Any, repo: Path, tmp_path: Path, docker_engine: docker.DockerClient
) -> None:
    async with sandbox(goal="try it", env={"GREETING": "hello"}) as box:
        first = await box.shell('echo "$GREETING $OTHER"; cd /tmp; echo oops >&2; exit 3', env={"OTHER": "you"})
        assert (first.exit_code, first.ok, first.text, first.stderr) == (3, False, "hello you\n", b"oops\n")
        assert (first.cwd, first.is_complete, first.signal, first.timed_out) == ("/tmp", True, None, False)
        # Each command starts where it is told to.
        assert (await box.shell("pwd")).text == "/workspace\n"
        assert (await box.shell("pwd", cwd="/tmp")).text == "/tmp\n"
        ran = await box.exec(["cat", "-", "bin"], stdin=b"in\0put")
        assert ran.stdout == b"in\0put" + bytes(range(256))

        assert (await box.read_file("a.txt", offset=2)).text == "     2\ttwo\n"
        assert [one.path for one in (await box.list_files()).entries] == ["a.txt", "bin"]
        assert (await box.write_file("new/b.txt", "grüße\n")).action == "created"
        assert (await box.edit_file("a.txt", "two", "2")).action == "modified"
        assert (await box.fetch_file("bin", offset=254)) == b"\xfe\xff"
        assert (await box.fetch_file("bin", limit=2)) == b"\0\1"
        assert (await box.store_file("big", pieces(3), 3 << 16)).size == 3 << 16
        assert (await box.move_file("big", "large")).action == "moved"
        assert (await box.delete_file("large")).action == "deleted"
        patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+1\n 2\n"
        assert [one.action for one in (await box.apply_patch(patch)).files] == ["modified"]

        assert "+grüße\n" in await box.diff()
        exported = await box.export(tmp_path / "out.diff")
        assert [file.path for file in exported.files] == ["a.txt", "new/b.txt"]
        assert (tmp_path / "out.diff").stat().st_size == exported.size > 0
        assert (await box.shell("touch after; cat a.txt")).text == "1\n2\n"  # it goes on after an export
        run_id, record = box.run_id, box.record_path
    assert [file.path for file in box.patch.files] == ["a.txt", "after", "new/b.txt"]
    assert box.patch_file is not None and b"+1\n" in box.patch_file.read_bytes()
    assert (repo / "a.txt").read_text() == "one\ntwo\n"
    assert left_behind(docker_engine, run_id) == []

    report = verify_record(record)
    assert (report.ok, report.finished) == (True, True)
    (started,), (finished,) = payloads(record, RunStarted), payloads(record, RunFinished)
    assert (started.door, started.goal, started.preset) == ("sandbox", "try it", "auto")
    assert (finished.stop_reason, finished.changed_files) == ("finished", 3)
    assert [one.tool for one in payloads(record, ToolStarted)] == [
        "shell",
        "shell",
        "shell",
        "exec",
        "read_file",
        "list_files",
        "write_file",
        "edit_file",
        "fetch_file",
        "fetch_file",
        "store_file",
        "move_file",
        "delete_file",
        "apply_patch",
        "diff",
        "shell",
    ]
    told = payloads(record, ToolFinished)[0]
    assert (told.success, told.exit_code, "hello you\n[stderr]\noops" in told.output) == (False, 3, False)
    assert "hello you" in told.output and "oops" in told.output
    assert payloads(record, ToolStarted)[0].arguments["env"] == ["GREETING", "OTHER"]
    assert len(payloads(record, PatchMade)) == 2
    assert load_meta(run_id).outcome == "finished"


async def pieces(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number]) * (1 << 16)


async def test_search_gives_lines_and_says_what_is_missing(sandbox: Any) -> None:
    async with sandbox() as box:
        await box.write_file("many.txt", "".join(f"needle {number}\n" for number in range(9)))
        assert await box.search("^t") == SearchResult(("a.txt:2:two",), more=False, timed_out=False)
        few = await box.search("NEEDLE", "many.txt", ignore_case=True, limit=2)
        assert (few.lines, few.more) == (("many.txt:1:needle 0", "many.txt:2:needle 1"), True)
        names = await box.search("o", glob="!many*", files_only=True)
        assert names.lines == ("a.txt",)
        around = await box.search("two", context=1)
        assert around.lines == ("a.txt-1-one", "a.txt:2:two")
        assert await box.search("t.o", literal=True) == SearchResult((), more=False, timed_out=False)
        with pytest.raises(corral.ToolError) as error:
            await box.search("(")
        assert error.value.code == "invalid_argument"


async def test_calls_run_side_by_side(sandbox: Any) -> None:
    async with sandbox() as box:
        results = await asyncio.gather(*(box.shell(f"sleep 0.2; echo {number}") for number in range(5)))
        assert [result.text for result in results] == [f"{number}\n" for number in range(5)]


async def test_output_over_the_limit_is_streamed_in_full(sandbox: Any) -> None:
    seen = bytearray()
    async with sandbox() as box:
        result = await box.shell("head -c 3000000 /dev/zero", on_stdout=seen.extend, output_limit=1000)
    assert (len(seen), len(result.stdout), result.stdout_bytes, result.is_complete) == (3000000, 1000, 3000000, False)


async def test_a_failed_call_is_an_error_and_the_box_goes_on(sandbox: Any) -> None:
    async with sandbox() as box:
        with pytest.raises(corral.ToolError) as missing:
            await box.read_file("none")
        with pytest.raises(corral.ToolError) as outside:
            await box.write_file("../../etc/passwd", "x")
        with pytest.raises(corral.ToolError) as exists:
            await box.write_file("a.txt", "x", overwrite=False)
        with pytest.raises(corral.ToolError) as wrong:
            await box.shell("true", timeout_s=-1)
        assert (await box.exec(["/no/such"])).exit_code == 127
        assert (await box.exec(["/workspace/a.txt"])).exit_code == 126
        assert (await box.shell("kill -9 $$")).signal == 9
        late = await box.shell("sleep 60", timeout_s=0.3)
        assert (late.timed_out, late.exit_code, late.cause) == (True, 124, "timeout")
        assert (await box.shell("echo on")).text == "on\n"
    assert [one.value.code for one in (missing, exists, wrong)] == ["not_found", "exists", "invalid_argument"]
    assert outside.value.code in ("policy_denied", "outside_workspace")
    assert box.patch.files == () and box.patch_file is None


async def test_policy_holds_for_a_program(sandbox: Any) -> None:
    async with sandbox(preset="never") as box:
        assert (await box.shell("ls")).text == "a.txt\nbin\n"
        for denied in (box.shell("rm a.txt"), box.write_file("x", "y"), box.store_file("x", pieces(1), 1 << 16)):
            with pytest.raises(corral.ToolError) as error:
                await denied
            assert error.value.code == "policy_denied" and error.value.hint
        record = box.record_path
    assert box.patch.files == ()
    statuses = [one.status for one in payloads(record, ToolFinished)]
    assert statuses == ["ok", "denied", "denied", "denied"]


async def test_a_plan_has_no_tools_that_write(sandbox: Any) -> None:
    async with sandbox(preset="plan") as box:
        assert await box.fetch_file("a.txt") == b"one\ntwo\n"
        with pytest.raises(corral.ToolError, match="there is no tool 'shell'"):
            await box.shell("ls")


async def test_a_program_that_fails_keeps_its_changes(sandbox: Any) -> None:
    box = sandbox()
    with pytest.raises(ZeroDivisionError):
        async with box:
            await box.write_file("kept", "x")
            raise ZeroDivisionError("mine")
    assert [file.path for file in box.patch.files] == ["kept"]
    (finished,) = payloads(box.record_path, RunFinished)
    assert (finished.stop_reason, finished.complete) == ("error", False)
    assert finished.summary == "the program raised ZeroDivisionError: mine"


async def test_a_time_limit_of_the_caller_goes_through(sandbox: Any, docker_engine: docker.DockerClient) -> None:
    box = sandbox()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4), box:
            await box.write_file("kept", "x")
            await box.shell("sleep 60")
    assert [file.path for file in box.patch.files] == ["kept"]
    assert payloads(box.record_path, RunFinished)[0].stop_reason == "cancelled"
    assert left_behind(docker_engine, box.run_id) == []


async def test_a_box_that_is_lost(sandbox: Any, docker_engine: docker.DockerClient) -> None:
    box = sandbox()
    with pytest.raises(corral.BoxLost):
        async with box:
            await box.write_file("kept", "x")
            docker_engine.containers.get(box.info.box_id).remove(force=True, v=True)
            await box.shell("true")
    assert [file.path for file in box.patch.files] == ["kept"]
    assert payloads(box.record_path, RunFinished)[0].stop_reason == "box_lost"


async def test_a_start_that_fails_says_why_and_leaves_an_ended_run(repo: Path) -> None:
    box = corral.Sandbox(repo, image="no-such-image:1")
    with pytest.raises(corral.SandboxError, match="no-such-image"):
        async with box:
            raise AssertionError("never reached")
    with pytest.raises(corral.ConfigError, match="there is no preset 'free'"):
        async with corral.Sandbox(repo, preset="free"):
            pass
    with pytest.raises(corral.ConfigError, match="nowhere"):
        async with corral.Sandbox(repo / "nowhere"):
            pass


async def test_use_outside_its_block_is_a_mistake_told(sandbox: Any) -> None:
    box = sandbox()
    with pytest.raises(RuntimeError, match="use `async with`"):
        await box.read_file("a.txt")
    with pytest.raises(RuntimeError, match="use `async with`"):
        _ = box.run_id
    async with box:
        with pytest.raises(RuntimeError, match="the box is still there"):
            _ = box.patch
    with pytest.raises(RuntimeError, match="the box is gone"):
        await box.shell("true")
    with pytest.raises(RuntimeError, match="used once"):
        async with box:
            pass


async def test_events_are_told_and_a_listener_that_fails_is_told_at_the_end(sandbox: Any) -> None:
    seen: list[str] = []
    async with sandbox(on_event=lambda event: seen.append(event.kind.value)) as box:
        await box.shell("true")
    assert seen == [
        "run.started",
        "call.parsed",
        "call.decided",
        "tool.started",
        "process.started",
        "tool.finished",
        "run.finished",
    ]

    def fail(event: Event) -> None:
        raise ValueError("listener")

    with pytest.raises(ValueError, match="listener"):
        async with sandbox(on_event=fail) as box:
            assert (await box.shell("echo on")).text == "on\n"


async def test_a_job_is_talked_to_and_gone_with_the_box(sandbox: Any, docker_engine: docker.DockerClient) -> None:
    async with sandbox(env={"GREETING": "hello"}) as box:
        job = await box.start_job('echo "$GREETING"; while read line; do echo "got $line"; done; exit 3')
        assert await job.wait("hello\n")
        place = job.output().total
        await job.write("one\n")
        assert await job.wait("got one\n", since=place)
        assert job.output(since=place).text == "got one\n"
        assert (await box.shell("echo beside")).text == "beside\n"  # it holds up nobody
        assert (job.name, job.is_running, job.exit_code, job.screen) == ("job-1", True, None, None)
        assert not await job.wait("never", timeout_s=0.1)

        screen = await box.start_job("stty size; sleep 60", terminal=(10, 40))
        assert await screen.wait("10 40")
        await screen.resize(20, 50)
        await screen.send_signal("TERM")
        assert await screen.wait() and screen.exit_code == 128 + 15
        assert screen.screen is not None and screen.screen.startswith("10 40")

        await job.kill()
        assert (job.is_running, await job.wait()) == (False, True)
        with pytest.raises(corral.ToolError, match="has ended"):
            await job.write("late\n")
        left = await box.start_job("setsid sleep 61 & sleep 62")
        run_id, record = box.run_id, box.record_path
    assert not left.is_running
    assert left_behind(docker_engine, run_id) == []
    started = [one.arguments["action"] for one in payloads(record, ToolStarted) if one.tool == "process"]
    assert started == ["start", "write", "start", "resize", "signal", "kill", "write", "start"]


async def test_a_job_is_judged_by_policy_too(sandbox: Any) -> None:
    async with sandbox(preset="plan") as box:
        with pytest.raises(corral.ToolError) as caught:
            await box.start_job("sleep 60")
    assert caught.value.code in {"policy_denied", "unknown_tool"}
