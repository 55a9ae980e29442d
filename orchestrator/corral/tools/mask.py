"""Calls and results without what must not be seen. The box gets the call as it is; its answer is masked here."""

from __future__ import annotations

from typing import Any

from corral.redact import Redactor
from corral.schema.tools import ToolCall, ToolResult


def mask_call(redactor: Redactor, call: ToolCall) -> ToolCall:
    """The call as a person is shown it."""
    arguments = redactor.value(call.arguments)
    return call if arguments == call.arguments else call.model_copy(update={"arguments": arguments})


def mask_result(redactor: Redactor, result: ToolResult) -> ToolResult:
    """The result as a model and a record get it. What is a fact for the record only is masked there."""
    changed: dict[str, Any] = {}
    for name in ("output", "summary", "recovery_hint"):
        text: str = getattr(result, name)
        if (masked := redactor.text(text)) is not text:
            changed[name] = masked
    if result.next_actions:
        changed["next_actions"] = tuple(map(redactor.text, result.next_actions))
    if (error := result.error) is not None:
        texts = {name: redactor.text(getattr(error, name)) for name in ("message", "location", "suggestion")}
        changed["error"] = error.model_copy(update=texts)
    return result.model_copy(update=changed) if changed else result
