"""The body of `corral run`: builds the model's world before the first call, then loops."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from corral.agent.ask import Ask, ModelClient
from corral.agent.budget import Budget, Limits
from corral.agent.completion import Completion
from corral.agent.head_start import HeadStart
from corral.agent.ladder import Ladder
from corral.agent.loop import Loop
from corral.agent.run import Ending, RunRecord
from corral.agent.stop import Spent, StopReason
from corral.agent.transcript import Transcript
from corral.context.prompt import Frames, build_system_prompt
from corral.redact import Redactor
from corral.sandbox.base import Sandbox
from corral.schema.events import PlanCreated
from corral.schema.policy import Approver, Decider, Mode
from corral.schema.tools import Permission, ToolResult
from corral.tools.base import ToolTimeouts
from corral.tools.builtin import build_tools
from corral.tools.executor import ToolExecutor
from corral.tools.jobs import JobBook
from corral.tools.outputs import OutputStore
from corral.tools.registry import ToolRegistry

PLAN_STEPS = 8  # SPEC L1: planning that takes longer is not planning


@dataclass
class AgentSession:
    """One task, one model, one box."""

    task: str
    client: ModelClient
    decider: Decider
    record: RunRecord
    outputs: OutputStore
    current_diff: Callable[[Sandbox], Awaitable[str]]
    mount_point: str
    limits: Limits = field(default_factory=Limits)
    mode: Mode = Mode.BUILD
    until: str | None = None
    approver: Approver | None = None
    permission: Permission = Permission.USER
    timeouts: ToolTimeouts = field(default_factory=ToolTimeouts)
    hosts: tuple[str, ...] = ()
    """What the box may reach."""
    redactor: Redactor = field(default_factory=Redactor)
    clock: Callable[[], float] = time.monotonic
    _budget: Budget | None = field(default=None, init=False)
    _head: HeadStart | None = field(default=None, init=False)
    _loop: Loop | None = field(default=None, init=False)
    _jobs: JobBook = field(default_factory=JobBook, init=False)

    def spent(self) -> Spent:
        """What it has used so far."""
        if self._budget is None:
            return Spent()
        budget = copy.copy(self._budget)
        if self._head is not None and (reply := self._head.unused) is not None:
            budget.charge(reply)
        return budget.spent()

    @contextlib.asynccontextmanager
    async def ask_ahead(self, sandbox: Sandbox) -> AsyncIterator[None]:
        """Around the start of this very box: the model is asked meanwhile, and answers to __call__ at the earliest."""
        loop = self._build(sandbox)
        assert self._head is not None
        if loop.budget.exhausted() is not None:
            yield
            return
        async with self._head.begin(loop.transcript, loop.budget.line()):
            yield

    async def __call__(self, sandbox: Sandbox) -> Ending:
        """Raises ModelError, SandboxError, RecordError."""
        ending = await (self._loop or self._build(sandbox)).run()
        if self.mode is Mode.PLAN and ending.reason is StopReason.FINISHED:
            self.record.append(PlanCreated(step=ending.steps, text=ending.summary))
        return ending

    def _build(self, sandbox: Sandbox) -> Loop:
        """The model's world. Nothing in it asks the box before the model has answered."""
        registry = ToolRegistry(
            build_tools(lambda: self.current_diff(sandbox), timeouts=self.timeouts, jobs=self._jobs)
        )
        tools = registry.select(permission=self.permission, mode=self.mode)
        self._budget = Budget(self._limits(), self.clock)
        self._head = HeadStart(Ask(self.client, tools.specs, self.record, self.redactor))
        self._loop = Loop(
            transcript=self._begin(),
            budget=self._budget,
            ask=self._head,
            execute=self._executor(tools, sandbox).execute,
            verify=self._completion(sandbox),
            ladder=Ladder(tools, self.record),
            recorder=self.record,
            open_jobs=lambda: self._jobs.running,
        )
        return self._loop

    def _begin(self) -> Transcript:
        until = self.until if self.mode is Mode.BUILD else None
        return Transcript.begin(
            build_system_prompt(Frames(self.mount_point, plan=self.mode is Mode.PLAN, until=until, hosts=self.hosts)),
            self.task,
        )

    def _limits(self) -> Limits:
        if self.mode is Mode.BUILD:
            return self.limits
        return replace(self.limits, steps=min(self.limits.steps, PLAN_STEPS))

    def _executor(self, tools: ToolRegistry, sandbox: Sandbox) -> ToolExecutor:
        return ToolExecutor(
            tools,
            decider=self.decider,
            recorder=self.record,
            sandbox=sandbox,
            outputs=self.outputs,
            approver=self.approver,
            redactor=self.redactor,
        )

    def _completion(self, sandbox: Sandbox) -> Callable[[], Awaitable[ToolResult | None]]:
        if self.until is None or self.mode is Mode.PLAN:
            return _always_holds
        return Completion(self.until, sandbox, self.record, redactor=self.redactor).check


async def _always_holds() -> ToolResult | None:
    return None
