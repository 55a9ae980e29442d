"""`corral demo`: failing tests, an agent that fixes them in a box, a patch, and the tests again.

Every step is judged by an exit code, a stop reason or a verified file, never by text a program printed. The first step
that does not hold ends the demonstration.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from corral import app
from corral.agent.budget import Limits
from corral.agent.run import Outcome
from corral.agent.stop import StopReason
from corral.agent.watch import Watch
from corral.demo.model import MAX_COST_USD, MAX_TOKENS, ModelChoice
from corral.patch.apply import plan_apply
from corral.patch.apply.place import apply_plan
from corral.record import verify_record
from corral.sandbox.base import BoxInfo
from corral_protocol.message import Capture, ExecStatus

TESTS = "python3 -m unittest"
TASK = "The tests of this repository fail. Find out why and fix the code, not the tests."
_STEPS = 15


class View(Protocol):
    """Where the demonstration is shown."""

    @property
    def watch(self) -> Watch | None:
        """Gets the agent's events as they are recorded."""

    def begin(self, title: str) -> None:
        """The next numbered step begins."""

    def say(self, text: str, *, is_good: bool | None = None) -> None:
        """A line of ours about it; `is_good` for what a step is judged by."""

    def box(self, box: BoxInfo) -> None:
        """The agent's box is ready."""

    def output(self, data: bytes) -> None:
        """What a command in the box printed."""

    def diff(self, patch: bytes) -> None: ...


@dataclass(frozen=True)
class Step:
    """One step, over: whether it held, and why one may say so."""

    name: str
    held: bool
    detail: str
    run_id: str = ""


@dataclass
class FixReport:
    """The whole demonstration, as far as it came."""

    is_scripted: bool
    steps: list[Step] = field(default_factory=list)
    run_id: str = ""
    run_dir: Path | None = None
    model: str = ""
    cost_usd: float | None = None

    @property
    def held(self) -> bool:
        return len(self.steps) == len(FixDemo.STEPS) and all(step.held for step in self.steps)


class FixDemo:
    """Runs once, on a copy it may change."""

    STEPS = ("tests_fail", "agent_fixes", "patch_applies", "tests_pass", "record_intact")

    def __init__(self, workspace: Path, model: ModelChoice, view: View) -> None:
        self._workspace = workspace
        self._model = model
        self._view = view
        self._patch = b""
        self._records: list[Path] = []
        self.report = FixReport(model.is_scripted)

    async def run(self) -> FixReport:
        """Raises ConfigError, SandboxError, ModelError, RecordError, PatchError; CancelledError when cancelled."""
        steps = (self._show_red, self._fix, self._apply, self._show_green, self._verify)
        for name, step in zip(self.STEPS, steps, strict=True):
            held, detail, run_id = await step()
            self._view.say(detail, is_good=held)
            self.report.steps.append(Step(name, held, detail, run_id))
            if not held:
                break
        return self.report

    async def _show_red(self) -> tuple[bool, str, str]:
        self._view.begin("The tests of a small repository, in a box")
        code, run_id = await self._run_tests()
        return code == 1, f"red: exit code {code}, as it should be", run_id

    async def _fix(self) -> tuple[bool, str, str]:
        self._view.begin("An agent fixes it, in a box of its own")
        for line in self._model.words:
            self._view.say(line)
        request = app.AgentRequest(
            workspace=self._workspace,
            task=TASK,
            until=TESTS,
            limits=Limits(steps=_STEPS, tokens=MAX_TOKENS, cost_usd=MAX_COST_USD),
        )
        done = await app.run_agent(request, client=self._model.client, watch=self._view.watch, on_box=self._view.box)
        self._take(done.outcome, done.run_dir)
        report = self.report
        report.run_id, report.run_dir, report.model = done.run_id, done.run_dir, done.model
        report.cost_usd = done.outcome.ending.cost_usd
        if done.patch_file is not None:
            self._patch = done.patch_file.read_bytes()
        ending = done.outcome.ending
        finished = ending.reason is StopReason.FINISHED and bool(self._patch)
        passed = ", and the tests pass in its box" if ending.reason is StopReason.FINISHED else ""
        return finished, f"{ending.reason.value} after {ending.steps} steps{passed}", done.run_id

    async def _apply(self) -> tuple[bool, str, str]:
        self._view.begin("What comes out of the box is a patch; it is put on the copy")
        self._view.diff(self._patch)
        # In a thread: it starts git on a directory of its own.
        count = await asyncio.to_thread(self._apply_patch)
        return count > 0, f"applied: {count} file{'' if count == 1 else 's'}, all or nothing, no git run in it", ""

    def _apply_patch(self) -> int:
        with plan_apply(self._patch, self._workspace) as plan:
            apply_plan(plan)
            return len(plan.steps)

    async def _show_green(self) -> tuple[bool, str, str]:
        self._view.begin("The tests of the patched copy, in a new box")
        code, run_id = await self._run_tests()
        return code == 0, f"green: exit code {code}", run_id

    async def _verify(self) -> tuple[bool, str, str]:
        self._view.begin("Every run has a record; changing one byte of it would show")
        events = 0
        for path in self._records:
            report = verify_record(path)
            events += report.head.seq
            if not report.ok or not report.finished:
                return False, f"{path.parent.name}: {report.problem or 'the last event is missing'}", path.parent.name
        return True, f"intact: {events} events in {len(self._records)} records", self.report.run_id

    async def _run_tests(self) -> tuple[int, str]:
        request = app.ExecRequest(workspace=self._workspace, argv=[part.encode() for part in TESTS.split()])
        done = await app.execute(request)
        self._take(done.outcome, done.run_dir)
        assert done.result is not None  # no error, not cancelled: it has ended
        self._view.output(_whole(done.result.stdout) + _whole(done.result.stderr))
        return done.exit_code if done.result.status is ExecStatus.EXITED else 125, done.run_id

    def _take(self, outcome: Outcome, run_dir: Path) -> None:
        """Note the record of a run; a run that was cancelled, or failed outside the command, ends the demonstration."""
        self._records.append(run_dir / "record.jsonl")
        if outcome.ending.reason is StopReason.CANCELLED:
            raise asyncio.CancelledError
        if outcome.error is not None:
            raise outcome.error


def _whole(capture: Capture) -> bytes:
    return base64.b64decode(capture.head_b64) + base64.b64decode(capture.tail_b64)
