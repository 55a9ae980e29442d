"""The directory of short names that the engine is given instead of the user's paths.

Mount options know no quoting: a comma, colon or backslash in a path, a byte that is not UTF-8 or more than 4,096 bytes
in all fail with a misleading "no such file". Symlinks of ours have none of that.
"""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corral.sandbox.labels import owner_is_alive
from corral.sandbox.scratch import is_scratch
from corral.sandbox.workspace.kernel.syscall import unmount

PREFIX = "corral-"
SHARED = ("hosts", "passwd", "group")
_OWNER = "owner.json"
_PLAIN = re.compile(r"/[A-Za-z0-9._/-]{1,60}")
_YOUNG_S = 60  # without an owner file: being made right now


@dataclass(frozen=True)
class LinkDir:
    path: Path

    @property
    def lower(self) -> Path:
        return self.path / "l"

    @property
    def upper(self) -> Path:
        return self.path / "u"

    @property
    def layer(self) -> Path:
        return self.path / "s"

    @property
    def work(self) -> Path:
        return self.path / "w"

    def shared(self, name: str) -> Path:
        """A file of ours in the box (one of SHARED), by a path that tells nothing of the user's."""
        return self.path / name[0]

    @classmethod
    def create(cls, marks: Mapping[str, str], upper: Path, work: Path) -> LinkDir:
        """A new owner-only directory naming upper and work; the caller adds `lower`, and `layer`, links or mounts."""
        links = cls(Path(tempfile.mkdtemp(prefix=PREFIX, dir=_choose_parent())))
        (links.path / _OWNER).write_text(json.dumps(dict(marks)), encoding="utf-8")
        os.symlink(upper, links.upper)
        os.symlink(work, links.work)
        return links

    def remove(self) -> None:
        """Unmount what is mounted here and remove the directory. Fine when it is gone already."""
        for name in (self.lower, self.layer):
            _detach(name)
        for name in (self.lower, self.layer, self.upper, self.work, *map(self.shared, SHARED)):
            _remove_entry(name)
        _remove_entry(self.path / _OWNER)
        _remove_entry(self.path)


def find_stale_link_dirs() -> list[LinkDir]:
    """Link directories of this user whose owner is gone: what a kill -9 left."""
    found: list[LinkDir] = []
    for entry in os.scandir(_choose_parent()):
        # SECURITY: the parent is world-writable; only a directory of our own user is believed and removed.
        # test_workspace_leftovers.py::test_ignores_link_dir_of_another_user
        if entry.name.startswith(PREFIX) and not is_scratch(entry.name) and entry.is_dir(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            if status.st_uid == os.geteuid() and _is_stale(Path(entry.path), status.st_mtime):
                found.append(LinkDir(Path(entry.path)))
    return found


def _is_stale(path: Path, changed_at: float) -> bool:
    try:
        marks = json.loads((path / _OWNER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Not ours, or being made: ours has nothing but our names.
        names = set(os.listdir(path))
        return names <= {"l", "s", "u", "w", "h", "p", "g", _OWNER} and time.time() - changed_at > _YOUNG_S
    return isinstance(marks, dict) and not owner_is_alive(marks)


def _choose_parent() -> str:
    for parent in ("/tmp", os.path.realpath(tempfile.gettempdir())):
        if _PLAIN.fullmatch(parent) and os.access(parent, os.W_OK | os.X_OK):
            return parent
    raise OSError(errno.ENOENT, "no temporary directory with a plain name")


def _detach(point: Path) -> None:
    """Unmount until nothing is mounted there; a plain directory or link answers EINVAL."""
    for _ in range(4):
        try:
            unmount(str(point))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT, errno.EPERM, errno.ELOOP, errno.ENOTDIR):
                return
            raise


def _remove_entry(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    except FileNotFoundError:
        return
