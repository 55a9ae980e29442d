"""Writes docs/reference/settings.md from corral.config: `python -m tests.docs.settings_reference`."""

from __future__ import annotations

import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tests.docs.event_reference import describe_fields

from corral.config import Settings, parse_size

TARGET = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"

HEAD = """\
# Settings

Written by `python -m tests.docs.settings_reference` from `corral.config`; a test holds it equal.

One TOML file: `config.toml` in corral's folder of your configuration directory (`~/.config/corral/config.toml`), or the
file that `CORRAL_CONFIG` names. It need not exist. A mistake in it stops corral before anything starts (exit code 2)
and names file, line, field and what is allowed. Flags of a command win over the file.

```toml
preset = "auto"
mask = [".env", "*.pem"]

[limits]
memory = "2 GiB"
pids = 256

[model]
name = "some-model"
base_url = "http://127.0.0.1:8000/v1"
```

| setting | value | default | |
|---|---|---|---|
"""


def render_reference() -> str:
    return HEAD + "".join(_rows(Settings, ""))


def _rows(model: type[BaseModel], prefix: str) -> list[str]:
    rows = []
    texts = describe_fields(model)
    for name, field in model.model_fields.items():
        if typing.get_origin(field.annotation) is dict:  # tables of the user's own names
            rows += _rows(typing.get_args(field.annotation)[1], f"{prefix}{name}.NAME.")
            continue
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            rows += _rows(field.annotation, f"{prefix}{name}.")
            continue
        rows.append(f"| `{prefix}{name}` | {_describe_kind(field)} | {_describe_default(field)} | {texts[name][1]} |\n")
    return rows


def _describe_kind(field: FieldInfo) -> str:
    inner, extra = _unwrap(field.annotation)
    metadata = [*field.metadata, *extra]
    if any(getattr(item, "func", None) is parse_size for item in metadata):
        return "size, at least 1 MiB"
    if isinstance(inner, type) and issubclass(inner, StrEnum):
        return ", ".join(f"`{value}`" for value in inner)
    if typing.get_origin(inner) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(inner))
    if inner in (int, float):
        return " ".join([{int: "whole number", float: "number"}[inner], *_describe_bounds(metadata)])
    return "list of texts" if typing.get_origin(inner) is tuple else {Path: "path"}.get(inner, "text")


def _unwrap(annotation: Any) -> tuple[Any, list[Any]]:
    """The type inside `X | None` and `Annotated[X, ...]`, with what was annotated."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        (annotation,) = (part for part in typing.get_args(annotation) if part is not type(None))
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *extra = typing.get_args(annotation)
        flat = [item for part in extra for item in (part.metadata if isinstance(part, FieldInfo) else [part])]
        return inner, flat
    return annotation, []


def _describe_bounds(metadata: list[Any]) -> list[str]:
    words = {annotated_types.Ge: ("ge", "≥"), annotated_types.Gt: ("gt", ">"), annotated_types.Le: ("le", "≤")}
    return [
        f"{sign} {getattr(item, name)}"
        for kind, (name, sign) in words.items()
        for item in metadata
        if isinstance(item, kind)
    ]


def _describe_default(field: FieldInfo) -> str:
    if field.default is None:
        return ""
    _, extra = _unwrap(field.annotation)
    if any(getattr(item, "func", None) is parse_size for item in [*field.metadata, *extra]):
        return f"`{field.default >> 30} GiB`" if field.default % (1 << 30) == 0 else f"`{field.default >> 20} MiB`"
    if field.is_required():
        return "required"
    return "`[]`" if field.default == () else f"`{field.default}`"


if __name__ == "__main__":
    TARGET.write_text(render_reference(), encoding="utf-8")
