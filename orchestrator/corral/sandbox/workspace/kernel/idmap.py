"""A read-only clone of a directory's mount whose files' owners are mapped: how root shares a workspace with a box.

The whole range of ids is mapped, or files of other owners answer EOVERFLOW. On disk the workspace's owner becomes the
box's user; the box's own number, should it be on disk, becomes a spare one; all others stay.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from corral.sandbox.workspace.kernel.syscall import (
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    attach_mount,
    clone_mount,
    set_mount_attributes,
    spawn_namespace_holder,
)

FIRST_BOX_ID = 0x70000000
BOX_IDS = 1 << 16
SPARE_ID = FIRST_BOX_ID + BOX_IDS
_ALL_IDS = 0xFFFFFFFF  # ids are 0 .. 2**32 - 2
_HOLDER_S = 10  # setting the maps takes a millisecond


@dataclass(frozen=True)
class IdMap:
    """`disk` on disk is seen as `box`; everything else as itself."""

    disk: int
    box: int

    def view(self, number: int) -> int:
        """The id under which an id on disk is seen."""
        if self.disk == self.box:
            return number
        return {self.box: SPARE_ID, self.disk: self.box}.get(number, number)

    def lines(self) -> str:
        """The kernel's form: ranges of (on disk, seen as, length). Two owners must not be seen as one."""
        if self.disk == self.box:
            return f"0 0 {_ALL_IDS}\n"
        moved: dict[int, int | None] = {SPARE_ID: None, self.box: SPARE_ID, self.disk: self.box}
        rows: list[str] = []
        start = 0
        for number in sorted(moved):
            if number > start:
                rows.append(f"{start} {start} {number - start}")
            target = moved[number]
            if target is not None:
                rows.append(f"{number} {target} 1")
            start = number + 1
        rows.append(f"{start} {start} {_ALL_IDS - start}")
        return "\n".join(rows) + "\n"


def attach_idmapped_clone(
    directory: int, target: Path, users: IdMap, groups: IdMap, *, namespace: int | None = None
) -> None:
    """Mount a clone of the open directory onto `target`: read-only, without setuid and devices, ids mapped.

    `namespace` is of open_namespace() with these very maps, where there is one already. Raises OSError where the
    kernel or the file system cannot.
    """
    clone = clone_mount(directory)
    try:
        own = open_namespace(users, groups) if namespace is None else os.dup(namespace)
        try:
            # SECURITY: read-only and nosuid: the original is never written, and its setuid files give nobody anything.
            # test_workspace_original.py::test_blocks_write_through_clone
            set_mount_attributes(clone, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, user_namespace=own)
        finally:
            os.close(own)
        attach_mount(clone, str(target))
    finally:
        os.close(clone)


def open_namespace(users: IdMap, groups: IdMap) -> int:
    """A descriptor of a user namespace with these maps. No process stays in it."""
    pid = spawn_namespace_holder(_HOLDER_S)
    try:
        proc = Path(f"/proc/{pid}")
        (proc / "uid_map").write_text(users.lines())
        (proc / "gid_map").write_text(groups.lines())
        return os.open(proc / "ns" / "user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
