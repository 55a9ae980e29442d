"""A model that answers as it did in a recorded run: the same run again, without the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from corral.errors import ConfigError, ModelError
from corral.llm.client import OnText
from corral.llm.wire import digest_request
from corral.schema.events import Event, ModelAnswered, ModelCalled
from corral.schema.messages import FinishReason, ModelReply, ModelRequest, Usage
from corral.schema.tools import ToolCall


class ReplayModel:
    """Holds to ModelClient. `diverged` counts the requests that were not what the recorded model saw: times, paths or
    the workspace differ; the answers are given all the same."""

    def __init__(self, answers: tuple[ModelAnswered, ...], digests: dict[str, str]) -> None:
        self._answers = answers
        self._digests = digests
        self._next = 0
        self.diverged = 0

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> Self:
        """The model of a recorded run. Raises ConfigError when no model answered in it."""
        answers: list[ModelAnswered] = []
        digests: dict[str, str] = {}
        for event in events:
            if isinstance(event.payload, ModelCalled):
                digests[event.payload.request_id] = event.payload.request_sha256
            elif isinstance(event.payload, ModelAnswered):
                answers.append(event.payload)
        if not answers:
            raise ConfigError("no model answered in the recorded run", hint="replay a run of `corral run`")
        return cls(tuple(answers), digests)

    @property
    def name(self) -> str:
        return self._answers[0].model

    @property
    def endpoint(self) -> str:
        return ""

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        if self._next >= len(self._answers):
            raise ModelError(
                f"the recorded run has {len(self._answers)} answers, and this run asks for one more",
                hint="the run took another way than the recorded one",
                code="script",
            )
        answer = self._answers[self._next]
        self._next += 1
        recorded = self._digests.get(answer.request_id)
        if recorded and recorded != digest_request(request):
            self.diverged += 1
        if on_text is not None and answer.text:
            on_text(answer.text)
        return _to_reply(answer)

    async def close(self) -> None:
        return None


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
