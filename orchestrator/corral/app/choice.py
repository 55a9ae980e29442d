"""Names that a user wrote, as the things they mean. A name that means nothing is a ConfigError."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from corral.config import Settings
from corral.errors import ConfigError
from corral.record import RECORD_NAME, read_events
from corral.sandbox.spec import WorkspaceMode
from corral.schema.events import Event
from corral.schema.policy import Mode, Preset
from corral.store.run_dir import find_run
from corral.tools.base import ToolTimeouts

if TYPE_CHECKING:
    from corral.llm import ModelClient
    from corral.policy import PolicyEngine

REPLAY = "replay:"


def parse_mode(text: str) -> WorkspaceMode:
    """Raises ConfigError for a mode that does not exist."""
    try:
        return WorkspaceMode(text)
    except ValueError:
        known = ", ".join(mode.value for mode in WorkspaceMode)
        raise ConfigError(f"there is no workspace mode {text!r}", hint=f"one of: {known}") from None


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


def load_policy(settings: Settings, preset: Preset) -> PolicyEngine:
    """The built-in denials, the preset, the user's own files. Raises ConfigError with file and line of a mistake."""
    from corral.policy import PolicyEngine  # late: start-up time
    from corral.policy.source import PolicyLayer

    own = [PolicyLayer(path.stem, path) for path in settings.policy]
    return PolicyEngine.load_preset(preset, own)


def build_timeouts(settings: Settings) -> ToolTimeouts:
    """The user's time limits, as the tools take them."""
    limits = settings.timeouts
    return ToolTimeouts(file_s=limits.file_s, shell_s=limits.shell_s, other_s=limits.other_s)
