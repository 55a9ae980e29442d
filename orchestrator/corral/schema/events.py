"""The events of a run's record: one payload model per kind of SPEC, and the envelope that puts them in a chain.

Text that comes from a model, a box or a repository stands only in typed, bounded payload fields (schema/text), never in
the envelope. The first line under a field is its entry in docs/reference/events.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny

from corral.schema.resources import CallResources, RunResources
from corral.schema.text import Arguments, Block, Body, Digest, Facts, Line, Lines, Name, capped

EVENT_VERSION = 1


class EventKind(StrEnum):
    RUN_STARTED = "run.started"
    RUN_FINISHED = "run.finished"
    PLAN_CREATED = "plan.created"
    MODEL_CALLED = "model.called"
    MODEL_ANSWERED = "model.answered"
    CALL_PARSED = "call.parsed"
    CALL_DECIDED = "call.decided"
    APPROVAL_ASKED = "approval.asked"
    APPROVAL_ANSWERED = "approval.answered"
    TOOL_STARTED = "tool.started"
    TOOL_FINISHED = "tool.finished"
    PROCESS_STARTED = "process.started"
    PROCESS_ENDED = "process.ended"
    CONNECTION_ATTEMPTED = "connection.attempted"
    CONNECTION_ENDED = "connection.ended"
    NETWORK_CHANGED = "network.changed"
    CHECKPOINT_MADE = "checkpoint.made"
    CONTEXT_COMPACTED = "context.compacted"
    PATCH_MADE = "patch.made"
    PATCH_REVIEWED = "patch.reviewed"
    PATCH_APPLIED = "patch.applied"
    GUARD_TRIPPED = "guard.tripped"
    ERROR_RAISED = "error.raised"
    LOG_RECOVERED = "log.recovered"


class Source(StrEnum):
    """Whose word an event is. `box`: a claim of code nobody trusts, bounded and validated but perhaps a lie."""

    ORCHESTRATOR = "orchestrator"
    BOX = "box"


class _Part(BaseModel):
    # Built on first use: most commands touch few kinds, and start-up time is counted.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Payload(_Part):
    """What one kind of event tells."""

    kind: ClassVar[EventKind]
    source: ClassVar[Source] = Source.ORCHESTRATOR


class Actor(_Part):
    """Who asked for it."""

    type: Literal["os_user", "api_token", "ci_job"]
    name: Name
    id: Name = ""
    """The uid, the token's id, the job's address."""


class Box(_Part):
    """The box of a run, as it was started."""

    id: Name
    image: Name = ""
    image_id: Name = ""
    runtime: Name = ""
    mode: Name = ""
    """How the workspace got in: overlay, copy, image."""
    mode_reason: Line = ""
    network: Name = "none"
    masked: Lines = ()
    """Secret files of the workspace that the box sees only as a placeholder."""
    warnings: Lines = ()
    capabilities: Lines = ()
    """What the box could do on its kernel: `process_record`, `landlock`, `host_kernel`, ..."""


class Tokens(_Part):
    input: int = 0
    output: int = 0
    cached: int = 0
    reported: bool = True
    """False when the provider said nothing and the numbers are estimates."""


class SeenMessage(_Part):
    """One message of a request."""

    role: Name
    text: Body = ""
    """Empty when an earlier event of this record holds it (`call_id`) or an earlier request had it."""
    call_id: Name = ""
    sha256: Digest = ""


class ProposedCall(_Part):
    """A call as the model wrote it."""

    id: Name
    name: Name
    arguments: Arguments = Field(default_factory=dict)
    problem: Line | None = None
    """Why the arguments could not be parsed; such a call is answered, never run."""
    repaired: bool = False


class ErrorFacts(_Part):
    kind: Name
    """parameter, environment, permission, unknown"""
    code: Name
    message: Line
    location: Line = ""
    suggestion: Line = ""


class ChangedFile(_Part):
    path: Line
    change: Name
    """added, modified, deleted, renamed, mode"""
    added: int = 0
    removed: int = 0


Files = Annotated[tuple[ChangedFile, ...], BeforeValidator(capped(5000))]


class RunStarted(Payload):
    """A run began. First event of every record."""

    kind: ClassVar[EventKind] = EventKind.RUN_STARTED
    run_id: Name
    door: Name
    """run, exec, sandbox, demo: how it was asked for."""
    goal: Body
    """The task in the user's words, or the command line."""
    actor: Actor
    host: Name
    version: Name
    """Of corral."""
    platform: Line = ""
    workspace: Line = ""
    base: Digest = ""
    """Digest of the workspace's state at the start, where one was taken."""
    layer: Line = ""
    """The set-up layer that the box starts from, and the run that made it."""
    model: Name = ""
    mode: Name = ""
    """plan or build."""
    preset: Name = ""
    policy: Digest = ""
    """Digest of the policy files in force."""
    limits: Facts = Field(default_factory=dict)
    settings: Facts = Field(default_factory=dict)
    box: Box | None = None


class RunFinished(Payload):
    """A run ended. A record without it was cut off: killed, or its tail was removed."""

    kind: ClassVar[EventKind] = EventKind.RUN_FINISHED
    stop_reason: Name
    exit_code: int
    summary: Block = ""
    complete: bool = True
    """False when the patch is not what the agent meant to hand over."""
    steps: int = 0
    tokens: Tokens = Field(default_factory=Tokens)
    cost_usd: float | None = None
    duration_s: float = 0.0
    changed_files: int = 0
    patch: Digest = ""
    dropped_events: int = 0
    """Claims of the box over the cap: counted, not kept."""
    box: Box | None = None
    limits_touched: Lines = ()
    """Limits of the box that the run ran into, in words."""
    resources: RunResources | None = None
    """What it used; the part `box` is the box's word."""


class PlanCreated(Payload):
    """The agent stated its plan."""

    kind: ClassVar[EventKind] = EventKind.PLAN_CREATED
    step: int
    text: Block = ""
    steps: Lines = ()


class ModelCalled(Payload):
    """A request went to a model; `request_sha256` is the digest of all that it saw."""

    kind: ClassVar[EventKind] = EventKind.MODEL_CALLED
    step: int
    request_id: Name
    model: Name
    endpoint: Name = ""
    """Host and port; never a key."""
    purpose: Name = "step"
    request_sha256: Digest
    shape_sha256: Digest = ""
    """The same without times, sizes and temporary names: what a replay holds its own requests against."""
    messages: int
    """How many messages the request had."""
    tools: Lines = ()
    added: Annotated[tuple[SeenMessage, ...], BeforeValidator(capped(1000))] = ()
    """Messages that were in no earlier request."""
    status: Line = ""
    """Step and budgets as told to the model, at the end of the last message of this request only."""
    max_output_tokens: int | None = None
    temperature: float | None = None
    estimated_tokens: int | None = None


class ModelAnswered(Payload):
    """A model answered: its text, its reasoning where given, what it proposed, what it cost."""

    kind: ClassVar[EventKind] = EventKind.MODEL_ANSWERED
    step: int
    request_id: Name
    model: Name
    """As the endpoint names it."""
    text: Body = ""
    reasoning: Body = ""
    calls: Annotated[tuple[ProposedCall, ...], BeforeValidator(capped(256))] = ()
    finish: Name = "unknown"
    tokens: Tokens = Field(default_factory=Tokens)
    cost_usd: float | None = None
    """None when the price is not known."""
    latency_s: float = 0.0


class CallParsed(Payload):
    """A proposed call was read: which tool it means and whether its arguments hold."""

    kind: ClassVar[EventKind] = EventKind.CALL_PARSED
    step: int
    call_id: Name
    name: Name
    """As the model wrote it."""
    tool: Name = ""
    """The tool meant; empty when there is none of that name."""
    format: Name = "native"
    arguments_sha256: Digest = ""
    repaired: bool = False
    problem: Line | None = None


class CallDecided(Payload):
    """Policy judged a call."""

    kind: ClassVar[EventKind] = EventKind.CALL_DECIDED
    step: int
    call_id: Name
    tool: Name
    effect: Literal["allow", "ask", "deny"]
    rules: Lines = ()
    """The rules that made the decision."""
    reason: Line = ""
    hint: Line = ""
    """What the model was told to do instead."""
    duties: Lines = ()
    observed: bool = False
    """Judged and recorded, not enforced."""
    side_effect: Name = ""
    arguments_sha256: Digest = ""
    programs: Lines = ()
    """Programs a command line would really run."""
    unknown: Lines = ()
    """Why it may run others, too, that only a run would tell."""
    paths: Lines = ()
    hosts: Lines = ()
    policy: Digest = ""


class ApprovalAsked(Payload):
    """A person was asked."""

    kind: ClassVar[EventKind] = EventKind.APPROVAL_ASKED
    call_id: Name
    tool: Name
    digest: Digest
    """Of exactly what will run after a yes."""
    reason: Line = ""
    preview: Block = ""
    channel: Name = ""
    wait_s: float | None = None


class ApprovalAnswered(Payload):
    """A person answered, or nobody did: no approver and no answer in time mean no."""

    kind: ClassVar[EventKind] = EventKind.APPROVAL_ANSWERED
    call_id: Name
    digest: Digest
    approved: bool
    scope: Literal["once", "session", "always"] = "once"
    actor: Actor | None = None
    """None when nobody was there."""
    reason: Line = ""
    waited_s: float = 0.0


class ToolStarted(Payload):
    """A tool begins to run. On disk before the effect: a start without a finish is `unknown_state`."""

    kind: ClassVar[EventKind] = EventKind.TOOL_STARTED
    step: int = 0
    call_id: Name
    tool: Name
    arguments: Facts = Field(default_factory=dict)
    """Long values are cut; `arguments_sha256` is of the whole."""
    arguments_sha256: Digest = ""
    side_effect: Name = ""
    cwd: Line = ""
    timeout_s: float | None = None
    attempt: int = 1


class ToolFinished(Payload):
    """A tool ended, was refused, or was not run: what the model is told, what it touched, what it used."""

    kind: ClassVar[EventKind] = EventKind.TOOL_FINISHED
    source: ClassVar[Source] = Source.BOX
    step: int = 0
    call_id: Name
    tool: Name
    status: Name
    """A tool status of SPEC."""
    success: bool
    summary: Line = ""
    output: Block = ""
    """As shown to the model."""
    output_sha256: Digest = ""
    output_bytes: int = 0
    output_at: Line = ""
    """Where the whole output is kept, such as /outputs/<call>."""
    error: ErrorFacts | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: Name = ""
    """A failure cause of SPEC: oom, disk_full, ..."""
    cwd: Line = ""
    touched: Lines = ()
    """Files the call says it changed."""
    duration_s: float = 0.0
    resources: CallResources | None = None
    """What a command used."""
    facts: Facts = Field(default_factory=dict)


class ProcessStarted(Payload):
    """A program was started inside the box."""

    kind: ClassVar[EventKind] = EventKind.PROCESS_STARTED
    source: ClassVar[Source] = Source.BOX
    call_id: Name = ""
    pid: int
    parent_pid: int = 0
    program: Line
    argv: Lines = ()
    cwd: Line = ""
    uid: int = 0
    mark: Name = ""
    """`memory` (a program that is in no file), `deleted` and `unreadable` are suspicious; `not_found`: there was none
    when it was looked for."""
    cut: bool = False


class EndedProcess(_Part):
    """How one process of the box ended; neither code nor signal: it ended, how is not known."""

    pid: int
    exit_code: int | None = None
    signal: int | None = None
    lived_s: float = 0.0
    """Since its first program began, as far as was seen."""


class ProcessEnded(Payload):
    """Processes inside the box have ended, several in one event. Of a call's own process `tool.finished` tells."""

    kind: ClassVar[EventKind] = EventKind.PROCESS_ENDED
    source: ClassVar[Source] = Source.BOX
    call_id: Name = ""
    processes: Annotated[tuple[EndedProcess, ...], BeforeValidator(capped(1000))] = ()


class ConnectionAttempted(Payload):
    """Something inside the box tried to reach a host. In the orchestrator's word: it came by the tunnel, was judged,
    and if allowed is about to be made."""

    kind: ClassVar[EventKind] = EventKind.CONNECTION_ATTEMPTED
    source: ClassVar[Source] = Source.BOX
    call_id: Name = ""
    pid: int = 0
    protocol: Name = "tcp"
    host: Line
    port: int = 0
    allowed: bool = False
    reason: Line = ""
    operation: Name = "connect"
    """connect, bind, send, socket (one that can send without being seen again)"""
    outcome: Literal["attempted", "refused"] = "refused"
    """`attempted`: left to the kernel, whatever came of it."""
    connection: Name = ""
    """Of the tunnel: its number in this run, as `connection.ended` names it."""
    scheme: Name = ""
    """How it was asked for: tunnel (CONNECT), http, https (TLS by the orchestrator), socks, forward (from the host)."""
    method: Name = ""
    """Of a request that could be seen."""
    phase: Name = ""
    """setup or agent, where a run has phases."""
    rules: Lines = ()
    secrets: Lines = ()
    """Names of the secrets that were put into it."""


class ConnectionEnded(Payload):
    """A connection of the tunnel is over, or could not be made."""

    kind: ClassVar[EventKind] = EventKind.CONNECTION_ENDED
    connection: Name
    address: Name = ""
    """That it went to; the one that was checked."""
    bytes_in: int = 0
    """Into the box."""
    bytes_out: int = 0
    duration_s: float = 0.0
    outcome: Name
    """closed, reset, idle, revoked (the rules changed), over (the run ended); never connected: refused (by its
    address), failed."""
    reason: Line = ""


class NetworkChanged(Payload):
    """From here on this is what the box may reach."""

    kind: ClassVar[EventKind] = EventKind.NETWORK_CHANGED
    phase: Name = ""
    profiles: Lines = ()
    hosts: Lines = ()
    """host:ports, as listed; empty: none."""
    secrets: Lines = ()
    """Names of the secrets that may be used."""
    forwards: Lines = ()
    """Ports of the box, and where they are on this machine: `8000 at 127.0.0.1:41234`."""
    cut: int = 0
    """Connections that were open and are allowed no more."""


class CheckpointMade(Payload):
    """Workspace and conversation were kept together."""

    kind: ClassVar[EventKind] = EventKind.CHECKPOINT_MADE
    checkpoint_id: Name
    name: Line = ""
    reason: Line = ""
    step: int = 0
    sha256: Digest = ""
    size: int = 0


class ContextCompacted(Payload):
    """Older turns were summarised or dropped to fit the model's window."""

    kind: ClassVar[EventKind] = EventKind.CONTEXT_COMPACTED
    step: int
    level: Name
    """warn, compact, force"""
    tokens_before: int
    tokens_after: int
    dropped_messages: int = 0
    summary: Block = ""
    cost_usd: float | None = None


class PatchMade(Payload):
    """The changes of the box were exported."""

    kind: ClassVar[EventKind] = EventKind.PATCH_MADE
    sha256: Digest
    path: Line = ""
    size: int = 0
    files: Files = ()
    file_count: int = 0
    not_exported: Lines = ()
    """What else changed, each with its reason."""
    complete: bool = True
    conflicts: Lines = ()


class PatchReviewed(Payload):
    """A file of a patch, or all of it, was accepted or refused."""

    kind: ClassVar[EventKind] = EventKind.PATCH_REVIEWED
    sha256: Digest
    path: Line = ""
    """Empty for the whole patch."""
    accepted: bool
    findings: Lines = ()
    reason: Line = ""
    actor: Actor | None = None
    """None when policy alone decided."""


class PatchApplied(Payload):
    """A patch was put on a workspace."""

    kind: ClassVar[EventKind] = EventKind.PATCH_APPLIED
    sha256: Digest
    workspace: Line
    method: Name = "direct"
    files: int = 0
    actor: Actor | None = None


class GuardTripped(Payload):
    """A limit or a guard of the loop acted: repetition, breaker, rate, budget, a cap."""

    kind: ClassVar[EventKind] = EventKind.GUARD_TRIPPED
    guard: Name
    action: Name
    reason: Line = ""
    call_id: Name = ""
    step: int = 0
    count: int = 0


class ErrorRaised(Payload):
    """Something failed outside a tool's own result: engine, model, patch, corral itself."""

    kind: ClassVar[EventKind] = EventKind.ERROR_RAISED
    error: ErrorFacts
    call_id: Name = ""
    step: int = 0
    fatal: bool = False


class LogRecovered(Payload):
    """The end of this record was torn (power loss, full disk) and was moved aside before writing went on."""

    kind: ClassVar[EventKind] = EventKind.LOG_RECOVERED
    kept_events: int
    torn_bytes: int
    torn_sha256: Digest
    torn_file: Name = ""
    """Beside the record; empty when only the last newline was missing."""


PAYLOADS: dict[EventKind, type[Payload]] = {payload.kind: payload for payload in Payload.__subclasses__()}


class Event(_Part):
    """One line of the record."""

    version: int = EVENT_VERSION
    seq: int
    """1, 2, 3, … without a gap."""
    at: str
    """UTC, ISO 8601 with nanoseconds."""
    prev: str
    """Hash of the line before; 64 zeros in the first."""
    kind: EventKind
    source: Source
    payload: SerializeAsAny[Payload]
    """One of the payload models, by `kind`."""
    hash: str
