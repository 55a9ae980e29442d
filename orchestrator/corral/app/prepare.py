"""Everything one run needs, built in one place: settings, run directory, record, box, export."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from corral.agent.account import Account, Traffic, no_traffic
from corral.agent.processes import ProcessTrail
from corral.agent.run import Run, describe_start
from corral.agent.watch import Watch, WatchedRecord
from corral.app.choice import parse_mode
from corral.app.layer import check_layers, lay
from corral.app.place import hold_place
from corral.app.redaction import build_redactor
from corral.app.removal import remove_work
from corral.app.request import AgentRequest, BoxRequest
from corral.config import Settings, load_settings
from corral.errors import CorralError, RecordError
from corral.record import Activity, RecordLog
from corral.redact import Redactor
from corral.sandbox.base import BoxInfo, Sandbox
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import SANDBOX_IMAGE, SandboxSpec
from corral.sandbox.workspace import check_workspace
from corral.schema.patch import Patch
from corral.schema.policy import Mode, PolicySession, Preset
from corral.schema.visible import visible
from corral.store.run_dir import RunDir, RunMeta

if TYPE_CHECKING:
    from corral.patch.export import Exporter
    from corral.policy import PolicyEngine, SessionPolicy
    from corral.store.layer import Layer


@dataclass
class Prepared:
    """Everything one run needs, open. Close by leaving `prepare`."""

    settings: Settings
    run_dir: RunDir
    record: WatchedRecord
    sandbox: Sandbox
    spec: SandboxSpec
    command: str
    started_at: str
    trail: ProcessTrail
    activity: Activity
    redactor: Redactor
    origin: str = ""  # what the workspace is called, where it was taken out of an image
    layer: Layer | None = None  # what the box starts from
    box: BoxInfo | None = None
    outcome: str = ""  # once it is over

    def write_meta(self) -> None:
        """Say in the run's directory what it is: at its start, when the box is there, at its end."""
        meta = RunMeta(
            run_id=self.run_dir.run_id,
            workspace=os.fsencode(self.spec.workspace),
            started_at=self.started_at,
            command=self.redactor.text(self.command),
            facts={"workspace": self.origin} if self.origin else {},
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
            meta = replace(meta, ended_at=_now(), outcome=self.redactor.text(self.outcome))
        self.run_dir.write_meta(meta)

    def end(self, outcome: str) -> None:
        """The last word about the run. Without one, close() says that it broke off."""
        self.outcome = outcome
        self.write_meta()

    async def tidy(self) -> None:
        """Make room for the end to be told, and leave nothing that an ordinary user could not remove."""
        self.run_dir.release_reserve()
        self.trail.close()
        if os.geteuid() != 0:
            await remove_work(self.run_dir, self.spec.image)

    def close(self) -> None:
        """Say how the run ended, if nobody has."""
        self.run_dir.release_reserve()
        if not self.outcome:
            self.end("error")

    def kept_patch(self, patch: Patch | None) -> Path | None:
        """Where the patch is, if there is anything in it."""
        return self.run_dir.patch if patch is not None and patch.files else None

    @property
    def watch_error(self) -> Exception | None:
        return self.record.watch_error


MakeSandbox = Callable[[SandboxSpec], Sandbox]


@contextmanager
def prepare(
    request: BoxRequest,
    *,
    command: str,
    watch: Watch | None = None,
    make_sandbox: MakeSandbox = DockerSandbox,
    redactor: Redactor | None = None,
) -> Iterator[Prepared]:
    """Settings, run directory, record and box of one run; nothing is started yet. Raises ConfigError, RecordError."""
    settings = load_settings()
    redactor = redactor or build_redactor(settings)
    draft = build_spec(settings, request)
    # What is wrong is said before there is a run.
    check_workspace(draft.workspace, settings.runs_dir(), force=draft.force)
    layer = check_layers(request, settings)
    with RunDir.create(settings.runs_dir()) as run_dir, hold_place(request), lay(draft, layer) as laid:
        spec = replace(laid, run_dir=run_dir.path, run_id=run_dir.run_id)
        parts: Prepared | None = None
        try:
            with closing(RecordLog.open(run_dir.record, redactor=redactor)) as log:
                activity = Activity()
                record = WatchedRecord(log, lambda event: activity.add(event.payload), *([watch] if watch else []))
                trail = ProcessTrail(record)
                spec = replace(spec, observe=trail.observe)
                parts = Prepared(
                    settings,
                    run_dir,
                    record,
                    make_sandbox(spec),
                    spec,
                    command,
                    _now(),
                    trail,
                    activity,
                    redactor,
                    request.origin,
                    layer,
                )
                with closing(parts):
                    parts.write_meta()
                    yield parts
        except RecordError:
            if parts is None or parts.box is None:
                with suppress(CorralError):
                    run_dir.remove()  # a run that could not even be recorded, and changed nothing
            raise


def build_spec(settings: Settings, request: BoxRequest) -> SandboxSpec:
    """The box that settings and request ask for, in no run yet. Raises ConfigError."""
    return SandboxSpec(
        workspace=Path(os.path.abspath(request.workspace)),
        run_dir=Path(),
        run_id="",
        image=request.image or settings.image or SANDBOX_IMAGE,
        mode=parse_mode(request.mode) if request.mode else settings.mode,
        runtime=settings.runtime,
        seccomp=settings.seccomp,
        mount_point=request.mount_point,
        limits=request.box_limits or settings.limits.to_limits(),
        mask=settings.mask,
        network="tunnel" if has_network(request, settings) else "none",
        force=request.force,
    )


def has_network(request: BoxRequest, settings: Settings) -> bool:
    """Whether the box has a tunnel."""
    setup = isinstance(request, AgentRequest) and bool(request.setup_network)
    return setup or request.network.is_wanted(settings)


def build_run(
    parts: Prepared,
    request: BoxRequest,
    *,
    door: str,
    goal: str,
    on_box: Callable[[BoxInfo], None] | None,
    traffic: Traffic = no_traffic,
    **more: object,
) -> Run:
    """The run of these parts: what is recorded at its start, and how its changes are exported."""

    def note_box(box: BoxInfo) -> None:
        parts.box = box
        parts.write_meta()
        if on_box is not None:
            on_box(box)

    workspace = visible(parts.origin or os.fsencode(parts.spec.workspace))
    layer = f"{parts.layer.name} of run {parts.layer.facts.run_id}" if parts.layer else ""
    started = describe_start(
        run_id=parts.run_dir.run_id, door=door, goal=goal, workspace=workspace, layer=layer, **more
    )
    return Run(
        parts.record,
        parts.sandbox,
        build_exporter(parts, request).export,
        started,
        note_box,
        parts.tidy,
        Account(traffic),
    )


def build_policy(parts: Prepared, engine: PolicyEngine, preset: Preset, mode: Mode) -> SessionPolicy:
    """These rules, for this run."""
    from corral.policy import SessionPolicy  # late: start-up time

    session = PolicySession(id=parts.run_dir.run_id, preset=preset, mode=mode)
    return SessionPolicy(engine, session, mount_point=parts.spec.mount_point)


def describe_policy(policy: SessionPolicy) -> dict[str, str]:
    """What the record says of the rules at the start."""
    session = policy.session
    return {"mode": session.mode.value, "preset": session.preset.value, "policy": policy.engine.version}


def build_exporter(parts: Prepared, request: BoxRequest) -> Exporter:
    """How the changes of these parts become a patch."""
    from corral.patch.export import Exporter  # late: start-up time

    return Exporter(
        parts.spec.workspace, parts.run_dir.patch, include_ignored=request.include_ignored, redactor=parts.redactor
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
