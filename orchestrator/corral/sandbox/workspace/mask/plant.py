"""Putting the placeholders into the upper directory before the box sees it."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass

from corral.sandbox.workspace.kernel.idmap import IdMap
from corral.sandbox.workspace.mask.search import Secret

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPAQUE = "user.overlay.opaque"


@dataclass(frozen=True)
class Planter:
    """Writes below `upper`, an open directory, what shall cover files below `lower`, another one."""

    lower: int
    upper: int
    users: IdMap
    groups: IdMap

    def plant(self, secret: Secret) -> bool:
        """Cover one secret. False when the upper directory, left by an earlier box, has something else there."""
        parent, _, name = secret.path.rpartition("/")
        directory = self._make_parents(parent)
        if directory is None:
            return False
        try:
            return self._make_entry(directory, name, secret)
        except FileExistsError:
            return False
        finally:
            os.close(directory)

    def _make_entry(self, directory: int, name: str, secret: Secret) -> bool:
        if secret.content is None:
            os.mkdir(name, 0o700, dir_fd=directory)
            made = os.open(name, _DIRECTORY, dir_fd=directory)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            made = os.open(name, flags, 0o600, dir_fd=directory)
        try:
            if secret.content is None:
                os.setxattr(made, _OPAQUE, b"y")
            else:
                _write_all(made, secret.content)
            self._copy_looks(made, secret.status)
        finally:
            os.close(made)
        return True

    def _make_parents(self, path: str) -> int | None:
        """The upper directory `path`, its missing parts made like those below. None where it is something else."""
        current = os.dup(self.upper)
        done = ""
        for name in path.split("/") if path else []:
            done = f"{done}/{name}" if done else name
            try:
                following = self._enter(current, name, done)
            except OSError:
                # A whiteout, a file or a link that a box put there: what lay below is hidden or gone already.
                return None
            finally:
                os.close(current)
            current = following
        return current

    def _enter(self, directory: int, name: str, path: str) -> int:
        try:
            return os.open(name, _DIRECTORY, dir_fd=directory)
        except FileNotFoundError:
            pass
        os.mkdir(name, 0o700, dir_fd=directory)
        made = os.open(name, _DIRECTORY, dir_fd=directory)
        self._copy_looks(made, os.stat(path, dir_fd=self.lower, follow_symlinks=False))
        return made

    def _copy_looks(self, made: int, status: os.stat_result) -> None:
        self.copy_owner(made, status)
        # Owner first: a change of owner takes setuid and setgid away, and so it shall, for files.
        os.fchmod(made, stat.S_IMODE(status.st_mode) & (0o7777 if stat.S_ISDIR(status.st_mode) else 0o777))
        os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))

    def copy_owner(self, made: int, status: os.stat_result) -> None:
        """Give the owner as the box shall see it; a user without that right keeps its own."""
        with contextlib.suppress(PermissionError):
            os.fchown(made, self.users.view(status.st_uid), self.groups.view(status.st_gid))


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
