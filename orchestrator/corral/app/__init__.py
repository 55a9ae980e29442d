"""The composition root: the only place that builds everything. Doors ask for a run and get an outcome."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from corral.app.choice import build_timeouts, choose_model, choose_preset, parse_mode
from corral.app.door import OpenBox, execute, run_agent, use_box
from corral.app.prepare import MakeSandbox, Prepared, prepare
from corral.app.request import (
    AgentOutcome,
    AgentRequest,
    BoxRequest,
    ExecOutcome,
    ExecRequest,
    SandboxOutcome,
    SandboxRequest,
)
from corral.errors import CorralError, RemovalBlocked
from corral.store.run_dir import RunDir

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


async def remove_run(run_id: str, root: Path) -> None:
    """Remove a run's directory, whatever the engine left in it. Raises ConfigError, SandboxError."""
    from corral.sandbox.engine import Engine  # late: start-up time
    from corral.sandbox.removal import remove_as_root

    with RunDir.open(run_id, root) as run_dir:
        try:
            run_dir.remove()
        except RemovalBlocked as blocked:
            await remove_as_root(Engine(), blocked.path)
            run_dir.remove()


def describe_version() -> str:
    return version("corral")


def explain(error: CorralError) -> dict[str, str | None]:
    """An error as JSON."""
    return {"code": error.code, "message": error.message, "hint": error.hint}
