"""A model that answers as it did in a recorded run: the same run again, without the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from corral.errors import ConfigError, ModelError
from corral.llm.client import OnText
from corral.llm.wire import digest_request, digest_shape
from corral.schema.events import ErrorFacts, ErrorRaised, Event, ModelAnswered, ModelCalled
from corral.schema.messages import FinishReason, ModelReply, ModelRequest, Usage
from corral.schema.tools import ToolCall


@dataclass(frozen=True)
class _Turn:
    """One request of the recorded run and what came of it."""

    called: ModelCalled | None
    answer: ModelAnswered | ErrorFacts


class ReplayModel:
    """Holds to ModelClient. `diverged` counts the requests that were not what the recorded model saw, but for times,
    sizes and temporary names: the task, the settings or the workspace differ. The answers are given all the same."""

    def __init__(self, turns: tuple[_Turn, ...], name: str) -> None:
        self._turns = turns
        self._name = name
        self._next = 0
        self.diverged = 0

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> Self:
        """The model of a recorded run. Raises ConfigError when no model answered in it."""
        turns: list[_Turn] = []
        called: dict[str, ModelCalled] = {}
        pending: ModelCalled | None = None
        name = ""
        for event in events:
            match event.payload:
                case ModelCalled() as pending:
                    called[pending.request_id] = pending
                case ModelAnswered() as answer:
                    turns.append(_Turn(called.get(answer.request_id), answer))
                    pending, name = None, name or answer.model
                case ErrorRaised() as raised if pending is not None and raised.step == pending.step:
                    turns.append(_Turn(pending, raised.error))
                    pending = None
                case _:
                    pass
        if not name:
            raise ConfigError("no model answered in the recorded run", hint="replay a run of `corral run`")
        return cls(tuple(turns), name)

    @property
    def name(self) -> str:
        return self._name

    @property
    def endpoint(self) -> str:
        return ""

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        if self._next >= len(self._turns):
            raise ModelError(
                f"the recorded run has {len(self._turns)} answers, and this run asks for one more",
                hint="the run took another way than the recorded one",
                code="script",
            )
        turn = self._turns[self._next]
        self._next += 1
        if turn.called is not None and not _is_same(turn.called, request):
            self.diverged += 1
        answer = turn.answer
        if isinstance(answer, ErrorFacts):
            raise ModelError(answer.message, hint=answer.suggestion or None, code=answer.code)
        if on_text is not None and answer.text:
            on_text(answer.text)
        return _to_reply(answer)

    async def close(self) -> None:
        return None


def _is_same(called: ModelCalled, request: ModelRequest) -> bool:
    if called.shape_sha256:
        return called.shape_sha256 == digest_shape(request)
    return called.request_sha256 == digest_request(request)


def _to_reply(answer: ModelAnswered) -> ModelReply:
    tokens = answer.tokens
    return ModelReply(
        model=answer.model,
        text=answer.text,
        reasoning=answer.reasoning,
        calls=tuple(
            ToolCall(id=c.id, name=c.name, arguments=c.arguments, problem=c.problem, repaired=c.repaired)
            for c in answer.calls
        ),
        finish=FinishReason(answer.finish) if answer.finish in set(FinishReason) else FinishReason.UNKNOWN,
        usage=Usage(
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            cached_tokens=tokens.cached,
            reported=tokens.reported,
        ),
        cost_usd=answer.cost_usd,
    )
