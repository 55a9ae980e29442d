"""ToolSpec, ToolCall, ToolResult: what model, policy, executor and record share about a tool."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from corral.schema.resources import CallResources


class Frozen(BaseModel):
    """Base of everything that crosses a room or reaches a disk."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SideEffect(StrEnum):
    READ_ONLY = "read_only"
    WORKSPACE_WRITE = "workspace_write"
    EXTERNAL_WRITE = "external_write"
    IRREVERSIBLE = "irreversible"


class Permission(StrEnum):
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


class ToolStatus(StrEnum):
    """SPEC, names that do not vary."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"
    TRUNCATED = "truncated"
    NOT_EXECUTED = "not_executed"
    UNKNOWN_STATE = "unknown_state"


class ToolKind(StrEnum):
    """What a tool does, as policy sees it: each kind is one action of policies/corral.cedarschema."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    SHELL = "shell"
    SESSION = "session"  # touches neither files nor commands: finish, diff
    CALL = "call"  # anything else: own tools, MCP


class ArgumentRole(StrEnum):
    """What an argument means to policy, where it means something."""

    PATH = "path"
    PATCH = "patch"
    COMMAND = "command"


class ToolSpec(Frozen):
    """One tool, once: the model's schema, validation, policy input and docs all come from here."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    aliases: tuple[str, ...] = ()
    description: str  # what it does, when to use it, when not to, what it returns
    parameters: dict[str, Any]  # JSON Schema of an object, additionalProperties false
    scope: str  # "workspace", "box", "session", "host"
    side_effect: SideEffect
    idempotent: bool
    timeout_s: float
    permission: Permission = Permission.USER
    kind: ToolKind = ToolKind.CALL
    roles: dict[str, ArgumentRole] = Field(default_factory=dict)  # argument name -> what policy reads it as


class ToolCall(Frozen):
    """One call a model proposed. `arguments` are what it sent, parsed but not yet validated."""

    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    problem: str | None = None  # set when the arguments could not be parsed: the call is answered, never run
    repaired: bool = False


class ErrorInfo(Frozen):
    kind: str  # parameter, environment, permission, unknown
    code: str
    message: str
    location: str = ""
    suggestion: str = ""


class Truncation(Frozen):
    shown_bytes: int
    total_bytes: int
    full_at: str = ""  # e.g. /outputs/<call>


class Artifact(Frozen):
    path: str
    size: int
    sha256: str = ""


class ToolResult(Frozen):
    """The answer to one call: the same shape for success and failure."""

    success: bool
    status: ToolStatus
    output: str = ""
    error: ErrorInfo | None = None
    summary: str = ""  # one line for people
    artifacts: tuple[Artifact, ...] = ()
    next_actions: tuple[str, ...] = ()
    recovery_hint: str = ""
    truncation: Truncation | None = None
    duration_s: float = 0.0
    resources: CallResources | None = None  # of a command: the box's word
    data: dict[str, Any] = Field(default_factory=dict)  # facts for the record: exit_code, signal, cwd, path, ...
