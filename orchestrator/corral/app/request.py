"""What the doors ask for, and what they get: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from corral.agent.budget import Limits as AgentLimits
from corral.agent.run import Outcome
from corral.errors import BoxLost
from corral.record import Activity
from corral.redact import Redactor
from corral.sandbox.cause import find_cause
from corral.sandbox.spec import MOUNT_POINT
from corral.sandbox.spec import Limits as BoxLimits
from corral_protocol.message import ExecResult

if TYPE_CHECKING:
    from corral.config import Settings
    from corral.sandbox.egress import NetworkReport


@dataclass(frozen=True)
class NetworkRequest:
    """What a box is to reach, by names. With nothing in it, it reaches nothing and has no tunnel."""

    profiles: tuple[str, ...] | None = None  # None: the settings', with their `allow`
    allow: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    forwards: tuple[tuple[int, int], ...] = ()  # port of the box, port of the host's loopback (0: any)

    def is_wanted(self, settings: Settings) -> bool:
        """Whether the box has a tunnel at all."""
        own = bool(self.profiles or self.allow or self.secrets or self.forwards)
        return own or (self.profiles is None and bool(settings.network.profiles or settings.network.allow))


@dataclass(frozen=True)
class BoxRequest:
    """What every door can say about the box. None means the setting's value."""

    workspace: Path = Path()
    """`image:PATH` names a directory inside the image."""
    mount_point: str = MOUNT_POINT
    origin: str = ""
    """What was asked for, where the workspace is a tree out of an image."""
    layer: str | None = None
    """The name of a set-up layer that the box starts from."""
    image: str | None = None
    mode: str | None = None
    include_ignored: bool = False
    force: bool = False
    box_limits: BoxLimits | None = None
    network: NetworkRequest = NetworkRequest()


@dataclass(frozen=True)
class ExecRequest(BoxRequest):
    """`corral exec`, parsed."""

    argv: list[bytes] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    keep: str | None = None
    """Keep what the command changed as a set-up layer of this name, if it succeeds."""


@dataclass(frozen=True)
class ExecOutcome:
    """A command that has been run, for people and machines."""

    run_id: str
    run_dir: Path
    outcome: Outcome
    result: ExecResult | None
    patch_file: Path | None  # None when nothing changed
    activity: Activity = field(default_factory=Activity)
    network: NetworkReport | None = None  # None when the box had none
    kept: str | None = None  # the set-up layer that it made
    redactor: Redactor = field(default_factory=Redactor)
    """What masks it for a person."""

    @property
    def exit_code(self) -> int:
        """SPEC: the command's own; 125 when corral or the engine failed, 130 when cancelled."""
        return self.outcome.exit_code

    @property
    def cause(self) -> str:
        if isinstance(self.outcome.error, BoxLost):
            return self.outcome.error.cause
        return find_cause(self.result) if self.result else ""

    @property
    def limits_touched(self) -> tuple[str, ...]:
        """The limits of the box that the command ran into, for people."""
        return self.outcome.limits_touched


@dataclass(frozen=True)
class AgentRequest(BoxRequest):
    """`corral run`, parsed."""

    task: str = ""
    until: str | None = None
    model: str | None = None
    preset: str | None = None
    plan: bool = False
    limits: AgentLimits = field(default_factory=AgentLimits)
    setup: str | None = None  # a command line that runs before the agent
    setup_network: tuple[str, ...] = ()  # profiles of the network it has, beside the agent's


@dataclass(frozen=True)
class AgentOutcome:
    """An agent's run that is over."""

    run_id: str
    run_dir: Path
    outcome: Outcome
    patch_file: Path | None
    model: str
    activity: Activity = field(default_factory=Activity)
    diverged: int = 0  # replay: requests that were not what the recorded model saw
    watch_error: Exception | None = None  # why the watcher was not called any more
    network: NetworkReport | None = None
    redactor: Redactor = field(default_factory=Redactor)

    @property
    def exit_code(self) -> int:
        return self.outcome.exit_code


@dataclass(frozen=True)
class SandboxRequest(BoxRequest):
    """A box for somebody else's loop."""

    preset: str | None = None
    goal: str = ""


@dataclass(frozen=True)
class SandboxOutcome:
    """A box that is gone."""

    run_id: str
    run_dir: Path
    outcome: Outcome
    patch_file: Path | None
    watch_error: Exception | None = None
