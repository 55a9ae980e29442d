"""Arguments of a call: normalised where the meaning is beyond doubt, then held to the tool's JSON Schema.

The schema is the one the model was shown. It uses a small part of JSON Schema, and `check_schema` refuses a tool that
uses more, so that nothing is promised to the model that is not held here.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from corral.errors import ConfigError

_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"enum", "minLength", "maxLength", "pattern"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set(),
}
_COMMON = {"type", "description", "default", "title"}
_PYTHON: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
_UNCHANGEABLE = (str, int, float, type(None))
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True)
class Problem:
    """One argument that does not fit."""

    field: str
    problem: str
    expected: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}, expected {self.expected}"


def check_schema(schema: dict[str, Any], where: str) -> None:
    """Refuse a schema we could not hold a model to. Raises ConfigError."""
    kind = schema.get("type")
    if kind not in _KEYWORDS:
        raise ConfigError(f"{where}: type {kind!r}", hint=f"allowed: {', '.join(_KEYWORDS)}")
    unknown = sorted(set(schema) - _KEYWORDS[kind] - _COMMON)
    if unknown:
        allowed = sorted(_KEYWORDS[kind] | _COMMON)
        raise ConfigError(f"{where}: {unknown[0]!r} is not supported", hint=f"allowed: {', '.join(allowed)}")
    if kind == "object":
        if schema.get("additionalProperties") is not False:
            raise ConfigError(f"{where}: additionalProperties must be false")
        for name, inner in schema.get("properties", {}).items():
            check_schema(inner, f"{where}.{name}")
        missing = sorted(set(schema.get("required", [])) - set(schema.get("properties", {})))
        if missing:
            raise ConfigError(f"{where}: {missing[0]!r} is required but not described")
    if kind == "array":
        check_schema(schema.get("items", {}), f"{where}[]")


def copy_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """A copy of its own, whole depth."""
    return {name: _copy(value) for name, value in arguments.items()}


def _copy(value: Any) -> Any:
    return value if isinstance(value, _UNCHANGEABLE) else copy.deepcopy(value)


def normalise(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments` without nulls for optional ones, and with a number or truth value that came as text read as one."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    fixed: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is None and name in properties and name not in required:
            continue
        fixed[name] = _read_text(properties[name]["type"], value) if name in properties else value
    return fixed


def validate(schema: dict[str, Any], value: Any, field: str = "") -> Iterator[Problem]:
    """Everything wrong with `value`, in the order of the schema."""
    kind = schema["type"]
    if not _is_a(kind, value):
        yield Problem(field or "arguments", f"{_show(value)} is {_kind_of(value)}", _describe(schema))
        return
    if kind == "object":
        yield from _validate_object(schema, value, field)
    elif kind == "array":
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1 << 30):
            yield Problem(field, f"{len(value)} items", _describe(schema))
        for position, item in enumerate(value):
            yield from validate(schema["items"], item, f"{field}[{position}]")
    elif kind == "string":
        yield from _validate_string(schema, value, field)
    elif kind != "boolean" and not (schema.get("minimum", value) <= value <= schema.get("maximum", value)):
        yield Problem(field, f"{_show(value)} is out of range", _describe(schema))


def _is_a(kind: str, value: Any) -> bool:
    # To Python a truth value is a number.
    return isinstance(value, _PYTHON[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _validate_object(schema: dict[str, Any], value: dict[str, Any], field: str) -> Iterator[Problem]:
    properties = schema.get("properties", {})
    prefix = f"{field}." if field else ""
    for name in schema.get("required", []):
        if name not in value:
            yield Problem(f"{prefix}{name}", "missing", _describe(properties[name]))
    for name in value:
        if name not in properties:
            near = difflib.get_close_matches(name, properties, n=1)
            expected = f"{near[0]!r}" if near else f"one of {', '.join(properties) or 'no arguments at all'}"
            yield Problem(f"{prefix}{_show(name)}", "there is no such argument", expected)
    for name, inner in properties.items():
        if name in value:
            yield from validate(inner, value[name], f"{prefix}{name}")


def _validate_string(schema: dict[str, Any], value: str, field: str) -> Iterator[Problem]:
    try:
        value.encode()
    except UnicodeEncodeError:
        yield Problem(field, "half a surrogate pair in the text", "valid Unicode")
    if "enum" in schema and value not in schema["enum"]:
        yield Problem(field, f"{_show(value)} is not allowed", _describe(schema))
    elif not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30):
        yield Problem(field, f"{len(value)} characters", _describe(schema))
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        yield Problem(field, f"{_show(value)} does not fit", _describe(schema))


def _read_text(kind: str, value: Any) -> Any:
    if not isinstance(value, str):
        # JSON has one kind of number: 3.0 is a whole one.
        return int(value) if kind == "integer" and isinstance(value, float) and value.is_integer() else value
    text = value.strip()
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", text):
        return float(text)
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return value


def _describe(schema: dict[str, Any]) -> str:
    """The rule in words."""
    if "enum" in schema:
        return "one of " + ", ".join(map(repr, schema["enum"]))
    words = {"string": "a string", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
    text = words.get(schema["type"], f"an {schema['type']}")
    low = schema.get("minimum", schema.get("minLength", schema.get("minItems")))
    high = schema.get("maximum", schema.get("maxLength", schema.get("maxItems")))
    unit = {"string": " characters", "array": " items"}.get(schema["type"], "")
    if low is not None and high is not None:
        text += f" of {low} to {high}{unit}"
    elif low is not None or high is not None:
        text += f" of at least {low}{unit}" if high is None else f" of at most {high}{unit}"
    return text + (f" matching {schema['pattern']}" if "pattern" in schema else "")


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a truth value", int: "a number", float: "a number", str: "a string", list: "an array"}
    return names.get(type(value), "an object")


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
