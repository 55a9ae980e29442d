from __future__ import annotations

from pathlib import Path

from corral.record import Ledger, RecordLog, RunState, fold, load_state
from corral.record.projection import Action, Spend
from corral.schema import events as ev
from corral.schema.tools import ToolStatus

from .conftest import run_finished, run_started, tick, tool_finished, tool_started, write_run


def record_all(path: Path, payloads: list[ev.Payload]) -> list[ev.Event]:
    clock = tick()
    with RecordLog.open(path, clock_ns=lambda: next(clock)) as log:
        return [log.append(payload, durable=False) for payload in payloads]


def test_fold_of_a_whole_run(record: Path) -> None:
    error = ev.ErrorFacts(kind="parameter", code="not_found", message="no such file")
    answered = ev.ModelAnswered(
        step=2, request_id="m1", model="m", tokens=ev.Tokens(input=10, output=5, cached=2), cost_usd=0.25
    )
    plan = ev.PlanCreated(step=1, text="first this")
    asked = ev.ApprovalAsked(call_id="c2", tool="shell", digest="d" * 64)
    box = ev.Box(id="b1", image="corral-sandbox")
    done = ev.RunFinished(stop_reason="finished", exit_code=0, steps=3, box=box)
    patch = ev.PatchMade(sha256="e" * 64, files=(ev.ChangedFile(path="b.py", change="modified"),), file_count=1)
    finish_1 = tool_finished("c1").model_copy(update={"touched": ("a.py", "b.py"), "cwd": "/workspace/src"})
    finish_2 = ev.ToolFinished(step=3, call_id="c2", tool="read_file", status="error", success=False, error=error)
    started = run_started()
    events = record_all(
        record,
        [
            started,
            plan,
            answered,
            answered.model_copy(update={"cost_usd": None}),
            ev.CallDecided(step=1, call_id="c1", tool="shell", effect="allow"),
            tool_started("c1", "touch a.py"),
            ev.ProcessStarted(pid=7, program="/usr/bin/touch"),
            ev.ConnectionAttempted(host="evil.example", port=443),
            ev.ConnectionAttempted(host="pypi.example", port=443, allowed=True),
            finish_1,
            asked,
            ev.ApprovalAnswered(call_id="c2", digest="d" * 64, approved=True),
            ev.ToolStarted(step=3, call_id="c2", tool="read_file", arguments={"path": "x"}),
            finish_2,
            ev.ErrorRaised(error=error),
            ev.GuardTripped(guard="repetition", action="note"),
            ev.CheckpointMade(checkpoint_id="k1"),
            ev.ContextCompacted(step=3, level="compact", tokens_before=9, tokens_after=4),
            patch,
            ev.PatchApplied(sha256="e" * 64, workspace="/w"),
            done,
        ],
    )
    assert load_state(record) == fold(events)
    assert fold(events) == RunState(
        started=started,
        started_at=events[0].at,
        last_at=events[-1].at,
        events=21,
        step=3,
        plan=plan,
        actions=(
            Action("c1", "shell", 1, {"command": "touch a.py"}, events[5].at, ToolStatus.OK),
            Action("c2", "read_file", 3, {"path": "x"}, events[12].at, ToolStatus.ERROR, error_code="not_found"),
        ),
        changed_files=("b.py",),
        cwd="/workspace/src",
        hosts=("pypi.example",),
        decisions={"allow": 1},
        errors={"not_found": 2},
        guards={"repetition": 1},
        spend=Spend(requests=2, input_tokens=20, output_tokens=10, cached_tokens=4, cost_usd=0.25, unpriced=1),
        processes=1,
        connections=2,
        checkpoints=("k1",),
        patch=patch,
        applied=True,
        box=box,
        finished=done,
        finished_at=events[-1].at,
    )


def test_a_start_without_a_finish_is_in_flight_with_unknown_state(record: Path) -> None:
    asked = ev.ApprovalAsked(call_id="c9", tool="shell", digest="d" * 64)
    events = record_all(record, [run_started(), tool_started("c1"), tool_finished("c1"), tool_started("c2"), asked])
    state = fold(events)
    unknown = Action("c2", "shell", 1, {"command": "true"}, events[3].at, ToolStatus.UNKNOWN_STATE)
    assert state.in_flight == (unknown,)
    assert state.actions[-1] == unknown
    assert state.open_approvals == (asked,)
    assert state.finished is None


def test_a_call_that_never_started_is_an_action_too(record: Path) -> None:
    events = record_all(record, [run_started(), tool_finished("c1", status="denied")])
    assert fold(events).actions == (Action("c1", "shell", 1, {}, events[1].at, ToolStatus.DENIED),)


def test_changed_files_are_the_calls_word_until_there_is_a_patch(record: Path) -> None:
    finish = tool_finished("c1").model_copy(update={"touched": ("b.py", "a.py", "b.py")})
    assert fold(record_all(record, [finish])).changed_files == ("b.py", "a.py")


def test_ledger_gives_the_state_at_each_step(record: Path) -> None:
    events = write_run(record)
    ledger = Ledger()
    for count, event in enumerate(events, 1):
        ledger.add(event)
        assert ledger.state() == fold(events[:count])


def test_state_of_nothing_is_empty() -> None:
    assert fold([]) == RunState()


def test_damaged_lines_are_told_and_the_rest_is_folded(record: Path) -> None:
    write_run(record)
    record.write_bytes(record.read_bytes() + b"junk\n")
    problems: list[object] = []
    state = load_state(record, on_problem=problems.append)
    assert (state.events, len(problems)) == (6, 1)
    assert state.finished == run_finished()
    with RecordLog.open(record):
        pass
    assert load_state(record).recovered == 1
