"""What happens to a call that has been made before: a note, a cached answer, a refusal, a last answer without tools."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field

from corral.agent.repetition import Repetition, Rung, signature
from corral.schema.events import GuardTripped
from corral.schema.tools import ArgumentRole, SideEffect, ToolCall, ToolResult, ToolSpec, ToolStatus
from corral.tools.arguments import normalise
from corral.tools.base import Recorder
from corral.tools.builtin.session import FINISH
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
    wants_last_answer: bool = False
    _repetition: Repetition = field(default_factory=Repetition)
    _answers: dict[str, ToolResult] = field(default_factory=dict)

    async def refuse(self, call: ToolCall, *, step: int) -> ToolResult | None:
        """The answer in place of running the call, or None: it may run."""
        call, spec = self._fold(call)
        rung = self._repetition.rung(call)
        if rung is Rung.FINE or call.name == FINISH:
            return None
        if rung is Rung.NOTE:
            # Kept only while nothing ran that could have made it old; else the call runs, and may show news.
            cached = self._answers.get(signature(call)) if _is_read_only(spec) else None
            if cached is None:
                return None
            self._repetition.note_refused(call)
            await self._trip(call, "answer_cached", step)
            return with_note(cached, _NOTE)
        count = self._repetition.times(call) + 1
        self._repetition.note_refused(call)
        self.wants_last_answer = rung is Rung.LAST_ANSWER
        await self._trip(call, rung.name.lower(), step)
        message = _REFUSED.format(count=count)
        return failed("repeated_call", message, status=ToolStatus.NOT_EXECUTED, kind="parameter", hint=_STRATEGY)

    def note(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Remember what a call gave; a third same result is told so."""
        call, spec = self._fold(call)
        again = self._repetition.note(call, result, spec) and call.name != FINISH
        if _is_read_only(spec):
            self._answers[signature(call)] = result
        else:
            self._answers.clear()  # what was read before a write may be old
        return with_note(result, _NOTE) if again else result

    def _fold(self, call: ToolCall) -> tuple[ToolCall, ToolSpec | None]:
        """The call under its tool's own name, its arguments as they would run, without those that are the default."""
        tool = self.registry.find(call.name)
        if tool is None:
            return call, None
        spec = tool.spec
        properties = spec.parameters.get("properties", {})
        arguments = normalise(spec.parameters, call.arguments)
        for name, value in list(arguments.items()):
            schema = properties.get(name, {})
            if "default" in schema and schema["default"] == value:
                del arguments[name]
            elif spec.roles.get(name) is ArgumentRole.PATH and isinstance(value, str) and value:
                arguments[name] = posixpath.normpath(value)
        return call.model_copy(update={"name": spec.name, "arguments": arguments}), spec

    async def _trip(self, call: ToolCall, action: str, step: int) -> None:
        event = GuardTripped(guard="repetition", action=action, call_id=call.id, step=step, reason=call.name)
        await self.recorder.append_async(event, durable=False)


def _is_read_only(spec: ToolSpec | None) -> bool:
    return spec is None or spec.side_effect is SideEffect.READ_ONLY


def with_note(result: ToolResult, note: str) -> ToolResult:
    """The result with one more thing the model should do next."""
    return result.model_copy(update={"next_actions": (*result.next_actions, note)})
