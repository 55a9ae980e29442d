"""Words that the built-in tools share: argument schemas, and names as the model reads and sends them."""

from __future__ import annotations

import json
from typing import Any

from corral.schema.visible import visible

MAX_PATH = 4096
PATH_NOTE = "Relative to the workspace, or absolute below the workspace or /tmp."


def parameters(required: list[str] | None = None, /, **properties: dict[str, Any]) -> dict[str, Any]:
    """An object schema that allows nothing but `properties`."""
    return {
        "type": "object",
        "properties": properties,
        "required": required or [],
        "additionalProperties": False,
    }


def path(description: str, *, empty: bool = False) -> dict[str, Any]:
    return {"type": "string", "minLength": 0 if empty else 1, "maxLength": MAX_PATH, "description": description}


def text(description: str, *, minimum: int = 0, maximum: int = 700_000) -> dict[str, Any]:
    return {"type": "string", "minLength": minimum, "maxLength": maximum, "description": description}


def flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "default": False, "description": description}


def number(description: str, *, minimum: int, maximum: int = 1 << 40) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description}


def describe(what: str, when: str, when_not: str, returns: str) -> str:
    """The four parts of every description."""
    return f"{what}\nUse it {when}\nDo not use it {when_not}\nReturns {returns}"


def show_name(name: str) -> str:
    """A name of the wire such that the model can send it back: plain where it is plain, else as a JSON string."""
    plain = name.isprintable() and name == name.strip() and not set(name) & set("\"\\'")
    if plain and name == visible(name) and name:
        return name
    quoted = json.dumps(name, ensure_ascii=False)
    return quoted if quoted == visible(quoted) else json.dumps(name)
