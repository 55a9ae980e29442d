"""A workspace that was prepared before there was a run: whether it still holds, and its move into the run."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from time import time_ns

from corral.sandbox.spec import SandboxSpec, WorkspaceMode
from corral.sandbox.workspace.baseline import write_baseline
from corral.sandbox.workspace.copy import check_size, describe_copy_mount
from corral.sandbox.workspace.mask.search import Secret
from corral.sandbox.workspace.prepare import FoundSecrets, cover_secrets
from corral.sandbox.workspace.prepared import PreparedWorkspace
from corral.sandbox.workspace.tree.pack import measure


def is_same_place(prepared: PreparedWorkspace, now: os.stat_result) -> bool:
    """Whether what has the workspace's name now is the directory that was prepared, and looks as it did."""
    return _identify(os.fstat(prepared.root)) == _identify(now)


def is_masked_alike(one: FoundSecrets, other: FoundSecrets) -> bool:
    """Whether the masks for the one are those for the other."""
    return [*map(_describe, one.secrets)] == [*map(_describe, other.secrets)]


def has_room(prepared: PreparedWorkspace) -> bool:
    """Whether the place that was made for a copy can take the workspace as it is now. Raises WorkspaceError."""
    measured = measure(prepared.root)
    check_size(measured, prepared.spec)
    root = os.fstat(prepared.root)
    _, warning = describe_copy_mount(prepared.spec, measured, root, prepared.host_uid, prepared.host_uid)
    return warning is None or not prepared.has_kernel_limits


def move_in(prepared: PreparedWorkspace, spec: SandboxSpec, found: FoundSecrets) -> None:
    """From here on it is the workspace of this run. Raises OSError."""
    with prepared.lock:
        os.rename(prepared.spec.run_dir / "box", spec.run_dir / "box")
        prepared.spec = spec
        # What its user edited before now is no edit during the run.
        prepared.base = replace(prepared.base, base_time_ns=time_ns())
        if prepared.mode is WorkspaceMode.OVERLAY:
            write_baseline(prepared.baseline, prepared.base).close()
    if prepared.mode is WorkspaceMode.COPY:
        prepared.notes[:] = [note for note in prepared.notes if note != found.note]
        cover_secrets(prepared, found)


def _identify(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def _describe(secret: Secret) -> tuple[object, ...]:
    status = secret.status
    return secret.path, secret.content, status.st_mode, status.st_uid, status.st_gid
