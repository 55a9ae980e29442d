"""Our messages and tools as an OpenAI-compatible endpoint takes them. What we send is always valid, whatever the model
once wrote: broken arguments go back as an empty object, an impossible tool name as a possible one."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from corral.schema.messages import Message, ModelRequest, Role
from corral.schema.text import clean
from corral.schema.tools import ToolCall, ToolSpec
from corral.schema.volatile import strip_volatile

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64


def encode_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [_encode_message(message) for message in messages]


def encode_tools(tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


def digest_request(request: ModelRequest) -> str:
    """SHA-256 of all that the model sees: messages and tools, in the form they are sent."""
    return hashlib.sha256(_spell(request).encode()).hexdigest()


def digest_shape(request: ModelRequest) -> str:
    """The same without times, sizes and temporary names: equal for the requests of two runs that go the same way."""
    plain = request.model_copy(update={"messages": tuple(_sort_arguments(message) for message in request.messages)})
    return hashlib.sha256(strip_volatile(_spell(plain)).encode()).hexdigest()


def _sort_arguments(message: Message) -> Message:
    # A record keeps what a call says, not the order in which it was said.
    calls = tuple(
        call.model_copy(update={"arguments": json.loads(json.dumps(call.arguments, sort_keys=True))})
        for call in message.calls
    )
    return message.model_copy(update={"calls": calls}) if calls else message


def _spell(request: ModelRequest) -> str:
    seen = {"messages": encode_messages(request.messages), "tools": encode_tools(request.tools)}
    return json.dumps(seen, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def estimate_tokens(request: ModelRequest) -> int:
    """A rough count for endpoints that report none: four characters a token."""
    text = json.dumps([encode_messages(request.messages), encode_tools(request.tools)], ensure_ascii=False)
    return len(text) // 4 + 1


def _encode_message(message: Message) -> dict[str, Any]:
    text = clean(message.content)
    if message.role is Role.TOOL:
        return {"role": "tool", "tool_call_id": message.call_id, "content": text}
    if message.role is Role.ASSISTANT:
        if message.calls:
            return {
                "role": "assistant",
                "content": text or None,
                "tool_calls": [_encode_call(call) for call in message.calls],
            }
        # Strict endpoints refuse an assistant turn without any content.
        return {"role": "assistant", "content": text or "(no answer)"}
    return {"role": message.role.value, "content": text}


def _encode_call(call: ToolCall) -> dict[str, Any]:
    name = _NOT_IN_NAMES.sub("_", call.name)[:_MAX_NAME] or "unnamed"
    arguments = {} if call.problem is not None else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
