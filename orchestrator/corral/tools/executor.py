"""The one way a tool runs. Every step may refuse, and what it refuses is told with the reason.

normalise → validate → decide → approve → record started → run → clean → redact → bound → mark untrusted → record
finished
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from corral.context.untrusted import wrap_untrusted
from corral.errors import RecordError, SandboxError, ToolError
from corral.redact import Redactor
from corral.sandbox.base import CALL, Sandbox
from corral.schema.policy import ApprovalAnswer, ApprovalRequest, Approver, Decider, Decision, Effect
from corral.schema.text import digest
from corral.schema.tools import SideEffect, ToolCall, ToolResult, ToolStatus
from corral.tools.arguments import copy_arguments, normalise, validate
from corral.tools.base import Arguments, Recorder, ShellState, Tool, ToolContext
from corral.tools.bounds import bound, clean
from corral.tools.mask import mask_call, mask_result
from corral.tools.outputs import OutputStore
from corral.tools.registry import ToolRegistry
from corral.tools.result import describe_failure, failed
from corral.tools.trail import CallTrail

APPROVAL_WAIT_S = 600.0


@dataclass
class _Progress:
    """One call on its way through the steps."""

    call: ToolCall
    trail: CallTrail
    tool: Tool | None = None
    arguments: Arguments = field(default_factory=dict)
    decision: Decision | None = None

    @property
    def name(self) -> str:
        return self.tool.spec.name if self.tool else self.call.name

    @property
    def ready(self) -> Tool:
        assert self.tool is not None  # every step after normalise
        return self.tool

    @property
    def normal_call(self) -> ToolCall:
        """The call as it will run, in a copy of its own: who judges or approves cannot change what runs."""
        return ToolCall(id=self.call.id, name=self.name, arguments=copy_arguments(self.arguments))


class ToolExecutor:
    """Runs calls of one session against one box.

    `registry` holds only what the session may see. Without an approver every `ask` is a no.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        decider: Decider,
        recorder: Recorder,
        sandbox: Sandbox,
        outputs: OutputStore,
        approver: Approver | None = None,
        approval_wait_s: float = APPROVAL_WAIT_S,
        shell: ShellState | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self.registry = registry
        self.shell = shell or ShellState()
        self._decider = decider
        self._recorder = recorder
        self._sandbox = sandbox
        self._outputs = outputs
        self._approver = approver
        self._approval_wait_s = approval_wait_s
        self._redactor = redactor or Redactor()

    async def execute(self, call: ToolCall, *, step: int = 0) -> ToolResult:
        """Answer one call. Raises only SandboxError (the box is gone), RecordError, and CancelledError."""
        began = time.monotonic()
        progress = _Progress(call, CallTrail(self._recorder, call, step))
        try:
            result = await self._prepare(progress)
        finally:
            await progress.trail.settle()
        if result is None:
            result = await self._run(progress)
        for shape in (_clean, self._redact, self._bound, _mark):
            result = shape(progress, result)
        result = result.model_copy(update={"duration_s": round(time.monotonic() - began, 6)})
        await progress.trail.finished(result)
        return result

    async def _prepare(self, progress: _Progress) -> ToolResult | None:
        steps: tuple[Callable[[_Progress], Awaitable[ToolResult | None]], ...] = (
            self._normalise,
            self._validate,
            self._decide,
            self._approve,
            self._record_start,
        )
        for step in steps:
            refusal = await step(progress)
            if refusal is not None:
                return refusal
        return None

    async def _normalise(self, progress: _Progress) -> ToolResult | None:
        call = progress.call
        progress.tool = self.registry.find(call.name)
        if progress.tool is None:
            progress.trail.parsed(None, call.arguments, "there is no tool of this name")
            nearest = self.registry.nearest(call.name)
            hint = f"did you mean {nearest!r}? " if nearest else ""
            return failed(
                "unknown_tool",
                f"there is no tool {call.name[:100]!r}",
                kind="parameter",
                hint=f"{hint}the tools are: {', '.join(self.registry.names)}",
            )
        if call.problem is not None:
            progress.trail.parsed(progress.tool.spec, call.arguments, call.problem)
            hint = "send the arguments as one JSON object that fits the tool's schema"
            return failed("malformed_tool_call", call.problem, kind="parameter", hint=hint)
        progress.arguments = normalise(progress.tool.spec.parameters, copy_arguments(call.arguments))
        return None

    async def _validate(self, progress: _Progress) -> ToolResult | None:
        spec = progress.ready.spec
        problems = list(validate(spec.parameters, progress.arguments))
        progress.trail.parsed(spec, progress.arguments, "; ".join(map(str, problems)) or None)
        if problems:
            message = "; ".join(map(str, problems[:5]))
            location = ", ".join(problem.field for problem in problems[:5])
            return failed("invalid_argument", message, location=location)
        if self._redactor.holds_placeholder(progress.arguments) and spec.side_effect is not SideEffect.READ_ONLY:
            # What was masked is not known to the model: written back, the placeholder would take its place.
            return failed(
                "masked_argument",
                "the arguments hold a placeholder for something that was masked",
                kind="parameter",
                hint="work around the masked text: change the lines beside it, or let a command move it unseen",
            )
        if progress.call.repaired and spec.side_effect is not SideEffect.READ_ONLY:
            # SECURITY: a repair can change the meaning; test_a_repaired_call_with_effects_is_not_run
            read = json.dumps(progress.arguments, ensure_ascii=False)
            return failed(
                "repaired_arguments",
                f"the arguments were no valid JSON and would be read as {read}",
                kind="parameter",
                hint="send the call again with valid JSON",
            )
        return None

    async def _decide(self, progress: _Progress) -> ToolResult | None:
        decision = await self._judge(progress, approved=False)
        return _denied(decision) if decision.effect is Effect.DENY else None

    async def _approve(self, progress: _Progress) -> ToolResult | None:
        decision = progress.decision
        assert decision is not None
        if decision.effect is Effect.ASK:
            request = ApprovalRequest(
                # SECURITY: a person sees no secret; the digest is of what will run; test_an_approver_sees_no_secret
                call=mask_call(self._redactor, progress.normal_call),
                side_effect=progress.ready.spec.side_effect,
                decision=decision,
                digest=self._digest(progress, decision),
            )
            answer = await self._ask(progress, request)
            # SECURITY: the yes must be to what runs now, under these rules; test_a_yes_to_something_else_is_a_no
            moved = self._digest(progress, decision) != request.digest
            if moved or not answer.covers(request):
                reason = "what would run has changed since" if moved else answer.reason or "the answer was no"
                return failed(
                    "approval_denied",
                    f"not approved: {reason}",
                    status=ToolStatus.DENIED,
                    kind="permission",
                    hint="take another way that needs no approval, or say in finish what is missing",
                )
            decision = await self._judge(progress, approved=True)
        if decision.effect is Effect.ALLOW:
            return None
        if decision.effect is Effect.ALLOW_AFTER_CHECKPOINT:
            return _denied(decision.model_copy(update={"reason": "a checkpoint is needed first and none can be made"}))
        return _denied(decision)

    async def _judge(self, progress: _Progress, *, approved: bool) -> Decision:
        spec = progress.ready.spec
        decision = self._decider.decide(spec, progress.normal_call, approved=approved)
        progress.trail.decided(spec, decision)
        progress.decision = decision
        return decision

    async def _ask(self, progress: _Progress, request: ApprovalRequest) -> ApprovalAnswer:
        """The answer of a person, or a no when nobody answers in time."""
        began = time.monotonic()
        await progress.trail.asked(request, self._approval_wait_s)
        answer = ApprovalAnswer(approved=False, digest=request.digest, reason="nobody is there to ask")
        if self._approver is not None:
            try:
                async with asyncio.timeout(self._approval_wait_s):
                    answer = await self._approver.request(request)
            except TimeoutError:
                answer = ApprovalAnswer(approved=False, digest=request.digest, reason="nobody answered in time")
        await progress.trail.answered(request, answer, time.monotonic() - began)
        return answer

    async def _record_start(self, progress: _Progress) -> None:
        tool = progress.ready
        limit_s = tool.time_limit(progress.arguments)
        # SECURITY: on the disk before the effect; test_a_started_event_is_durable_before_a_write_runs
        durable = tool.spec.side_effect is not SideEffect.READ_ONLY and not tool.holds
        await progress.trail.started(
            tool.spec, progress.arguments, cwd=self.shell.cwd, limit_s=limit_s, durable=durable
        )

    async def _run(self, progress: _Progress) -> ToolResult:
        tool = progress.ready
        limit_s = tool.time_limit(progress.arguments)
        CALL.set(progress.call.id)
        hold = self._recorder.sync_async if tool.holds else None
        context = ToolContext(progress.call.id, self._sandbox, self._outputs, self.shell, hold)
        try:
            async with asyncio.timeout(limit_s) as clock:
                return await tool.run(copy_arguments(progress.arguments), context)
        except ToolError as error:
            return describe_failure(error)
        except (SandboxError, RecordError):
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and clock.expired():
                return _timed_out(tool, limit_s)
            return failed("internal", f"{tool.spec.name} failed inside corral: {type(error).__name__}: {error}")

    def _redact(self, progress: _Progress, result: ToolResult) -> ToolResult:
        # SECURITY: before anything goes to a model; test_a_model_gets_no_secret
        return mask_result(self._redactor, result)

    def _bound(self, progress: _Progress, result: ToolResult) -> ToolResult:
        output, truncation = bound(result.output)
        if truncation is not None:
            kept = self._outputs.open(progress.call.id)
            kept.store(result.output)
            output, truncation = bound(result.output, full_at="" if kept.problem else kept.path)
        truncation = result.truncation or truncation
        if truncation is None:
            return result
        status = ToolStatus.TRUNCATED if result.status is ToolStatus.OK else result.status
        return result.model_copy(update={"output": output, "truncation": truncation, "status": status})

    def _digest(self, progress: _Progress, decision: Decision) -> str:
        what = [progress.name, progress.arguments, self.shell.cwd, decision.policy_version]
        return digest(json.dumps(what, sort_keys=True))


def _denied(decision: Decision) -> ToolResult:
    hint = decision.hint or "take another way; the same call will be denied again"
    reason = f"{decision.reason} ({', '.join(decision.rules)})" if decision.rules else decision.reason
    return failed("policy_denied", reason, status=ToolStatus.DENIED, kind="permission", hint=hint)


def _timed_out(tool: Tool, limit_s: float) -> ToolResult:
    spec = tool.spec
    message = f"{spec.name} did not end within {limit_s:g} s"
    if spec.idempotent or spec.side_effect is SideEffect.READ_ONLY:
        return failed("timeout", message, status=ToolStatus.TIMEOUT)
    hint = "it may have happened or not: read the files or use diff before you try again"
    return failed("timeout", message, status=ToolStatus.UNKNOWN_STATE, hint=hint)


def _clean(progress: _Progress, result: ToolResult) -> ToolResult:
    return result.model_copy(update={"output": clean(result.output)}) if result.output else result


def _mark(progress: _Progress, result: ToolResult) -> ToolResult:
    """Only what a session tool says is corral's or the model's own word."""
    own = progress.tool is not None and progress.tool.spec.scope == "session"
    if not result.output or own:
        return result
    return result.model_copy(update={"output": wrap_untrusted(result.output, progress.name)})
