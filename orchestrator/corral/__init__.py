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
        BoxInfo,
        BoxResources,
        CallResources,
        CommandResult,
        Event,
        FileChanged,
        FileContent,
        Job,
        JobOutput,
        Limits,
        ListEntry,
        Listing,
        OwnResources,
        Patch,
        PatchResult,
        Pool,
        RunResources,
        Sandbox,
        SearchResult,
    )
    from corral.app.network import BoxNetwork
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
_NETWORK = "corral.app.network"
_HOMES = {
    "Agent": _API,
    "AgentResult": _API,
    "ApprovalAnswer": _API,
    "ApprovalRequest": _API,
    "Approver": _API,
    "BoxInfo": _API,
    "BoxLost": _ERRORS,
    "BoxNetwork": _NETWORK,
    "BoxResources": _API,
    "CallResources": _API,
    "CommandResult": _API,
    "ConfigError": _ERRORS,
    "CorralError": _ERRORS,
    "Event": _API,
    "FileChanged": _API,
    "FileContent": _API,
    "Job": _API,
    "JobOutput": _API,
    "Limits": _API,
    "ListEntry": _API,
    "Listing": _API,
    "ModelError": _ERRORS,
    "OwnResources": _API,
    "Patch": _API,
    "PatchError": _ERRORS,
    "PatchResult": _API,
    "Pool": _API,
    "RecordError": _ERRORS,
    "RunResources": _API,
    "Sandbox": _API,
    "SandboxError": _ERRORS,
    "SearchResult": _API,
    "ToolError": _ERRORS,
}

__all__ = [
    "Agent",
    "AgentResult",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "BoxInfo",
    "BoxLost",
    "BoxNetwork",
    "BoxResources",
    "CallResources",
    "CommandResult",
    "ConfigError",
    "CorralError",
    "Event",
    "FileChanged",
    "FileContent",
    "Job",
    "JobOutput",
    "Limits",
    "ListEntry",
    "Listing",
    "ModelError",
    "OwnResources",
    "Patch",
    "PatchError",
    "PatchResult",
    "Pool",
    "RecordError",
    "RunResources",
    "Sandbox",
    "SandboxError",
    "SearchResult",
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
