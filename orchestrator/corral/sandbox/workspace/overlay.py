"""The overlay: the workspace below, read-only; the run's own directory above; the engine mounts it by short names."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corral.errors import SandboxError
from corral.sandbox.labels import labels
from corral.sandbox.spec import SandboxSpec
from corral.sandbox.workspace import proof
from corral.sandbox.workspace.kernel.idmap import attach_idmapped_clone
from corral.sandbox.workspace.kernel.link_dir import LinkDir
from corral.sandbox.workspace.kernel.syscall import (
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    attach_mount,
    make_mount,
    try_mount,
)
from corral.sandbox.workspace.mask.plant import Planter
from corral.sandbox.workspace.mask.search import Secret
from corral.sandbox.workspace.owner import BoxOwner
from corral.sandbox.workspace.precheck import Obstacle

_BUSY_WAITS_S = (0.002, 0.01, 0.05, 0.2)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class BoxDirs:
    """The part of the run directory that a box writes to. `box` itself is never seen from inside."""

    box: Path

    @property
    def upper(self) -> Path:
        return self.box / "upper"

    @property
    def work(self) -> Path:
        return self.box / "work"

    @property
    def ready(self) -> Path:
        """Exists once the upper directory was made complete: a second box takes it as it is."""
        return self.box / "ready"

    def create(self) -> None:
        for path in (self.box, self.upper, self.work):
            path.mkdir(mode=0o700, exist_ok=True)


@dataclass
class Overlay:
    """A view that is ready to be mounted. `lower` belongs to the caller, the rest goes with close()."""

    lower: int
    upper: int
    links: LinkDir
    planter: Planter
    nonce: bytes = b""
    before: proof.Root | None = None
    has_index: bool = True
    layer: int = -1
    """The changes of an earlier box, between the two; -1 when there are none."""
    is_temporary_there: bool = True

    @property
    def lowers(self) -> tuple[Path, ...]:
        """What is never written, from above: the kernel's order."""
        return (self.links.lower,) if self.layer < 0 else (self.links.layer, self.links.lower)

    @property
    def above(self) -> tuple[int, ...]:
        """What lies above the workspace, from below."""
        return (self.upper,) if self.layer < 0 else (self.layer, self.upper)

    def remove_temporary(self) -> None:
        """What only the start of a box needs: the mount it was made from, the short names, the proof."""
        if not self.is_temporary_there:
            return
        self.is_temporary_there = False
        self.remove_proof()
        self.links.remove()

    def remove_proof(self) -> None:
        """Idempotent."""
        if self.nonce:
            proof.remove_nonce(self.upper, self.nonce)
            self.nonce = b""

    def close(self) -> None:
        try:
            self.remove_temporary()
        finally:
            for directory in self.above:
                if directory >= 0:
                    os.close(directory)
            self.upper = self.layer = -1


def build_overlay(lower: int, root: bytes, spec: SandboxSpec, dirs: BoxDirs, owner: BoxOwner) -> Overlay | Obstacle:
    """Make everything that a mount of the view needs but fill_upper(), or say why this host cannot."""
    links = LinkDir.create(labels(spec.run_id, "workspace"), dirs.upper, dirs.work)
    with contextlib.ExitStack() as undo:
        undo.callback(links.remove)
        obstacle = _link_lower(lower, root, links.lower, owner)
        if obstacle is not None:
            return obstacle
        upper = os.open(dirs.upper, _DIRECTORY)
        planter = Planter(lower, upper, owner.users, owner.groups)
        # The index tells which names share a copied-up file, and only root can read it: without it, writing to one of
        # several hard links parts it from the others, and an export sees every change.
        overlay = Overlay(lower, upper, links, planter, has_index=os.geteuid() == 0)
        undo.callback(overlay.close)
        if spec.layer is not None:
            overlay.layer = os.open(spec.layer, _DIRECTORY)
            obstacle = _link_layer(overlay.layer, spec.layer, links.layer, owner)
            if obstacle is not None:
                return obstacle
        if os.geteuid() == 0:
            obstacle = _try_options(overlay)
            if obstacle is not None:
                return obstacle
        undo.pop_all()
        return overlay


def fill_upper(overlay: Overlay, dirs: BoxDirs, secrets: Sequence[Secret]) -> None:
    """Masks, the proof, and last the looks of the workspace's own directory: its mode may forbid writing.

    Before the view is mounted: the kernel does not say what an overlay does whose upper directory changes.
    """
    is_fresh = not dirs.ready.exists()
    status = os.fstat(overlay.lower if is_fresh else overlay.upper)
    os.fchmod(overlay.upper, 0o700)
    try:
        for secret in secrets:
            overlay.planter.plant(secret)
        overlay.nonce = proof.plant_nonce(overlay.upper)
        if is_fresh:
            overlay.planter.copy_owner(overlay.upper, status)
    finally:
        os.fchmod(overlay.upper, stat.S_IMODE(status.st_mode))
    dirs.ready.touch()
    overlay.before = proof.list_merged(overlay.lower, *overlay.above)


def describe_mount(overlay: Overlay, spec: SandboxSpec) -> dict[str, object]:
    """The entry of HostConfig.Mounts. No source: an anonymous volume goes with its container."""
    options = [
        f"{key}={value}" if value is not None else key for key, value in _options(overlay, index=overlay.has_index)
    ]
    return {
        "Type": "volume",
        "Target": spec.mount_point,
        "VolumeOptions": {
            "NoCopy": True,  # or the engine copies what the image has at that place into the upper directory
            "Labels": labels(spec.run_id, "workspace"),
            "DriverConfig": {
                "Name": "local",
                "Options": {"type": "overlay", "device": "overlay", "o": ",".join([*options, "nosuid", "nodev"])},
            },
        },
    }


def attach_overlay(overlay: Overlay, point: Path) -> None:
    """Mount the view at a directory of this host, by ourselves. Blocks. Raises OSError."""
    mount = _make_mount(overlay)
    try:
        attach_mount(mount, str(point))
    finally:
        os.close(mount)


def _make_mount(overlay: Overlay) -> int:
    options = _options(overlay, index=overlay.has_index)
    for wait_s in (*_BUSY_WAITS_S, None):
        try:
            return make_mount("overlay", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
        except OSError as error:
            # A process that was forked a moment ago, and has not yet begun its program, holds the trial mount.
            if error.errno != errno.EBUSY or wait_s is None:
                raise
            time.sleep(wait_s)
    raise AssertionError  # the last attempt returns or raises


def _link_layer(layer: int, path: Path, link: Path, owner: BoxOwner) -> Obstacle | None:
    """Its owner need not be this workspace's: it is the box's user all the same."""
    status = os.fstat(layer)
    users, groups = replace(owner.users, disk=status.st_uid), replace(owner.groups, disk=status.st_gid)
    return _link_lower(layer, os.fsencode(path), link, replace(owner, users=users, groups=groups, namespace=None))


def _link_lower(lower: int, root: bytes, link: Path, owner: BoxOwner) -> Obstacle | None:
    if not owner.is_mapped:
        os.symlink(root, os.fsencode(link))
        return None
    link.mkdir(mode=0o700)
    try:
        attach_idmapped_clone(lower, link, owner.users, owner.groups, namespace=owner.namespace)
    except OSError as error:
        return Obstacle(
            f"the workspace's file system or this kernel cannot map file owners ({error.strerror})",
            "use copy mode, or run as an ordinary user in the docker group",
        )
    return None


def _try_options(overlay: Overlay) -> Obstacle | None:
    """Root asks the kernel itself: with index, without, or not at all."""
    failure = ""
    for index in (True, False):
        try:
            # Read-only: dropping a writable overlay flushes the whole file system below it.
            try_mount("overlay", [*_options(overlay, index=index), ("ro", None)])
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise SandboxError(
                    "another box is still mounted over this run's changes", hint="wait until it has ended"
                ) from None
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # a copy would not fit either
            failure = error.strerror or "unknown"
        else:
            overlay.has_index = index
            return None
    return Obstacle(f"the kernel refuses an overlay of this workspace ({failure})", "use copy mode")


def _options(overlay: Overlay, *, index: bool) -> list[tuple[str, str | None]]:
    # SECURITY: userxattr: the box can set user attributes only in escaped form, so it cannot forge the overlay's own.
    # test_workspace_docker.py::test_box_cannot_forge_overlay_marks
    return [
        ("lowerdir", ":".join(map(str, overlay.lowers))),
        ("upperdir", str(overlay.links.upper)),
        ("workdir", str(overlay.links.work)),
        ("userxattr", None),
        ("index", "on" if index else "off"),
    ]
