"""What happens to a call that has been made before: a note, a cached answer, a refusal, a last answer, the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from corral.agent.repetition import Repetition, Rung, signature
from corral.schema.events import GuardTripped
from corral.schema.tools import SideEffect, ToolCall, ToolResult, ToolStatus
from corral.tools.base import Recorder
from corral.tools.registry import ToolRegistry
from corral.tools.result import failed

_NOTE = "You have made this very call before, with the same result. Use what you have, or do something else."
_REFUSED = "this very call was made {count} times without anything changing"
_STRATEGY = (
    "stop and think: what did the last results tell you? Take a different way, or call finish and say what is missing"
)


@dataclass
class Ladder:
    """Stands before the executor. The last answer of a read-only call is kept for when it is asked again."""

    registry: ToolRegistry
    recorder: Recorder
    is_stuck: bool = False
    wants_last_answer: bool = False
    _repetition: Repetition = field(default_factory=Repetition)
    _answers: dict[str, ToolResult] = field(default_factory=dict)

    async def refuse(self, call: ToolCall, *, step: int) -> ToolResult | None:
        """The answer in place of running the call, or None: it may run."""
        call = self._fold(call)
        rung = Rung.FINE if call.name == "finish" else self._repetition.rung(call)
        if rung is Rung.FINE:
            return None
        key = signature(call)
        if rung is Rung.NOTE:
            cached = self._answers.get(key) if self._is_read_only(call) else None
            if cached is not None:
                self._repetition.note_refused(call)
                await self._trip(call, "answer_cached", step)
                return with_note(cached, _NOTE)
            return None
        self._repetition.note_refused(call)
        self.is_stuck = rung is Rung.STUCK
        self.wants_last_answer = rung is Rung.LAST_ANSWER
        await self._trip(call, rung.name.lower(), step)
        message = _REFUSED.format(count=int(rung))
        return failed("repeated_call", message, status=ToolStatus.NOT_EXECUTED, kind="parameter", hint=_STRATEGY)

    def note(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Remember what a call gave; a third same result is told so."""
        call = self._fold(call)
        third = call.name != "finish" and self._repetition.rung(call) is Rung.NOTE
        self._repetition.note(call, result, self._side_effect(call))
        if self._is_read_only(call):
            self._answers[signature(call)] = result
        else:
            self._answers.clear()  # what was read before a write may be old
        return with_note(result, _NOTE) if third else result

    def _fold(self, call: ToolCall) -> ToolCall:
        tool = self.registry.find(call.name)
        return call.model_copy(update={"name": tool.spec.name}) if tool else call

    def _side_effect(self, call: ToolCall) -> SideEffect:
        tool = self.registry.find(call.name)
        return tool.spec.side_effect if tool else SideEffect.READ_ONLY

    def _is_read_only(self, call: ToolCall) -> bool:
        return self._side_effect(call) is SideEffect.READ_ONLY

    async def _trip(self, call: ToolCall, action: str, step: int) -> None:
        event = GuardTripped(guard="repetition", action=action, call_id=call.id, step=step, reason=call.name)
        await self.recorder.append_async(event, durable=False)


def with_note(result: ToolResult, note: str) -> ToolResult:
    """The result with one more thing the model should do next."""
    return result.model_copy(update={"next_actions": (*result.next_actions, note)})
