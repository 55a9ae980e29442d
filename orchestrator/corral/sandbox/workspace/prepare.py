"""From a spec to a workspace that an engine can mount: check, lock, mask, overlay where possible, else copy."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from corral.errors import ConfigError, RecordError, SandboxError, WorkspaceError
from corral.sandbox.base import MaskedFile
from corral.sandbox.remap import Remap
from corral.sandbox.spec import SandboxSpec, WorkspaceMode
from corral.sandbox.workspace.baseline import Baseline, load_baseline, write_baseline
from corral.sandbox.workspace.copy import check_size, describe_copy_mount
from corral.sandbox.workspace.kernel.mount_table import MountTable
from corral.sandbox.workspace.mask.search import MAX_MASKS, SearchMemo, Secret, SecretSearch
from corral.sandbox.workspace.overlay import BoxDirs, Overlay, build_overlay, describe_mount, fill_upper
from corral.sandbox.workspace.owner import BoxOwner, choose_owner, suits
from corral.sandbox.workspace.precheck import Obstacle, check_workspace, find_obstacle, find_table_warning
from corral.sandbox.workspace.prepared import PreparedWorkspace
from corral.sandbox.workspace.tree.pack import measure
from corral.schema.size import show_size

_PATH = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def prepare_workspace(
    spec: SandboxSpec,
    *,
    force_copy_reason: str | None = None,
    is_covered: bool = True,
    remap: Remap | None = None,
    reserved: BoxOwner | None = None,
) -> PreparedWorkspace:
    """Make the workspace ready for one box. Blocks for milliseconds; call it in a thread.

    Not `is_covered`: secret files are not masked yet, and cover_secrets() must have been done before the box starts.
    With `force_copy_reason` a copy is made although the spec would allow the overlay: the engine proved blind.
    Discard the first attempt before. `remap` says what the engine maps user ids to. `reserved` are ids to use if they
    suit, which become the workspace's or are given back.
    Raises WorkspaceError and ConfigError (the user acts), SandboxError.
    """
    with contextlib.ExitStack() as undo:
        if reserved is not None:
            undo.callback(reserved.release)
        root = check_workspace(spec.workspace, spec.run_dir, force=spec.force)
        try:
            prepared = _Preparation(spec, root, undo, remap, reserved).run(force_copy_reason)
        except OSError as error:
            raise _explain(error, spec.run_dir) from error
    if is_covered:
        try:
            cover_secrets(prepared, find_secrets(spec))
        except BaseException:
            prepared.discard()
            raise
    return prepared


@dataclass(frozen=True)
class FoundSecrets:
    """What is to be masked, and what a person should be told of the search."""

    secrets: tuple[Secret, ...] = ()
    note: str = ""


def find_secrets(spec: SandboxSpec, memo: SearchMemo | None = None) -> FoundSecrets:
    """Look for secret files. Blocks for as long as a look at every name takes, two seconds at most; nothing of it
    needs the workspace to be prepared. With a `memo` of an earlier look only at what has changed since.

    Raises WorkspaceError where there is no such directory.
    """
    if spec.mask == ():
        return FoundSecrets()
    try:
        descriptor = os.open(os.path.realpath(spec.workspace), _PATH)
    except OSError as error:
        raise WorkspaceError(f"the workspace cannot be opened: {error.strerror}") from None
    try:
        search = SecretSearch(descriptor, spec.mask, memo=memo)
        secrets = tuple(search.run())
    finally:
        os.close(descriptor)
    if search.is_complete:
        return FoundSecrets(secrets)
    return FoundSecrets(
        secrets,
        f"the workspace is too large to look everywhere for secret files: {search.seen} entries were looked at "
        f"({MAX_MASKS} masks at most), the rest is shown as it is; name secret files as mask patterns",
    )


def cover_secrets(prepared: PreparedWorkspace, found: FoundSecrets) -> None:
    """Mask what was found. Blocks for milliseconds; nothing is done for a workspace that was discarded already.

    An engine can make the container meanwhile: what is mounted is read when it starts. Raises SandboxError and
    ConfigError.
    """
    with prepared.lock:
        if prepared.root < 0:
            return
        prepared.masked = tuple(MaskedFile(os.fsencode(one.path), one.reason) for one in found.secrets)
        if found.note:
            prepared.notes.append(found.note)
        if prepared.overlay is None:
            prepared.masks = {os.fsencode(one.path): one.content for one in found.secrets}
            return
        try:
            dirs = BoxDirs(prepared.spec.run_dir / "box")
            first = _find_first(prepared, dirs)
            fill_upper(prepared.overlay, dirs, found.secrets)
            # After the masks: what has a later change time is not ours.
            prepared.base = first or replace(prepared.base, base_time_ns=_now_ns())
            write_baseline(prepared.baseline, prepared.base).close()
        except OSError as error:
            raise _explain(error, prepared.spec.run_dir) from error


def _find_first(prepared: PreparedWorkspace, dirs: BoxDirs) -> Baseline | None:
    """What the original was for the first box over these changes: what its user edited since is the user's."""
    if not dirs.ready.exists():
        return None
    try:
        first = load_baseline(prepared.baseline)
    except RecordError:
        return None
    return first if (first.mode, first.workspace) == (prepared.base.mode, prepared.base.workspace) else None


class _Preparation:
    """The steps, and what they share. Everything they acquire is on `undo`."""

    def __init__(
        self,
        spec: SandboxSpec,
        root: bytes,
        undo: contextlib.ExitStack,
        remap: Remap | None,
        reserved: BoxOwner | None,
    ) -> None:
        self.reserved = reserved
        self.spec = spec
        self.remap = remap
        self.root = root
        self.undo = undo
        self.dirs = BoxDirs(spec.run_dir / "box")
        self.table = MountTable.load()
        self.notes: list[str] = []

    def run(self, force_copy_reason: str | None) -> PreparedWorkspace:
        self.dirs.create()
        self._check_room()
        self._lock_box()
        self.descriptor = os.open(self.root, _PATH)
        self.undo.callback(os.close, self.descriptor)
        warning = find_table_warning(self.table)
        if warning:
            self.notes.append(warning)
        owner = self._choose_owner()
        overlay, reason = self._choose_view(owner, force_copy_reason)
        if overlay is None:
            return self._finish_copy(owner, reason)
        return self._finish_overlay(owner, overlay)

    def _check_room(self) -> None:
        status = os.statvfs(self.dirs.box)
        free, wanted = status.f_bavail * status.f_frsize, self.spec.limits.min_free_bytes
        if free < wanted:
            raise SandboxError(
                f"the disk is nearly full: {show_size(free)} are left, {show_size(wanted)} are to stay free",
                hint=f"free some space on the disk of {str(self.spec.run_dir)!r}, or set limits.min_free lower",
            )

    def _lock_box(self) -> None:
        """Two boxes over one upper directory corrupt it; without index the kernel only warns."""
        descriptor = os.open(self.dirs.box, _PATH | os.O_NOFOLLOW)
        self.undo.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(
                f"run {self.spec.run_id!r} is in use by another box", hint="wait until that box has ended"
            ) from None

    def _choose_owner(self) -> BoxOwner:
        """The same id again for a second box: the changes of the first belong to it."""
        # Apart: a start takes an engine for a plain one until it hears otherwise, and must not forget the id meanwhile.
        memory = self.dirs.box / ("uid" if self.remap is None else "uid-remapped")
        preferred: int | None = None
        with contextlib.suppress(FileNotFoundError, ValueError):
            preferred = int(memory.read_text(encoding="ascii"))
        status = os.fstat(self.descriptor)
        if self.reserved is not None and preferred is None and suits(self.reserved, status):
            owner = self.reserved
        else:
            owner = choose_owner(status, preferred, self.remap)
            self.undo.callback(owner.release)
        if preferred != owner.host_uid:
            memory.write_text(str(owner.host_uid), encoding="ascii")
        return owner

    def _choose_view(self, owner: BoxOwner, force_copy_reason: str | None) -> tuple[Overlay | None, str]:
        """The overlay, or None and the reason for a copy."""
        mode = self.spec.mode if self.spec.layer is None else WorkspaceMode.OVERLAY
        if mode is WorkspaceMode.COPY:
            return None, "asked for"
        if force_copy_reason is not None:
            obstacle = Obstacle(force_copy_reason, "use copy mode, or an engine on this machine")
        elif self.remap is not None and not owner.is_mapped:
            obstacle = Obstacle(
                "the engine maps user ids (userns-remap), and only root can give a box files of such an id",
                "use copy mode, or run as root",
            )
        else:
            found = find_obstacle(self.root, self.dirs.upper, self.dirs.work, self.table)
            view = found or build_overlay(self.descriptor, self.root, self.spec, self.dirs, owner)
            if isinstance(view, Overlay):
                self.undo.callback(view.close)
                return view, ""
            obstacle = view
        if mode is WorkspaceMode.OVERLAY:
            raise WorkspaceError(f"overlay mode is not possible: {obstacle.reason}", hint=obstacle.hint)
        return None, obstacle.reason

    def _finish_overlay(self, owner: BoxOwner, overlay: Overlay) -> PreparedWorkspace:
        return PreparedWorkspace(
            mode=WorkspaceMode.OVERLAY,
            mode_reason="",
            uid=owner.uid,
            gid=owner.gid,
            host_uid=owner.host_uid,
            mount=describe_mount(overlay, self.spec),
            base=Baseline(WorkspaceMode.OVERLAY, self.root, _now_ns()),
            spec=self.spec,
            root=self.descriptor,
            overlay=overlay,
            cleanup=self.undo.pop_all(),
            notes=self.notes,
        )

    def _finish_copy(self, owner: BoxOwner, reason: str) -> PreparedWorkspace:
        measured = measure(self.descriptor)
        check_size(measured, self.spec)
        root = os.fstat(self.descriptor)
        mount, warning = describe_copy_mount(self.spec, measured, root, owner.host_uid, owner.host_gid)
        if warning:
            self.notes.append(warning)
        return PreparedWorkspace(
            mode=WorkspaceMode.COPY,
            mode_reason=reason,
            uid=owner.uid,
            gid=owner.gid,
            host_uid=owner.host_uid,
            mount=mount,
            base=Baseline(WorkspaceMode.COPY, self.root, _now_ns()),
            spec=self.spec,
            root=self.descriptor,
            overlay=None,
            has_kernel_limits=not warning,
            cleanup=self.undo.pop_all(),
            notes=self.notes,
        )


def _now_ns() -> int:
    """The precise clock: the file system's own one may lag behind it by a tick, never run ahead."""
    return time.time_ns()


def _explain(error: OSError, run_dir: Path) -> ConfigError | SandboxError:
    words = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SandboxError(
            f"the disk is full: {words} in {str(run_dir)!r}", hint="free some space, or set XDG_DATA_HOME"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
        return ConfigError(
            f"the run's directory {str(run_dir)!r} cannot be used: {words}",
            hint="set XDG_DATA_HOME to a writable place",
        )
    return SandboxError(f"the workspace cannot be prepared: {words}", hint=f"the run's directory is {str(run_dir)!r}")
