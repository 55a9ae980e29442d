"""Writes docs/reference/python-api.md from signatures and docstrings: `python -m tests.docs.api_reference`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

import corral

TARGET = Path(__file__).parents[2] / "docs" / "reference" / "python-api.md"

HEAD = """\
# Python, name by name

Written by `python -m tests.docs.api_reference` from signatures and docstrings; a test holds it equal.
[Python](python.md) shows how they are used. Sizes are bytes, times are seconds. Errors are below
`CorralError` ([errors](errors.md)).
"""
_LEFT_OUT = {"Event", "Patch"}
"""Have pages of their own."""


def render_reference() -> str:
    kinds = [getattr(corral, name) for name in corral.__all__ if name not in _LEFT_OUT]
    return "\n\n".join([HEAD.rstrip(), *(_render_class(kind) for kind in kinds)]) + "\n"


def _render_class(kind: Any) -> str:
    doc = vars(kind).get("__doc__") or ""
    # A dataclass without a docstring gets its signature for one.
    parts = [f"## {kind.__name__}", "" if doc.startswith(f"{kind.__name__}(") else _clean(doc)]
    if "__init__" in vars(kind) and vars(kind)["__init__"].__doc__ and not issubclass(kind, Exception):
        parts += [_signature(kind.__name__, kind.__init__), _clean(kind.__init__.__doc__)]
    fields = _read_fields(kind)
    if fields:
        rows = [f"| `{name}` | {_cell(f'`{type_}`')} | {_cell(text)} |" for name, type_, text in fields]
        parts.append("\n".join(["| field | type | |", "|---|---|---|", *rows]))
    for name, member in _find_members(kind):
        if isinstance(member, property):
            returns = inspect.get_annotations(member.fget).get("return", "") if member.fget else ""
            parts += [f"**`{name}`**: `{returns}`", _clean(member.__doc__ or "")]
        else:
            parts += [_signature(name, member), _clean(member.__doc__ or "")]
    return "\n\n".join(part for part in parts if part)


def _find_members(kind: Any) -> list[tuple[str, Any]]:
    """Methods and properties of the class and of those of ours that it is made from, in the order of their source."""
    found: dict[str, Any] = {}
    for one in kind.__mro__:
        if one.__module__.split(".")[0].startswith("corral"):
            for name, member in vars(one).items():
                if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    found.setdefault(name, member)
    return list(found.items())


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    shown: list[str] = []
    for one in signature.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f" = {getattr(one.default, '__name__', repr(one.default))}"
        shown.append(f"{stars}{one.name}: {one.annotation}{default}")
    returns = signature.return_annotation
    gives = "" if returns in ("None", signature.empty) else f" -> {returns}"
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    text = f"{prefix}{name}({', '.join(shown)}){gives}"
    if len(text) > 100:
        text = f"{prefix}{name}(\n    " + ",\n    ".join(shown) + f",\n){gives}"
    return f"```python\n{text}\n```"


def _read_fields(kind: Any) -> list[tuple[str, str, str]]:
    """Name, type and text of annotated fields; the text is below a field, or a comment beside it."""
    if issubclass(kind, Exception):
        return []
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.split("\n")
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.ClassDef)
    fields: list[tuple[str, str, str]] = []
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            comment = lines[(node.end_lineno or 1) - 1].partition("  # ")[2]
            fields.append((node.target.id, ast.unparse(node.annotation), comment))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and fields:
            fields[-1] = (*fields[-1][:2], " ".join(str(node.value.value).split()))
    return fields


def _clean(doc: str) -> str:
    return inspect.cleandoc(doc)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(render_reference())
