"""The loop: ask the model, run what it calls, until something ends it. It fits on one screen on purpose.

Only `finish` ends a run well. Everything else that ends it is a limit, a repetition, a failure or the user; nothing a
tool prints can.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from corral.agent.budget import Budget
from corral.agent.ladder import Ladder
from corral.agent.repetition import signature
from corral.agent.run import Ending
from corral.agent.stop import StopReason
from corral.agent.transcript import Transcript, skipped
from corral.errors import ModelError
from corral.schema.events import GuardTripped
from corral.schema.messages import ModelReply
from corral.schema.tools import ToolCall, ToolResult, ToolStatus
from corral.tools.base import Recorder
from corral.tools.builtin.session import FINISH
from corral.tools.trail import CallTrail

MAX_IDLE_REPLIES = 3  # answers without a call, or of no use at all, in a row
MAX_DENIALS = 3  # denied calls, in a row
MAX_UNPARSED = 3  # calls that could not be read, in a row: the first and SPEC's two retries
MAX_UNVERIFIED = 2  # failures of the completion command that go back to the model

Asked = Callable[[Transcript, str, bool], Awaitable[ModelReply]]
"""Sends the transcript with a status line to the model; the flag says whether it may call tools. Raises ModelError."""


class Execute(Protocol):
    async def __call__(self, call: ToolCall, *, step: int) -> ToolResult: ...


@dataclass
class Loop:
    """One session's turns."""

    transcript: Transcript
    budget: Budget
    ask: Asked
    execute: Execute
    verify: Callable[[], Awaitable[ToolResult | None]]  # the completion condition; None: it holds
    ladder: Ladder
    recorder: Recorder
    open_jobs: Callable[[], tuple[str, ...]] = tuple
    """Names of the jobs that still run."""
    _idle: int = field(default=0, init=False)
    _denials: int = field(default=0, init=False)
    _unparsed: int = field(default=0, init=False)
    _unverified: int = field(default=0, init=False)
    _unknown: set[str] = field(default_factory=set, init=False)
    _last_answer: bool = field(default=False, init=False)
    _remark: str = field(default="", init=False)  # for the next status line

    async def run(self) -> Ending:
        """Turns until one of them ends the run. Raises ModelError, SandboxError, RecordError."""
        while True:
            if (limit := self.budget.exhausted()) is not None:
                return self._end(limit)
            try:
                reply = await self._turn()
            except ModelError as error:
                ending = self._useless_reply(error)
            else:
                ending = await self._act(reply)
            if ending is not None:
                return ending

    async def _turn(self) -> ModelReply:
        status = " · ".join(filter(None, (self.budget.line(), self._remark)))
        self._remark = ""
        reply = await self.ask(self.transcript, status, not self._last_answer)
        self.budget.charge(reply)
        self.transcript.add_reply(reply)
        return reply

    async def _act(self, reply: ModelReply) -> Ending | None:
        if self._last_answer:
            await self._skip(reply.calls, "the run is over")
            return self._end(StopReason.STUCK, reply.text or "the same calls again and again without a change")
        if not reply.calls:
            return self._idle_reply(reply)
        self._idle = 0
        for position, call in enumerate(reply.calls):
            result = await self._call(call)
            self.transcript.add_result(call, result)
            ending = self._after(call, result)
            if ending is not None or not result.success:
                reason = "the run ended before it" if ending else f"not run, because {call.name} before it failed"
                await self._skip(reply.calls[position + 1 :], reason)
                return ending
        return None

    async def _call(self, call: ToolCall) -> ToolResult:
        step = self.budget.steps
        refusal = await self.ladder.refuse(call, step=step)
        if refusal is not None:
            await CallTrail(self.recorder, call, step).finished(refusal)
            return refusal
        result = await self.execute(call, step=step)
        if self._is_finish(call, result) and (problem := await self.verify()) is not None:
            self._unverified += 1
            event = GuardTripped(
                guard="completion", action="not_verified", call_id=call.id, step=step, reason=problem.summary
            )
            await self.recorder.append_async(event, durable=False)
            return problem
        return self.ladder.note(call, result)

    def _after(self, call: ToolCall, result: ToolResult) -> Ending | None:
        """What this result means for the run."""
        if self._is_finish(call, result):
            is_open = bool(self._unknown or self.open_jobs())
            return self._end(StopReason.FINISHED_INCOMPLETE if is_open else StopReason.FINISHED, result.output)
        self._note_unknown(call, result)
        if self._unverified > MAX_UNVERIFIED:
            return self._end(StopReason.NOT_VERIFIED, result.summary)
        self._last_answer = self.ladder.wants_last_answer
        self._denials = self._denials + 1 if result.status is ToolStatus.DENIED else 0
        if self._denials >= MAX_DENIALS:
            return self._end(StopReason.APPROVAL_DENIED, result.summary)
        self._unparsed = self._unparsed + 1 if call.problem is not None else 0
        if self._unparsed >= MAX_UNPARSED:
            return self._end(StopReason.PARSE_FAILURES, result.summary)
        if result.status is not ToolStatus.NOT_EXECUTED:
            self.budget.note_call(failed=is_failure(result))
        return None

    def _note_unknown(self, call: ToolCall, result: ToolResult) -> None:
        # What may have happened or not stays open until the very call has succeeded.
        key = signature(call)
        if result.status is ToolStatus.UNKNOWN_STATE:
            self._unknown.add(key)
        elif result.success:
            self._unknown.discard(key)

    def _is_finish(self, call: ToolCall, result: ToolResult) -> bool:
        # By the registry: a model may write the name in its own way.
        tool = self.ladder.registry.find(call.name)
        return result.success and tool is not None and tool.spec.name == FINISH

    async def _skip(self, calls: Iterable[ToolCall], reason: str) -> None:
        for call in calls:
            result = skipped(reason)
            await CallTrail(self.recorder, call, self.budget.steps).finished(result)
            self.transcript.add_result(call, result)

    def _idle_reply(self, reply: ModelReply) -> Ending | None:
        self._idle += 1
        if self._idle >= MAX_IDLE_REPLIES:
            reason = StopReason.STUCK if reply.text.strip() else StopReason.FAILURES
            return self._end(reason, reply.text or "the model answered with nothing, again and again")
        self.transcript.nudge("Nothing was run: call a tool to go on, or `finish` when the task is done.")
        return None

    def _useless_reply(self, error: ModelError) -> Ending | None:
        """An answer that is none is asked for again, a few times. Raises what asking again cannot mend."""
        self.budget.charge_failure(error)
        if error.code not in ("empty_response", "bad_response"):
            raise error
        if self._last_answer:
            return self._end(StopReason.STUCK, error.message)
        self._idle += 1
        if self._idle < MAX_IDLE_REPLIES:
            self._remark = "your last answer was empty or could not be read: call a tool, or finish"
            return None
        if error.code == "bad_response":
            raise error  # the endpoint's fault, not the model's
        return self._end(StopReason.FAILURES, error.message)

    def _end(self, reason: StopReason, summary: str = "") -> Ending:
        return Ending(reason, summary=summary, spent=self.budget.spent())


def is_failure(result: ToolResult) -> bool:
    """Whether a call failed as a call; a command that exits with 1 has done its job."""
    return not result.success and result.error is not None
