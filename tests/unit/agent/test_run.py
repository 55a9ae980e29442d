"""The order of a run, and what is kept of it whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.life_box import INFO, LifeBox

from corral.agent.limit import Count
from corral.agent.run import Ending, Outcome, Run, describe_start
from corral.agent.stop import Spent, StopReason
from corral.errors import BoxLost, CorralError, EngineUnavailable, PatchError, RecordError, SandboxProtocolError
from corral.record import RecordLog, read_events
from corral.sandbox.base import Sandbox
from corral.schema.events import ErrorRaised, Event, PatchMade, Payload, RunFinished, Source, Tokens
from corral.schema.patch import Action, FileChange, Patch
from corral.schema.resources import BoxResources
from corral_protocol.message import Stats

PATCH = Patch(sha256="5" * 64, size=10, files=(FileChange(path="a", action=Action.ADDED, added=1),))
GOOD = Ending(StopReason.FINISHED, summary="done", spent=Spent(steps=2, tokens=Tokens(input=3), cost_usd=0.5))


class Stage:
    """A run with steps that can be made to fail, and the order in which they came."""

    def __init__(self, tmp_path: Path, **hooks: Any) -> None:
        self.box = LifeBox(**hooks)
        self.log = RecordLog.open(tmp_path / "record.jsonl")
        self.exported: Callable[[], Awaitable[Patch | None]] = self._give_patch
        self.record: Any = self.log

    async def _give_patch(self) -> Patch | None:
        return PATCH

    async def run(self, body: Callable[[Sandbox], Awaitable[Ending]], **more: Any) -> Outcome:
        async def export(sandbox: Sandbox) -> Patch | None:
            self.box.steps.append("export")
            return await self.exported()

        async def noted(sandbox: Sandbox) -> Ending:
            self.box.steps.append("body")
            return await body(sandbox)

        started = describe_start(run_id="r", door="run", goal="g", workspace="/w")
        run = Run(self.record, self.box, export, started, lambda box: self.box.steps.append("on_box"))  # type: ignore[arg-type]
        try:
            return await run.execute(noted, **more)
        finally:
            self.log.close()

    def events(self) -> list[Event]:
        return [one for one in read_events(self.log.path) if isinstance(one, Event)]

    def payload(self, kind: type[Payload]) -> Any:
        (found,) = [one.payload for one in self.events() if isinstance(one.payload, kind)]
        return found

    def kinds(self) -> list[str]:
        return [one.kind.value for one in self.events()]


async def succeed(sandbox: Sandbox) -> Ending:
    return GOOD


async def wait(sandbox: Sandbox) -> Ending:
    await asyncio.sleep(60)
    raise AssertionError


def fail(error: Exception) -> Callable[..., Awaitable[Any]]:
    async def step(*args: object) -> Any:
        raise error

    return step


async def test_export_reads_a_workspace_at_rest(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    outcome = await stage.run(succeed)
    assert stage.box.steps == ["start", "on_box", "body", "kill_all", "export", "dispose"]
    assert stage.kinds() == ["run.started", "patch.made", "run.finished"]
    assert (outcome.ending, outcome.box, outcome.patch, outcome.error) == (GOOD, INFO, PATCH, None)
    finished = stage.payload(RunFinished)
    assert finished.model_dump(exclude={"duration_s", "box", "resources"}) == {
        "stop_reason": "finished",
        "exit_code": 0,
        "summary": "done",
        "complete": True,
        "steps": 2,
        "tokens": {"input": 3, "output": 0, "cached": 0, "reported": True},
        "cost_usd": 0.5,
        "changed_files": 1,
        "patch": "5" * 64,
        "dropped_events": 0,
        "limits_touched": (),
    }
    assert finished.box.id == "box-1"
    assert finished.resources == outcome.resources
    assert finished.resources.box == BoxResources()


async def test_limits_that_were_touched_are_in_outcome_and_record(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.box.counted = Stats(processes=1, zombies=0, calls=0, rss=0, pss=0, oom_kills=2, pids_refused=3)
    touched = ("memory 4.0 GiB (2 killed)", "processes 512 (3 refused)")
    assert (await stage.run(succeed)).limits_touched == touched
    assert stage.payload(RunFinished).limits_touched == touched


async def test_a_box_that_cannot_be_asked_leaves_our_own_numbers(tmp_path: Path) -> None:
    stage = Stage(tmp_path, on_kill=fail(BoxLost("gone", cause="oom")))
    await stage.run(succeed)
    used = stage.payload(RunFinished).resources
    assert (used.box, used.orchestrator.max_rss_bytes > 0) == (None, True)


async def test_what_a_body_counted_itself_is_not_asked_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.box.counted = Stats(processes=1, zombies=0, calls=0, rss=0, pss=0, oom_kills=2)

    async def count(sandbox: Sandbox) -> Ending:
        return Ending(StopReason.FINISHED, count=Count(files_cut=1))

    assert (await stage.run(count)).limits_touched == ("file size 1.0 GiB",)


@pytest.mark.parametrize(
    ("cause", "touched"),
    [
        ("disk_full", ("disk (4.0 GiB, 200000 files, 512.0 MiB to stay free)",)),
        ("oom", ("memory 4.0 GiB",)),
        ("killed", ()),
    ],
)
async def test_the_limit_that_ended_a_box_is_named(tmp_path: Path, cause: str, touched: tuple[str, ...]) -> None:
    stage = Stage(tmp_path, on_kill=fail(BoxLost("gone")))
    assert (await stage.run(fail(BoxLost("gone", cause=cause)))).limits_touched == touched


@pytest.mark.parametrize("error", [BoxLost("gone"), SandboxProtocolError("a lie")])
async def test_export_waits_for_the_end_of_a_box_that_cannot_be_asked(tmp_path: Path, error: CorralError) -> None:
    stage = Stage(tmp_path, on_kill=fail(error))
    outcome = await stage.run(succeed)
    assert stage.box.steps == ["start", "on_box", "body", "kill_all", "dispose", "export"]
    assert outcome.patch == PATCH


async def test_a_start_that_fails_is_an_ended_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path, on_start=fail(EngineUnavailable("no engine", hint="start one")))
    outcome = await stage.run(succeed)
    assert stage.kinds() == ["run.started", "error.raised", "run.finished"]
    assert (outcome.box, outcome.patch, outcome.exit_code) == (None, None, 3)
    raised = stage.payload(ErrorRaised)
    assert (raised.error.code, raised.error.suggestion, raised.fatal) == ("engine_unavailable", "start one", True)
    assert (stage.payload(RunFinished).stop_reason, stage.payload(RunFinished).box) == ("error", None)


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        (BoxLost("gone"), "box_lost", "box_lost"),
        (SandboxProtocolError("a lie"), "error", "protocol"),
        (CorralError("odd"), "error", "error"),
        (RuntimeError("bug"), "error", "internal"),
    ],
)
async def test_a_body_that_fails_leaves_an_incomplete_patch(
    tmp_path: Path, error: Exception, reason: str, code: str
) -> None:
    stage = Stage(tmp_path)
    spent = Spent(steps=4, cost_usd=0.1)
    outcome = await stage.run(fail(error), spent=lambda: spent)
    assert (outcome.ending.reason.value, outcome.error and outcome.error.code) == (reason, code)
    assert outcome.patch == PATCH and outcome.ending.spent == spent
    assert stage.payload(PatchMade).complete is False
    assert (stage.payload(RunFinished).steps, stage.payload(RunFinished).complete) == (4, False)


async def test_cancelled_while_the_box_starts(tmp_path: Path) -> None:
    async def hang() -> None:
        await asyncio.sleep(60)

    stage = Stage(tmp_path, on_start=hang)
    task = asyncio.ensure_future(stage.run(succeed))
    await asyncio.sleep(0.02)
    task.cancel()
    outcome = await task
    assert stage.box.steps == ["start"]
    assert (outcome.ending.reason, outcome.exit_code) == (StopReason.CANCELLED, 130)
    assert stage.kinds() == ["run.started", "run.finished"]


async def test_cancelled_in_the_body_still_exports(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    task = asyncio.ensure_future(stage.run(wait))
    await asyncio.sleep(0.02)
    task.cancel()
    outcome = await task
    assert stage.box.steps == ["start", "on_box", "body", "kill_all", "export", "dispose"]
    assert (outcome.patch, outcome.ending.reason) == (PATCH, StopReason.CANCELLED)
    assert stage.payload(PatchMade).complete is False
    assert task.cancelling() == 0


async def test_a_second_cancel_ends_the_export(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def hang() -> Patch | None:
        await asyncio.sleep(60)
        return None

    stage.exported = hang
    task = asyncio.ensure_future(stage.run(wait))
    for _ in range(2):
        await asyncio.sleep(0.02)
        task.cancel()
    outcome = await task
    assert stage.box.steps == ["start", "on_box", "body", "kill_all", "export", "dispose"]
    assert (outcome.patch, outcome.ending.summary) == (None, "cancelled while the changes were read")
    assert stage.kinds() == ["run.started", "run.finished"]


async def test_a_cancel_never_stops_the_clean_up(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def slowly() -> None:
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            gone.set()
            raise
        gone.set()

    stage = Stage(tmp_path, on_dispose=slowly)
    task = asyncio.ensure_future(stage.run(succeed))
    await asyncio.sleep(0.03)
    task.cancel()
    outcome = await task
    assert gone.is_set() and outcome.patch == PATCH
    assert stage.kinds() == ["run.started", "patch.made", "run.finished"]


async def test_an_export_that_fails_is_told_and_the_box_goes(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.exported = fail(PatchError("too large"))
    outcome = await stage.run(succeed)
    assert stage.box.steps[-1] == "dispose"
    assert (outcome.patch, outcome.ending.reason, outcome.exit_code) == (None, StopReason.ERROR, 3)
    assert outcome.error is not None and outcome.error.message == "too large"
    assert stage.payload(RunFinished).complete is False


async def test_the_first_of_two_failures_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.exported = fail(PatchError("nor the export"))
    outcome = await stage.run(fail(BoxLost("the box went")))
    assert (outcome.ending.reason, outcome.ending.summary) == (StopReason.BOX_LOST, "the box went")


class FullDisk:
    """A record on a disk that is full from the n-th event on."""

    dropped = 0

    def __init__(self, log: RecordLog, room: int) -> None:
        self.log, self.room = log, room

    def append(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event:
        self.room -= 1
        if self.room < 0:
            raise RecordError("the disk is full")
        return self.log.append(payload, source=source, durable=durable)


@pytest.mark.parametrize("room", [0, 1, 2])
async def test_a_record_that_cannot_be_written_raises_and_the_box_goes(tmp_path: Path, room: int) -> None:
    stage = Stage(tmp_path)
    stage.record = FullDisk(stage.log, room)
    with pytest.raises(RecordError, match="the disk is full"):
        await stage.run(succeed)
    assert stage.box.steps[-1:] == (["dispose"] if room else [])
    assert stage.kinds() == ["run.started", "patch.made"][:room]


async def test_a_patch_that_was_written_is_kept_though_the_record_could_not_say_so(tmp_path: Path) -> None:
    class OneGap(FullDisk):
        def append(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event:
            if isinstance(payload, PatchMade):
                raise RecordError("no room")
            return self.log.append(payload, source=source, durable=durable)

    stage = Stage(tmp_path)
    stage.record = OneGap(stage.log, 0)
    outcome = await stage.run(succeed)
    assert (outcome.patch, outcome.ending.reason) == (PATCH, StopReason.ERROR)
    assert stage.payload(RunFinished).patch == "5" * 64
