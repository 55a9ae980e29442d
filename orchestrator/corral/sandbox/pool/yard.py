"""One small shared file system per pool, with a directory for each box in it: what is mounted on that directory later
appears in the box, which has it as a slave. Root only.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corral.sandbox.container import HOSTS
from corral.sandbox.labels import owner_is_alive
from corral.sandbox.workspace.kernel.syscall import (
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID,
    attach_mount,
    make_mount,
    share_mount,
    unmount,
)

PLACE = Path("/run/corral/yards")
_OWNER = "owner.json"
_OPTIONS: list[tuple[str, str | None]] = [("size", "1m"), ("nr_inodes", "4096"), ("mode", "0700")]


@dataclass(frozen=True)
class Yard:
    path: Path

    @property
    def root(self) -> Path:
        return self.path / "m"

    @property
    def hosts(self) -> Path:
        """The /etc/hosts of its boxes."""
        return self.root / "hosts"

    @classmethod
    def create(cls, marks: Mapping[str, str]) -> Yard:
        """Raises OSError where this process may not mount."""
        PLACE.mkdir(mode=0o700, parents=True, exist_ok=True)
        yard = cls(PLACE / secrets.token_hex(8))
        yard.path.mkdir(mode=0o700)
        try:
            (yard.path / _OWNER).write_text(json.dumps(dict(marks)), encoding="utf-8")
            yard.root.mkdir(mode=0o700)
            mount = make_mount("tmpfs", _OPTIONS, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
            try:
                attach_mount(mount, str(yard.root))
            finally:
                os.close(mount)
            share_mount(str(yard.root))
            yard.hosts.write_text(HOSTS, encoding="ascii")
            yard.hosts.chmod(0o644)
        except OSError:
            yard.remove()
            raise
        return yard

    def add(self) -> Path:
        """A directory for one box."""
        point = self.root / secrets.token_hex(4)
        point.mkdir(mode=0o755)
        return point

    def release(self, point: Path) -> None:
        """The box is gone: take away what was mounted for it. Fine when it is gone already."""
        _detach(point)
        _remove(os.rmdir, point)

    def remove(self) -> None:
        """Take away all of it: whatever is mounted in here leaves the boxes too, which must be gone."""
        _detach(self.root)
        # SECURITY: never a removal of trees: below a mount that would not go lie the changes of somebody's run
        # (test_a_yard_that_is_still_mounted_keeps_what_lies_in_it).
        _remove(os.rmdir, self.root)
        _remove(os.unlink, self.path / _OWNER)
        _remove(os.rmdir, self.path)


def find_stale_yards() -> list[Yard]:
    """Those whose owner is gone: what a kill -9 left."""
    try:
        names = sorted(os.listdir(PLACE))
    except OSError:
        return []
    return [yard for yard in (Yard(PLACE / name) for name in names) if _is_stale(yard)]


def _is_stale(yard: Yard) -> bool:
    try:
        marks = json.loads((yard.path / _OWNER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # being made, or going, right now
    return isinstance(marks, dict) and not owner_is_alive(marks)


def _detach(point: Path) -> None:
    """Unmount until nothing is mounted there: a plain directory answers EINVAL."""
    for _ in range(4):
        try:
            unmount(str(point))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return
            raise


def _remove(how: object, path: Path) -> None:
    try:
        how(path)  # type: ignore[operator]
    except FileNotFoundError:
        return
