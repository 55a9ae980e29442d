"""What goes to a model and what comes back, independent of any provider."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from corral.schema.tools import Frozen, ToolCall, ToolSpec


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Message(Frozen):
    """One turn of the conversation. A `tool` message answers exactly one call of the assistant message before it."""

    role: Role
    content: str = ""
    calls: tuple[ToolCall, ...] = ()  # assistant only
    call_id: str = ""  # tool only: the id of the call it answers
    reasoning: str = ""  # assistant only, where the provider gives it


class Usage(Frozen):
    """Tokens of one request. `reported` is false when the provider said nothing and the numbers are estimates."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reported: bool = True


class FinishReason(StrEnum):
    STOP = "stop"
    CALLS = "tool_calls"
    LENGTH = "length"
    FILTER = "content_filter"
    UNKNOWN = "unknown"


class ModelRequest(Frozen):
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    temperature: float | None = None


class ModelReply(Frozen):
    """One answer. A call whose arguments could not be parsed is in `calls` with its `problem` set."""

    model: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    finish: FinishReason = FinishReason.UNKNOWN
    usage: Usage = Field(default_factory=Usage)
    cost_usd: float | None = None  # None when the price is not known
    latency_s: float = 0.0
