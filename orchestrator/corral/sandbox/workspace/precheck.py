"""What is looked at before anything is made: mistakes of the user, and obstacles to the overlay, in our own words.

The kernel's answers to the same mistakes are "no such file" and "invalid argument".
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corral.errors import WorkspaceError
from corral.sandbox.workspace.kernel.mount_table import MountTable, is_within, resolve

_LONG_TABLE = 2000  # every mount of a container start walks it: 2,000 lines cost about as much as the start itself
_FIRST_KERNEL = (5, 11)  # userxattr
_NO_UPPER = re.compile(
    r"overlay|aufs|nfs\d?|cifs|smb\d?|9p|fuse(\..*)?|fuseblk|virtiofs|ceph|afs|vfat|msdos|exfat|ntfs\d?|ecryptfs|vboxsf|squashfs"
)


@dataclass(frozen=True)
class Obstacle:
    """Why the overlay will not do, and what to do about it."""

    reason: str
    hint: str


def check_workspace(workspace: Path, data: Path, *, force: bool) -> bytes:
    """The workspace's resolved path. Raises WorkspaceError for what no mode accepts."""
    shown = str(workspace)
    try:
        root = resolve(workspace)
        status = os.stat(root)
    except FileNotFoundError:
        raise WorkspaceError(f"workspace {shown!r} does not exist", hint="name an existing directory") from None
    except (OSError, ValueError) as error:
        raise WorkspaceError(
            f"workspace {shown!r} cannot be used: {_words(error)}", hint="name an existing directory"
        ) from None
    if not stat.S_ISDIR(status.st_mode):
        raise WorkspaceError(f"workspace {shown!r} is not a directory", hint="name the directory that holds the file")
    if not os.access(root, os.R_OK | os.X_OK):
        raise WorkspaceError(f"workspace {shown!r} is not readable", hint="run as a user who may read and enter it")
    _refuse_dangerous(root, shown, force=force)
    _refuse_overlap(root, resolve(data), shown)
    return root


def _refuse_dangerous(root: bytes, shown: str, *, force: bool) -> None:
    if force:
        return
    if root == b"/":
        raise WorkspaceError(
            f"workspace {shown!r} is the whole file system", hint="name a project directory, or force it with --force"
        )
    if root == resolve(Path(os.path.expanduser("~"))):
        raise WorkspaceError(
            f"workspace {shown!r} is your home directory", hint="name a project directory, or force it with --force"
        )


def _refuse_overlap(root: bytes, data: bytes, shown: str) -> None:
    if is_within(data, root):
        raise WorkspaceError(
            f"workspace {shown!r} contains corral's own data directory {os.fsdecode(data)!r}",
            hint="set XDG_DATA_HOME to a directory outside the workspace",
        )
    if is_within(root, data):
        raise WorkspaceError(
            f"workspace {shown!r} lies inside the run's own directory {os.fsdecode(data)!r}",
            hint="copy it somewhere else first",
        )


def find_obstacle(root: bytes, upper: Path, work: Path, table: MountTable) -> Obstacle | None:
    """The first reason why an overlay of `root` with changes in `upper` will not do, or None."""
    checks: list[Callable[[], Obstacle | None]] = [
        _check_kernel,
        lambda: _check_submounts(root, table),
        lambda: _check_lower(root, table),
        lambda: _check_upper(upper, table),
        lambda: _check_one_filesystem(upper, work),
        lambda: _check_attributes(upper),
    ]
    for check in checks:
        obstacle = check()
        if obstacle is not None:
            return obstacle
    return None


def find_table_warning(table: MountTable) -> str | None:
    if len(table.mounts) <= _LONG_TABLE:
        return None
    return f"this host has {len(table.mounts)} mounts, which slows the start of every container"


def _check_kernel() -> Obstacle | None:
    match = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if match and (int(match[1]), int(match[2])) >= _FIRST_KERNEL:
        return None
    return Obstacle(f"kernel {os.uname().release} is older than 5.11", "copy mode works everywhere")


def _check_submounts(root: bytes, table: MountTable) -> Obstacle | None:
    inside = table.below(root)
    if not inside:
        return None
    named = ", ".join(repr(os.fsdecode(point)) for point in inside[:3]) + (", ..." if len(inside) > 3 else "")
    return Obstacle(f"other file systems are mounted inside the workspace: {named}", "unmount them, or use copy mode")


def _check_lower(root: bytes, table: MountTable) -> Obstacle | None:
    """An overlay may lie on an overlay, but not on an overlay that lies on one."""
    mount = table.containing(root)
    if mount is None or mount.filesystem != "overlay":
        return None
    layers = [
        layer
        for option in mount.options
        if option.startswith(b"lowerdir=")
        for layer in option.removeprefix(b"lowerdir=").split(b":")
    ]
    for layer in layers:
        below = table.containing(os.path.realpath(layer)) if layer.startswith(b"/") else None
        if below is not None and below != mount and below.filesystem == "overlay":
            return Obstacle("the workspace lies on an overlay on an overlay", "move it, or use copy mode")
    return None


def _check_upper(upper: Path, table: MountTable) -> Obstacle | None:
    mount = table.containing(resolve(upper))
    if mount is None or not _NO_UPPER.fullmatch(mount.filesystem):
        return None
    return Obstacle(
        f"corral's data directory lies on {mount.filesystem}, which cannot hold a box's changes",
        "set XDG_DATA_HOME to a directory on a local disk, or use copy mode",
    )


def _check_one_filesystem(upper: Path, work: Path) -> Obstacle | None:
    if upper.stat().st_dev == work.stat().st_dev:
        return None
    return Obstacle("the run's upper and work directories lie on different file systems", "remove the mount there")


def _check_attributes(upper: Path) -> Obstacle | None:
    """Deletions of directories are kept as user attributes of files."""
    try:
        os.setxattr(upper, "user.corral.probe", b"1")
        os.removexattr(upper, "user.corral.probe")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise WorkspaceError(
                f"no space left for the run in {str(upper)!r}", hint="free some space, or set XDG_DATA_HOME"
            ) from None
        return Obstacle(
            "corral's data directory lies on a file system without user attributes",
            "set XDG_DATA_HOME to a directory on a local disk, or use copy mode",
        )
    return None


def _words(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "a path cannot hold a NUL character"
