"""The composition root: the only place that builds everything. Doors ask for a run and get an outcome."""

from __future__ import annotations

from importlib.metadata import version

from corral.app.choice import build_timeouts, choose_model, choose_preset, parse_mode
from corral.app.door import OpenBox, execute, run_agent, use_box
from corral.app.prepare import MakeSandbox, Prepared, prepare
from corral.app.removal import remove_run
from corral.app.request import (
    AgentOutcome,
    AgentRequest,
    BoxRequest,
    ExecOutcome,
    ExecRequest,
    SandboxOutcome,
    SandboxRequest,
)
from corral.errors import CorralError

__all__ = [
    "AgentOutcome",
    "AgentRequest",
    "BoxRequest",
    "ExecOutcome",
    "ExecRequest",
    "MakeSandbox",
    "OpenBox",
    "Prepared",
    "SandboxOutcome",
    "SandboxRequest",
    "build_timeouts",
    "choose_model",
    "choose_preset",
    "describe_version",
    "execute",
    "explain",
    "parse_mode",
    "prepare",
    "remove_run",
    "run_agent",
    "use_box",
]


def describe_version() -> str:
    return version("corral")


def explain(error: CorralError) -> dict[str, str | None]:
    """An error as JSON."""
    return {"code": error.code, "message": error.message, "hint": error.hint}
