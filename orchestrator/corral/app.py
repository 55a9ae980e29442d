"""The composition root: the only place that builds everything. Doors ask for a run and get an outcome.

Heavy rooms are imported where they are first needed: `corral exec` never loads a model client.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from corral.agent.budget import Limits as AgentLimits
from corral.agent.command import Command, find_cause
from corral.agent.run import Outcome, Run, RunRecord, describe_start
from corral.agent.watch import Watch, WatchedRecord
from corral.config import Settings, load_settings
from corral.errors import ConfigError, CorralError, RemovalBlocked
from corral.record import RECORD_NAME, RecordLog, read_events
from corral.sandbox.base import BoxInfo, Sandbox, Sink
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import Limits as BoxLimits
from corral.sandbox.spec import SandboxSpec, WorkspaceMode
from corral.schema.events import Event
from corral.schema.patch import Patch
from corral.schema.policy import Approver, Mode, PolicySession, Preset
from corral.schema.visible import visible
from corral.store.run_dir import RunDir, RunMeta, find_run
from corral.tools.base import ToolTimeouts
from corral_protocol.message import ExecResult

if TYPE_CHECKING:
    from corral.llm import ModelClient
    from corral.patch.export import Exporter


REPLAY = "replay:"


@dataclass(frozen=True)
class BoxRequest:
    """What every door can say about the box. None means the setting's value."""

    workspace: Path = Path()
    image: str | None = None
    mode: str | None = None
    include_ignored: bool = False
    force: bool = False
    box_limits: BoxLimits | None = None


@dataclass(frozen=True)
class ExecRequest(BoxRequest):
    """`corral exec`, parsed."""

    argv: list[bytes] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None


@dataclass(frozen=True)
class ExecOutcome:
    """A command that has been run, for people and machines."""

    run_id: str
    run_dir: Path
    outcome: Outcome
    result: ExecResult | None
    patch_file: Path | None  # None when nothing changed

    @property
    def exit_code(self) -> int:
        """SPEC: the command's own; 125 when corral or the engine failed, 130 when cancelled."""
        error = self.outcome.error
        if error is not None:
            return 2 if isinstance(error, ConfigError) else 125
        return self.outcome.exit_code

    @property
    def cause(self) -> str:
        return find_cause(self.result) if self.result else ""


@dataclass
class Prepared:
    """Everything one run needs, open. Close by leaving `prepare`."""

    settings: Settings
    run_dir: RunDir
    record: RunRecord
    sandbox: Sandbox
    spec: SandboxSpec
    command: str
    started_at: str
    box: BoxInfo | None = None
    outcome: str = ""  # once it is over

    def write_meta(self) -> None:
        """Say in the run's directory what it is: at its start, when the box is there, at its end."""
        meta = RunMeta(
            run_id=self.run_dir.run_id,
            workspace=os.fsencode(self.spec.workspace),
            started_at=self.started_at,
            command=self.command,
        )
        if (box := self.box) is not None:
            meta = replace(
                meta,
                mode=box.mode.value,
                mode_reason=box.mode_reason,
                image=box.image,
                image_id=box.image_id,
                masked=tuple((one.path, one.reason) for one in box.masked),
            )
        if self.outcome:
            meta = replace(meta, ended_at=_now(), outcome=self.outcome)
        self.run_dir.write_meta(meta)

    def end(self, outcome: str) -> None:
        """The last word about the run. Without one, `prepare` says that it broke off."""
        self.outcome = outcome
        self.write_meta()

    def kept_patch(self, patch: Patch | None) -> Path | None:
        """Where the patch is, if there is anything in it."""
        return self.run_dir.patch if patch is not None and patch.files else None

    @property
    def watch_error(self) -> Exception | None:
        return self.record.watch_error if isinstance(self.record, WatchedRecord) else None


MakeSandbox = Callable[[SandboxSpec], Sandbox]


@contextmanager
def prepare(
    request: BoxRequest, *, command: str, watch: Watch | None = None, make_sandbox: MakeSandbox = DockerSandbox
) -> Iterator[Prepared]:
    """Settings, run directory, record and box of one run; nothing is started yet. Raises ConfigError, RecordError."""
    settings = load_settings()
    workspace = Path(os.path.abspath(request.workspace))
    with RunDir.create(settings.runs_dir()) as run_dir:
        spec = build_spec(settings, request, workspace, run_dir)
        log = RecordLog.open(run_dir.record)
        record: RunRecord = WatchedRecord(log, watch) if watch else log
        parts = Prepared(settings, run_dir, record, make_sandbox(spec), spec, command, _now())
        parts.write_meta()
        try:
            yield parts
        finally:
            try:
                if not parts.outcome:
                    parts.end("error")
            finally:
                log.close()


def build_spec(settings: Settings, request: BoxRequest, workspace: Path, run_dir: RunDir) -> SandboxSpec:
    """The box that settings and request ask for. Raises ConfigError."""
    return SandboxSpec(
        workspace=workspace,
        run_dir=run_dir.path,
        run_id=run_dir.run_id,
        image=request.image or settings.image or "corral-sandbox",
        mode=parse_mode(request.mode) if request.mode else settings.mode,
        runtime=settings.runtime,
        limits=request.box_limits or settings.limits.to_limits(),
        mask=settings.mask,
        force=request.force,
    )


def parse_mode(text: str) -> WorkspaceMode:
    """Raises ConfigError for a mode that does not exist."""
    try:
        return WorkspaceMode(text)
    except ValueError:
        known = ", ".join(mode.value for mode in WorkspaceMode)
        raise ConfigError(f"there is no workspace mode {text!r}", hint=f"one of: {known}") from None


async def execute(
    request: ExecRequest,
    *,
    stdin: AsyncIterator[bytes] | None = None,
    stdout: Sink | None = None,
    stderr: Sink | None = None,
    on_box: Callable[[BoxInfo], None] | None = None,
    make_sandbox: MakeSandbox = DockerSandbox,
) -> ExecOutcome:
    """Run one command in a fresh box. Failures of box and engine are in the outcome. Raises RecordError, ConfigError
    for what cannot be used."""
    shown = visible(shlex.join(part.decode("utf-8", "surrogateescape") for part in request.argv), limit=500)
    with prepare(request, command=shown, make_sandbox=make_sandbox) as parts:
        command = Command(
            argv=request.argv,
            record=parts.record,
            env=request.env,
            timeout_s=request.timeout_s,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        run = build_run(parts, request, door="exec", goal=shown, on_box=on_box)
        outcome = await run.execute(command)
        parts.end(outcome.ending.summary or outcome.ending.reason.value)
        return ExecOutcome(
            parts.run_dir.run_id, parts.run_dir.path, outcome, command.result, parts.kept_patch(outcome.patch)
        )


@dataclass(frozen=True)
class AgentRequest(BoxRequest):
    """`corral run`, parsed."""

    task: str = ""
    until: str | None = None
    model: str | None = None
    preset: str | None = None
    plan: bool = False
    limits: AgentLimits = field(default_factory=AgentLimits)


@dataclass(frozen=True)
class AgentOutcome:
    """An agent's run that is over."""

    run_id: str
    run_dir: Path
    outcome: Outcome
    patch_file: Path | None
    model: str
    diverged: int = 0  # replay: requests that were not what the recorded model saw
    watch_error: Exception | None = None  # why the watcher was not called any more

    @property
    def exit_code(self) -> int:
        error = self.outcome.error
        return error.exit_code if error is not None else self.outcome.exit_code


async def run_agent(
    request: AgentRequest,
    *,
    client: ModelClient | None = None,
    approver: Approver | None = None,
    watch: Watch | None = None,
    on_box: Callable[[BoxInfo], None] | None = None,
    make_sandbox: MakeSandbox = DockerSandbox,
) -> AgentOutcome:
    """Let a model do a task in a fresh box. Failures of model, box and engine are in the outcome.

    Raises ConfigError for what cannot be used, RecordError.
    """
    from corral.agent.session import AgentSession  # late: start-up time
    from corral.llm import ReplayModel
    from corral.policy import PolicyEngine, SessionPolicy
    from corral.tools.outputs import OutputStore

    settings = load_settings()
    if not request.task.strip():
        raise ConfigError("the task is empty", hint='say what is to be done: corral run "make the tests pass"')
    preset, mode = choose_preset(request.preset or settings.preset, plan=request.plan)
    engine = PolicyEngine.load_preset(preset)
    model = client or choose_model(settings, request.model)
    command = visible(request.task, limit=500)
    with prepare(request, command=command, watch=watch, make_sandbox=make_sandbox) as parts:
        run_id = parts.run_dir.run_id
        policy = SessionPolicy(
            engine, PolicySession(id=run_id, preset=preset, mode=mode), mount_point=parts.spec.mount_point
        )
        session = AgentSession(
            task=request.task,
            client=model,
            decider=policy,
            record=parts.record,
            outputs=OutputStore(parts.run_dir.outputs),
            current_diff=build_exporter(parts, request).preview,
            mount_point=parts.spec.mount_point,
            limits=request.limits,
            mode=mode,
            until=request.until,
            approver=approver,
            timeouts=build_timeouts(settings),
        )
        run = build_run(
            parts,
            request,
            door="run",
            goal=request.task,
            on_box=on_box,
            model=model.name,
            mode=mode.value,
            preset=preset.value,
            policy=engine.version,
        )
        try:
            outcome = await run.execute(session, spent=session.spent)
        finally:
            await model.close()
        parts.end(outcome.ending.reason.value)
        return AgentOutcome(
            run_id,
            parts.run_dir.path,
            outcome,
            parts.kept_patch(outcome.patch),
            model.name,
            diverged=model.diverged if isinstance(model, ReplayModel) else 0,
            watch_error=parts.watch_error,
        )


def choose_model(settings: Settings, name: str | None) -> ModelClient:
    """The model of that name, or of the settings; `replay:RUN` answers as in that run. Raises ConfigError."""
    from corral.llm import ReplayModel, open_model  # late: start-up time

    name = name or settings.model.name
    if name is not None and name.startswith(REPLAY):
        run_dir = find_run(name.removeprefix(REPLAY), settings.runs_dir())
        return ReplayModel.from_events(one for one in read_events(run_dir / RECORD_NAME) if isinstance(one, Event))
    return open_model(
        name, environ=os.environ, base_url=settings.model.base_url, api_key_env=settings.model.api_key_env
    )


def choose_preset(name: str, *, plan: bool) -> tuple[Preset, Mode]:
    """The preset of that name, and the mode that goes with it. Raises ConfigError."""
    if plan or name == Preset.PLAN:
        return Preset.PLAN, Mode.PLAN
    try:
        return Preset(name), Mode.BUILD
    except ValueError:
        known = ", ".join(preset.value for preset in Preset)
        raise ConfigError(f"there is no preset {name!r}", hint=f"one of: {known}") from None


def build_timeouts(settings: Settings) -> ToolTimeouts:
    """The user's time limits, as the tools take them."""
    limits = settings.timeouts
    return ToolTimeouts(file_s=limits.file_s, shell_s=limits.shell_s, other_s=limits.other_s)


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


def build_run(
    parts: Prepared,
    request: BoxRequest,
    *,
    door: str,
    goal: str,
    on_box: Callable[[BoxInfo], None] | None,
    **more: object,
) -> Run:
    """The run of these parts: what is recorded at its start, and how its changes are exported."""

    def note_box(box: BoxInfo) -> None:
        parts.box = box
        parts.write_meta()
        if on_box is not None:
            on_box(box)

    workspace = visible(os.fsencode(parts.spec.workspace))
    started = describe_start(run_id=parts.run_dir.run_id, door=door, goal=goal, workspace=workspace, **more)
    return Run(parts.record, parts.sandbox, build_exporter(parts, request).export, started, note_box)


def build_exporter(parts: Prepared, request: BoxRequest) -> Exporter:
    """How the changes of these parts become a patch."""
    from corral.patch.export import Exporter  # late: start-up time

    return Exporter(parts.spec.workspace, parts.run_dir.patch, include_ignored=request.include_ignored)


def describe_version() -> str:
    return version("corral")


def explain(error: CorralError) -> dict[str, str | None]:
    """An error as JSON."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
