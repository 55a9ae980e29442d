"""The loop: ask the model, run what it calls, until something ends it. It fits on one screen on purpose.

Only `finish` ends a run well. Everything else that ends it is a limit, a repetition, a failure or the user; nothing a
tool prints can.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from corral.agent.budget import Budget
from corral.agent.ladder import Ladder
from corral.agent.run import Ending
from corral.agent.stop import StopReason
from corral.agent.transcript import Transcript
from corral.schema.events import Tokens
from corral.schema.messages import ModelReply
from corral.schema.tools import ToolCall, ToolResult, ToolStatus

FINISH = "finish"
MAX_IDLE_REPLIES = 3  # answers without a call, in a row
MAX_DENIALS = 3  # denied calls, in a row
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
    _idle: int = field(default=0, init=False)
    _denials: int = field(default=0, init=False)
    _unverified: int = field(default=0, init=False)
    _last_answer: bool = field(default=False, init=False)

    async def run(self) -> Ending:
        """Turns until one of them ends the run. Raises ModelError, SandboxError, RecordError."""
        while True:
            if (limit := self.budget.exhausted()) is not None:
                return self._end(limit)
            reply = await self._turn()
            ending = await self._act(reply)
            if ending is not None:
                return ending

    async def _turn(self) -> ModelReply:
        reply = await self.ask(self.transcript, self.budget.line(), not self._last_answer)
        self.budget.steps += 1
        self.budget.charge(reply)
        self.transcript.add_reply(reply)
        return reply

    async def _act(self, reply: ModelReply) -> Ending | None:
        if self._last_answer:
            self.transcript.skip(reply.calls, "the run is over")
            return self._end(StopReason.STUCK, reply.text)
        if not reply.calls:
            return self._idle_reply(reply)
        self._idle = 0
        for position, call in enumerate(reply.calls):
            result = await self._call(call)
            self.transcript.add_result(call, result)
            ending = self._after(call, result)
            if ending is not None or not result.success:
                reason = "the run ended before it" if ending else f"not run, because {call.name} before it failed"
                self.transcript.skip(reply.calls[position + 1 :], reason)
                return ending
        return None

    async def _call(self, call: ToolCall) -> ToolResult:
        refusal = await self.ladder.refuse(call, step=self.budget.steps)
        if refusal is not None:
            return refusal
        result = await self.execute(call, step=self.budget.steps)
        if call.name == FINISH and result.success and (problem := await self.verify()) is not None:
            self._unverified += 1
            return problem
        return self.ladder.note(call, result)

    def _after(self, call: ToolCall, result: ToolResult) -> Ending | None:
        """What this result means for the run."""
        if call.name == FINISH and result.success:
            return self._end(StopReason.FINISHED, result.output)
        if self._unverified > MAX_UNVERIFIED:
            return self._end(StopReason.NOT_VERIFIED, result.summary)
        if self.ladder.is_stuck:
            return self._end(StopReason.STUCK, "the same call again and again without a change")
        self._last_answer = self.ladder.wants_last_answer
        self._denials = self._denials + 1 if result.status is ToolStatus.DENIED else 0
        if self._denials >= MAX_DENIALS:
            return self._end(StopReason.APPROVAL_DENIED, result.summary)
        self.budget.note_call(failed=is_failure(result))
        return None

    def _idle_reply(self, reply: ModelReply) -> Ending | None:
        self._idle += 1
        if self._idle >= MAX_IDLE_REPLIES:
            reason = StopReason.STUCK if reply.text.strip() else StopReason.FAILURES
            return self._end(reason, reply.text or "the model answered with nothing, again and again")
        self.transcript.nudge("Nothing was run: call a tool to go on, or `finish` when the task is done.")
        return None

    def _end(self, reason: StopReason, summary: str = "") -> Ending:
        budget = self.budget
        return Ending(
            reason,
            summary=summary,
            steps=budget.steps,
            tokens=Tokens(input=budget.input_tokens, output=budget.output_tokens),
            cost_usd=None if budget.unpriced_calls else budget.cost_usd,
        )


def is_failure(result: ToolResult) -> bool:
    """Whether a call failed as a call; a command that exits with 1 has done its job."""
    return not result.success and "exit_code" not in result.data
