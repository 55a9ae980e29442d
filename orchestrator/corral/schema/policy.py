"""What policy is asked and what it answers; who may be asked for a yes. Values and protocols, no decisions.

Tools see policy only through `Decider` and `Approver`; app hands them the real ones. The question is made of plain
dataclasses: corral itself builds it, for every call, and nothing of it is read from outside or kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from corral.schema.tools import Frozen, Permission, SideEffect, ToolCall, ToolSpec


class Mode(StrEnum):
    PLAN = "plan"
    BUILD = "build"


class Preset(StrEnum):
    """SPEC P3: each is a file in policies/presets."""

    ON_REQUEST = "on-request"
    AUTO_EDIT = "auto-edit"
    AUTO = "auto"
    NEVER = "never"
    YOLO = "yolo"
    PLAN = "plan"


class Zone(StrEnum):
    """Where a path lies in the box."""

    WORKSPACE = "workspace"
    TMP = "tmp"
    OUTPUTS = "outputs"
    OUTSIDE = "outside"


class Action(StrEnum):
    """The actions of the policy schema: one per tool kind, and those of the edges."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    SHELL = "shell"
    SESSION = "session"
    CALL = "call"
    NETWORK = "network"


class Effect(StrEnum):
    """The ladder, from free to never."""

    ALLOW = "allow"
    ALLOW_AFTER_CHECKPOINT = "allow_after_checkpoint"
    ASK = "ask"
    DENY = "deny"


class Decision(Frozen):
    """One judgement. The same request under the same policy version always gives the same decision."""

    effect: Effect
    rules: tuple[str, ...] = ()  # ids of the rules that made it, `layer/id`; () when no rule allows it
    reason: str = ""
    hint: str = ""  # what to do instead
    policy_version: str
    paths: tuple[str, ...] = ()  # what was judged
    hosts: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # why a command may run more than `programs`


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySession:
    """On whose behalf a call is made."""

    id: str
    user: str = ""
    permission: Permission = Permission.USER
    preset: Preset = Preset.AUTO
    mode: Mode = Mode.BUILD


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTarget:
    """The call's own subject, where it names neither a path nor a host."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTarget:
    path: str  # absolute, lexically normalised; links are the box's to resolve
    zone: Zone
    root: bool = False  # the top of its zone


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTarget:
    name: str
    port: int
    private: bool  # loopback, private, link-local or metadata address


Target = ToolTarget | PathTarget | HostTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """What is known about a command line without running it."""

    parsed: bool = False  # false: it may run anything
    programs: tuple[str, ...] = ()  # as written, and without their directory
    safe: bool = False  # can only read
    dynamic: bool = False  # runs something that only a run would tell
    has_error: bool = False  # not understood as the shell would
    writes: tuple[str, ...] = ()  # files it says it writes or removes, and the directories above them
    more_writes: bool = False  # others, whose names only a run would tell
    hosts: tuple[str, ...] = ()
    more_hosts: bool = False
    scripts: tuple[str, ...] = ()  # files that a shell or interpreter runs
    code: tuple[str, ...] = ()  # programs that get code in a language of their own
    variables: tuple[str, ...] = ()  # assigned, and able to change what a program is or does
    unknown: tuple[str, ...] = ()  # why it is dynamic


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFacts:
    """What is known about a connection beside its host."""

    granted: bool = False  # host and port are on the run's list
    scheme: str = ""
    method: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """One question. With several targets the strictest answer holds."""

    session: PolicySession
    action: Action
    targets: tuple[Target, ...]
    tool: str
    side_effect: SideEffect
    permission: Permission = Permission.USER  # what the tool requires
    command: CommandFacts | None = None  # action shell only
    network: NetworkFacts | None = None  # action network only
    approved: bool = False
    checkpointed: bool = False


class Decider(Protocol):
    """Policy as tools see it."""

    def decide(self, spec: ToolSpec, call: ToolCall, *, approved: bool = False, checkpointed: bool = False) -> Decision:
        """Judge one validated call. Pure and deterministic; never raises for anything a model can send."""
        ...


class ApprovalRequest(Frozen):
    """What a person is asked. `digest` stands for exactly what will run; the answer must name it."""

    call: ToolCall
    side_effect: SideEffect
    decision: Decision
    digest: str


class ApprovalAnswer(Frozen):
    approved: bool
    digest: str
    reason: str = ""
    by: str = ""  # who answered

    def covers(self, request: ApprovalRequest) -> bool:
        """Whether this is a yes to that very request."""
        return self.approved and self.digest == request.digest


class Approver(Protocol):
    """Asks a person, or stands for one."""

    async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask. May wait; the caller sets the time limit, and no answer is a no."""
        ...
