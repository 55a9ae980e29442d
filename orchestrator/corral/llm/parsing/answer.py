"""One answer put together from a stream's chunks, or read from a whole completion. Works on plain JSON values and takes
nothing for granted about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.errors import ModelError
from corral.llm.parsing.native import CallAssembler, parse_message_calls
from corral.llm.parsing.thinking import split_thinking, strip_end_tokens
from corral.llm.usage import parse_usage
from corral.schema.messages import FinishReason, Usage
from corral.schema.text import clean
from corral.schema.tools import ToolCall

MAX_CHARS = 16 << 20

_FINISH = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.CALLS,
    "function_call": FinishReason.CALLS,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.FILTER,
}


@dataclass(frozen=True)
class Answer:
    """What the endpoint said, before it is priced."""

    model: str
    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    finish: FinishReason
    usage: Usage | None
    chars: int


@dataclass
class AnswerBuilder:
    """Takes chunks in order. Raises ModelError for what cannot be put together or has no end."""

    model: str = ""
    finish: FinishReason = FinishReason.UNKNOWN
    usage: Usage | None = None
    chunks: int = 0
    chars: int = 0
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: CallAssembler = field(default_factory=CallAssembler)

    def feed(self, chunk: Mapping[str, Any]) -> str:
        """Take one chunk; the answer text it brings, for showing."""
        self.chunks += 1
        self.model = self.model or _text(chunk.get("model"))
        self.usage = parse_usage(chunk.get("usage")) or self.usage
        choice = _first(chunk.get("choices"))
        self.finish = _FINISH.get(_text(choice.get("finish_reason")), self.finish)
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            return ""
        text = _read_text(delta)
        self._text.append(text)
        self._reasoning.append(_read_reasoning(delta))
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            self._calls.feed(call)
            self._count(len(str(call)))
        self._count(len(text) + len(self._reasoning[-1]))
        return text

    def build(self, used_ids: set[str]) -> Answer:
        calls = self._calls.finish(used_ids, cut_off=self.finish is FinishReason.LENGTH)
        return _build(
            self.model, "".join(self._text), "".join(self._reasoning), calls, self.finish, self.usage, self.chars
        )

    def _count(self, chars: int) -> None:
        self.chars += chars
        if self.chars > MAX_CHARS:
            raise ModelError(f"the model's answer has no end: over {MAX_CHARS} characters", code="bad_response")


def read_completion(body: Mapping[str, Any], used_ids: set[str]) -> Answer:
    """The answer of a whole completion, from endpoints that do not stream."""
    choice = _first(body.get("choices"))
    message = choice.get("message")
    message = message if isinstance(message, Mapping) else {}
    finish = _FINISH.get(_text(choice.get("finish_reason")), FinishReason.UNKNOWN)
    calls = parse_message_calls(message.get("tool_calls"), used_ids, cut_off=finish is FinishReason.LENGTH)
    text, reasoning = _read_text(message), _read_reasoning(message)
    usage = parse_usage(body.get("usage"))
    return _build(_text(body.get("model")), text, reasoning, calls, finish, usage, len(text) + len(reasoning))


def _build(
    model: str,
    text: str,
    reasoning: str,
    calls: tuple[ToolCall, ...],
    finish: FinishReason,
    usage: Usage | None,
    chars: int,
) -> Answer:
    thought, text = split_thinking(clean(text))
    reasoning = strip_end_tokens(clean(reasoning)) + thought
    # Some endpoints say "stop" beside calls, or nothing at all.
    if calls and finish in (FinishReason.STOP, FinishReason.UNKNOWN):
        finish = FinishReason.CALLS
    return Answer(clean(model), text, reasoning, calls, finish, usage, chars)


def _read_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):  # parts, as some endpoints send them
        content = "".join(_text(part.get("text")) for part in content if isinstance(part, Mapping))
    return _text(content) + _text(message.get("refusal"))


def _read_reasoning(message: Mapping[str, Any]) -> str:
    return _text(message.get("reasoning_content")) or _text(message.get("reasoning"))


def _first(choices: object) -> Mapping[str, Any]:
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
