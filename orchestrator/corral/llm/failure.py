"""What went wrong at an endpoint, told by cause. Every provider words it differently; callers see one code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from corral.errors import ModelError
from corral.schema.text import cut
from corral.schema.visible import visible

_OVERFLOW = re.compile(
    r"maximum context length|max(?:imum)? context (?:length|size|window)|context[_ ]length[_ ]exceeded"
    r"|prompt is too long|input is too long|exceeds? (?:the |its |this model's )?(?:available |maximum )?context"
    r"|exceed_context_size|exceeded max context|reduce the length of the (?:messages|prompt|input)"
    r"|(?:prompt|input|request) (?:tokens? )?exceeds? the (?:model's )?(?:maximum|context)"
    r"|larger than the (?:maximum )?context|context window (?:is )?(?:full|exceeded)|string_above_max_length",
    re.IGNORECASE,
)
_NO_TOOLS = re.compile(
    r"does not support (?:tools?|function)|tools? (?:use |calling )?(?:is|are) not supported"
    r"|support tool use|enable-auto-tool-choice|requires --jinja|tools param requires"
    r"|function calling is not (?:supported|enabled)|unsupported (?:parameter|field)s?:? ['\"`]?tools",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model[_ ]not[_ ]found|(?:model|deployment)\b.{0,200}\b(?:does not exist|not found|not exist)"
    r"|unknown model|invalid model|no such model",
    re.IGNORECASE | re.DOTALL,
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance", re.IGNORECASE)

_HINTS = {
    "auth": "check OPENAI_API_KEY, and that it belongs to this endpoint",
    "quota": "the account is out of credit or over its quota; waiting does not help",
    "not_found": "check the model's name (CORRAL_MODEL) and the address (OPENAI_BASE_URL, usually ending in /v1)",
    "rate_limit": "the endpoint asks to slow down",
    "unreachable": "check OPENAI_BASE_URL, and that the server is up",
    "timeout": "the endpoint is too slow or overloaded",
    "context_overflow": "the conversation is larger than the model's window",
    "no_tool_support": "choose a model that can call tools, or start its server with tool calling switched on",
    "server_error": "the endpoint has trouble of its own; try again later",
    "bad_request": "the endpoint does not take this request; is it OpenAI-compatible?",
    "bad_response": "the endpoint does not keep to the OpenAI protocol; is OPENAI_BASE_URL right (usually .../v1)?",
    "empty_response": "the model said nothing; ask again, or choose another model",
}


def classify(status: int | None, text: str) -> str:
    """The cause by status and wording; `text` holds message, code and type of the error. A status of None is an error
    inside a stream that began well."""
    if status == 429:
        return "quota" if _QUOTA.search(text) else "rate_limit"
    if status in (401, 403):
        return "auth"
    if _OVERFLOW.search(text):
        return "context_overflow"
    if _NO_TOOLS.search(text):
        return "no_tool_support"
    if status == 404 or (status in (400, 422) and _NO_MODEL.search(text)):
        return "not_found"
    if status == 402:
        return "quota"
    if status in (408, 504):
        return "timeout"
    if status is None or status >= 500:
        return "server_error"
    return "bad_request"


def fail(code: str, message: str, *, secret: str = "", retry_after_s: float | None = None) -> ModelError:
    """A ModelError with the hint of its code. `message` may quote the endpoint: it is bounded, made printable, and the
    key is taken out of it."""
    # SECURITY: endpoints echo the key they refuse; test_key_never_appears_in_errors_or_repr
    if secret:
        message = message.replace(secret, "[key]")
    return ModelError(
        visible(cut(" ".join(message.split()), 600)),
        hint=_HINTS.get(code),
        code=code,
        retry_after_s=retry_after_s,
    )


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` in seconds or as a date; None when absent or absurd."""
    try:
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        elif "retry-after" in headers:
            seconds = _parse_delay(headers["retry-after"])
        else:
            return None
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if 0 <= seconds <= 86_400 else None


def _parse_delay(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())


def describe_body(body: Any) -> str:
    """Message, code and type of an error body, whatever its shape."""
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping):
            parts = [inner.get(key) for key in ("message", "detail", "code", "type")]
            return " ".join(str(part) for part in parts if part)
        return str(inner)
    return str(body or "")
