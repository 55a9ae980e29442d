"""Bounded text and JSON for everything that is kept: over-long parts are cut with a mark and the digest of the whole.

Untrusted text enters the record only through these types. They also settle the encoding: a byte that was no UTF-8
becomes `\\xNN`, half a surrogate pair becomes U+FFFD, so that no later write, hash or display can fail on it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 24
_MAX_KEY = 256
_MAX_INT = 1 << 63
_MARK_CHARS = 120  # room for the mark itself: its words, a count, 64 hex digits


def clean(text: str | bytes) -> str:
    """`text` as valid Unicode."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    return _SURROGATE.sub(_replace_surrogate, text)


def _replace_surrogate(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else "\ufffd"


def digest(text: str | bytes) -> str:
    """SHA-256 in hex of a text's UTF-8, or of bytes."""
    return hashlib.sha256(text if isinstance(text, bytes) else clean(text).encode()).hexdigest()


def cut(text: str | bytes, max_chars: int) -> str:
    """At most `max_chars` of a text: head and tail, and between them how much is missing and the digest of all."""
    text = clean(text)
    if len(text) <= max_chars:
        return text
    mark = f"…[cut: {len(text)} characters, sha256 {digest(text)}]…"
    room = max(0, max_chars - _MARK_CHARS)
    tail = room // 3
    return (text[: room - tail] + mark + text[len(text) - tail :])[:max_chars]


def bound(value: Any, max_chars: int, max_items: int = 1000, *, depth: int = 0) -> Any:
    """A JSON value with every text cut, every container shortened, and nothing that JSON cannot carry."""
    if isinstance(value, str | bytes):
        return cut(value, max_chars)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -_MAX_INT <= value < _MAX_INT else cut(hex(value), max_chars)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _MAX_DEPTH:
        return "[cut: nested too deep]"
    if isinstance(value, Mapping):
        return _bound_mapping(value, max_chars, max_items, depth)
    if isinstance(value, list | tuple):
        kept = [bound(item, max_chars, max_items, depth=depth + 1) for item in value[:max_items]]
        return [*kept, f"[cut: {len(value)} items]"] if len(value) > max_items else kept
    return cut(str(value), max_chars)


def _bound_mapping(value: Mapping[Any, Any], max_chars: int, max_items: int, depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        if len(out) >= max_items:
            out["[cut]"] = f"{len(value)} entries"
            break
        out[cut(str(key), _MAX_KEY)] = bound(item, max_chars, max_items, depth=depth + 1)
    return out


@dataclass(frozen=True)
class _Fitted:
    """For a str or a tuple: what is one already and not too long is taken as it is; the rest goes through `shape`.

    The first is asked without a call into Python, and nearly always true: events are on the path of every call.
    """

    max_length: int
    shape: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        loose: Any = handler(source)
        # Where characters are counted, half a surrogate pair does not fit either.
        fitting = {**loose, "max_length": self.max_length, "strict": True}
        return core_schema.union_schema(
            [fitting, core_schema.no_info_before_validator_function(self.shape, loose)],
            mode="left_to_right",
            custom_error_type="not_bounded",
            custom_error_message="Input should be text, or a list of texts where one is meant",
        )


def _cutting(max_chars: int) -> _Fitted:
    return _Fitted(max_chars, lambda value: cut(value, max_chars) if isinstance(value, str | bytes) else value)


def _shortening(max_items: int) -> _Fitted:
    def shape(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) > max_items:
            return (*value[: max_items - 1], f"[cut: {len(value)} items]")
        return value

    return _Fitted(max_items, shape)


def _bounding(max_chars: int) -> BeforeValidator:
    def check(value: Any) -> Any:
        return bound(value, max_chars) if isinstance(value, Mapping) else value

    return BeforeValidator(check)


def capped(max_items: int) -> Callable[[Any], Any]:
    """For lists of models: keeps the first `max_items`. Who fills such a list tells the full count beside it."""

    def check(value: Any) -> Any:
        return value[:max_items] if isinstance(value, list | tuple) else value

    return check


Name = Annotated[str, _cutting(512)]
"""An identifier: tool, model, host, code."""

Line = Annotated[str, _cutting(4096)]
"""A path, a reason, a summary, one argument."""

Block = Annotated[str, _cutting(64 << 10)]
"""A tool's output as shown, a traceback, a preview."""

Body = Annotated[str, _cutting(1 << 20)]
"""What a model said or was told, whole in all but absurd cases, so that a run can be replayed."""

Lines = Annotated[tuple[Line, ...], _shortening(1000)]
"""Paths, rules, an argv."""

Facts = Annotated[dict[str, Any], _bounding(4096)]
"""A small JSON object."""

Arguments = Annotated[dict[str, Any], _bounding(1 << 20)]
"""A call's arguments, whole in all but absurd cases."""

Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
"""SHA-256 in hex, or empty."""
