"""Writes docs/reference/tools.md from the specs of the built-in tools: `python tests/docs/tool_reference.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corral.schema.tools import ToolSpec
from corral.tools import build_tools

TARGET = Path(__file__).parents[2] / "docs" / "reference" / "tools.md"

HEAD = """\
# Tools

Written by `python tests/docs/tool_reference.py` from the tools' specs; a test holds it equal. The description and the
arguments are exactly what a model is shown.

Every call goes through one pipeline: normalise name and arguments, validate, policy, approval, record started, run
within the time limit, clean, cut to 32 KiB (head and tail; the whole stays at `/outputs/<call>`), mark as untrusted,
record finished. A refused call is answered with the reason and what to do instead.

Every result has a status (`ok`, `error`, `denied`, `timeout`, `truncated`, `not_executed`, `unknown_state`), success,
output, error, summary, artifacts, next actions, recovery hint, truncation and duration. In plan mode the tools that
change something do not exist.
"""


async def _no_diff() -> str:
    return ""


def render_reference() -> str:
    specs = [tool.spec for tool in build_tools(_no_diff)]
    rows = [f"| [`{spec.name}`](#{spec.name}) | {spec.side_effect.value} | {spec.timeout_s:g} s |" for spec in specs]
    table = "\n".join(["| tool | side effect | time limit |", "|---|---|---|", *rows])
    return "\n\n".join([HEAD.rstrip(), table, *map(_render_tool, specs)]) + "\n"


def _render_tool(spec: ToolSpec) -> str:
    facts = [
        f"scope `{spec.scope}`",
        f"side effect `{spec.side_effect.value}`",
        f"policy action `{spec.kind.value}`",
        "idempotent" if spec.idempotent else "not idempotent",
        f"permission `{spec.permission.value}`",
    ]
    if spec.aliases:
        facts.append("also called " + ", ".join(f"`{alias}`" for alias in spec.aliases))
    parts = [f"## {spec.name}", spec.description.replace("\n", "\n\n"), f"*{'; '.join(facts)}.*"]
    properties = spec.parameters["properties"]
    if properties:
        required = spec.parameters["required"]
        rows = [_render_argument(name, schema, name in required) for name, schema in properties.items()]
        parts.append("\n".join(["| argument | type | | what |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _render_argument(name: str, schema: dict[str, Any], required: bool) -> str:
    value = schema.get("default")
    default = f"default `{value:g}`" if isinstance(value, float) else f"default `{str(value).lower()}`"
    default = "optional" if value is None else default
    return f"| `{name}` | {schema['type']} | {'required' if required else default} | {schema['description']} |"


if __name__ == "__main__":
    TARGET.write_text(render_reference())
