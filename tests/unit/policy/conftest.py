from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from corral.policy import PolicyEngine, PolicyLayer
from corral.schema.tools import ArgumentRole, Permission, SideEffect, ToolKind, ToolSpec
from corral.tools import build_tools


async def no_diff() -> str:
    return ""


def make_spec(name: str, side_effect: SideEffect, **changes: object) -> ToolSpec:
    fields: dict[str, object] = {
        "name": name,
        "description": "a tool",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        "scope": "host",
        "side_effect": side_effect,
        "idempotent": False,
        "timeout_s": 1.0,
    }
    return ToolSpec.model_validate(fields | changes)


@pytest.fixture
def specs() -> dict[str, ToolSpec]:
    """The built-in tools, and some that have what no built-in tool has."""
    found = {tool.spec.name: tool.spec for tool in build_tools(no_diff)}
    others = [
        make_spec("external", SideEffect.EXTERNAL_WRITE),
        make_spec("irreversible", SideEffect.IRREVERSIBLE),
        make_spec("operator_only", SideEffect.READ_ONLY, permission=Permission.OPERATOR),
        make_spec(
            "publish",
            SideEffect.EXTERNAL_WRITE,
            kind=ToolKind.WRITE,
            parameters={
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "additionalProperties": False,
            },
            roles={"path": ArgumentRole.PATH},
        ),
    ]
    return found | {spec.name: spec for spec in others}


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., PolicyEngine]:
    """An engine from policy texts, one layer each: l0, l1, ..."""

    def build(*texts: str) -> PolicyEngine:
        layers = []
        for number, text in enumerate(texts):
            path = tmp_path / f"l{number}.cedar"
            path.write_text(text)
            layers.append(PolicyLayer(f"l{number}", path))
        return PolicyEngine.load(layers)

    return build
