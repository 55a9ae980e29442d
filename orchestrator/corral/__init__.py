"""Run an LLM agent, or any command, on a repository nobody trusts yet.

    async with corral.Sandbox("path/to/repo") as box:
        result = await box.shell("make test")

    result = await corral.Agent("make the tests pass", "path/to/repo", until="make test").run()

The names below are the public API, loaded when they are first used. Errors all are corral.CorralError.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.api import (
        Agent,
        AgentResult,
        ApprovalAnswer,
        ApprovalRequest,
        Approver,
        CommandResult,
        Event,
        Limits,
        Patch,
        Pool,
        Sandbox,
    )
    from corral.errors import (
        BoxLost,
        ConfigError,
        CorralError,
        ModelError,
        PatchError,
        RecordError,
        SandboxError,
        ToolError,
    )

_API = "corral.api"
_ERRORS = "corral.errors"
_HOMES = {
    "Agent": _API,
    "AgentResult": _API,
    "ApprovalAnswer": _API,
    "ApprovalRequest": _API,
    "Approver": _API,
    "BoxLost": _ERRORS,
    "CommandResult": _API,
    "ConfigError": _ERRORS,
    "CorralError": _ERRORS,
    "Event": _API,
    "Limits": _API,
    "ModelError": _ERRORS,
    "Patch": _API,
    "PatchError": _ERRORS,
    "Pool": _API,
    "RecordError": _ERRORS,
    "Sandbox": _API,
    "SandboxError": _ERRORS,
    "ToolError": _ERRORS,
}

__all__ = [
    "Agent",
    "AgentResult",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "BoxLost",
    "CommandResult",
    "ConfigError",
    "CorralError",
    "Event",
    "Limits",
    "ModelError",
    "Patch",
    "PatchError",
    "Pool",
    "RecordError",
    "Sandbox",
    "SandboxError",
    "ToolError",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'corral' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
