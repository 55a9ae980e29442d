"""The arguments of a native call: strict JSON of one object, or a problem the model is told."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from corral.schema.text import clean

MAX_CHARS = 4 << 20


class _Refused(ValueError):
    """Text that json.loads takes and JSON does not."""


def parse_arguments(value: object) -> tuple[dict[str, Any], str | None]:
    """The arguments, and why there are none. Missing and empty ones are an empty object.

    Halves of surrogate pairs become U+FFFD: nothing later could encode them.
    """
    if value is None:
        return {}, None
    if isinstance(value, Mapping):  # some servers send the object itself
        return _clean_value(dict(value)), None
    if not isinstance(value, str):
        return {}, f"malformed_tool_call: the arguments are no text but a {type(value).__name__}"
    if not value.strip():
        return {}, None
    if len(value) > MAX_CHARS:
        return {}, f"invalid_arguments: {len(value)} characters of arguments, at most {MAX_CHARS} are read"
    try:
        parsed = json.loads(value, parse_constant=_refuse_constant, parse_float=_parse_float)
    except json.JSONDecodeError as error:
        return {}, f"invalid_arguments: not JSON at character {error.pos}: {error.msg}"
    except _Refused as error:
        return {}, f"invalid_arguments: {error}"
    except ValueError:  # a whole number of thousands of digits
        return {}, "invalid_arguments: a number is too large"
    except RecursionError:
        return {}, "invalid_arguments: nested too deep"
    if not isinstance(parsed, dict):
        return {}, f"invalid_arguments: a JSON object is needed, not {_name_type(parsed)}"
    return _clean_value(parsed), None


def _refuse_constant(text: str) -> object:
    raise _Refused(f"{text} is not JSON")


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused("a number is too large")
    return number


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): _clean_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean_value(item) for item in value]
    return value


def _name_type(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
