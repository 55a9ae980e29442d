"""What a box shall be: limits, image, workspace, user. Values only; sandbox/ turns them into a container."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

from corral_protocol.message import ProcessEvents

MIB = 1 << 20
GIB = 1 << 30
MAX_STREAMS = 128
"""Connections through the tunnel of one box at once; more wait in the box."""
RUNC = "runc"
"""The runtime that every engine has, and that shares the host's kernel."""
SANDBOX_IMAGE = "corral-sandbox"
"""The image of our own, whichever tag of it belongs to this installation."""
MOUNT_POINT = "/workspace"


class WorkspaceMode(StrEnum):
    """How the workspace gets into the box."""

    AUTO = "auto"  # overlay where the engine proves that it sees the directory, else copy
    OVERLAY = "overlay"
    COPY = "copy"


@dataclass(frozen=True)
class Limits:
    """What one box may use. The numbers are SPEC's defaults; docs/reference/settings.md lists them."""

    memory_bytes: int = 4 * GIB  # without swap; half of the host's memory if that is less
    pids: int = 512
    cpus: float = 2.0
    open_files: int = 4096
    file_bytes: int = 1 * GIB  # RLIMIT_FSIZE
    workspace_bytes: int = 4 * GIB
    workspace_inodes: int = 200_000
    min_free_bytes: int = 512 * MIB  # what must stay free where the changes lie
    tmp_bytes: int = 512 * MIB  # /tmp; all tmpfs together stay at or under half of memory_bytes
    home_bytes: int = 256 * MIB
    shm_bytes: int = 64 * MIB
    wall_s: float | None = None  # of the whole box


@dataclass(frozen=True)
class SandboxSpec:
    """One box, before it exists. Paths are absolute; nothing in here is secret."""

    workspace: Path
    run_dir: Path  # owner-only directory of the run; the box's changes live in it
    run_id: str
    image: str = SANDBOX_IMAGE
    mode: WorkspaceMode = WorkspaceMode.AUTO
    mount_point: str = MOUNT_POINT
    runtime: str = RUNC
    seccomp: Literal["default", "debug"] = "default"  # debug: debuggers and strace work, and more of the kernel is open
    limits: Limits = field(default_factory=Limits)
    env: dict[str, str] = field(default_factory=dict)
    layer: Path | None = None  # changes of an earlier box, laid between the workspace and this box's own
    notes: tuple[str, ...] = ()  # for the people who see this box's warnings
    mask: tuple[str, ...] | None = None  # gitignore-style patterns of secret files; None: the built-in list, (): none
    network: str = "none"  # or "tunnel": told, not made, here
    force: bool = False  # allow a workspace that is / or the home directory
    watch: bool = True  # have the box tell what is started and connected to
    observe: Callable[[str, ProcessEvents], None] | None = field(default=None, compare=False)  # see base.Observe
