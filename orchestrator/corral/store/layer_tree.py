"""Copies an overlay's upper directory into one that can lie below others: what it hides stays hidden.

The directory was written by untrusted code: no link is followed, no device but a whiteout and no set-id bit is taken.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from corral.errors import ConfigError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPAQUE = "user.overlay.opaque"
_CHUNK_BYTES = 16 << 20
_GIT = b".git"


@dataclass(frozen=True)
class TreeLimits:
    """Beyond these a tree is refused."""

    max_bytes: int
    max_entries: int = 2_000_000
    max_depth: int = 128


def copy_changes(
    source: Path, target: Path, *, skip: Collection[bytes], owner: tuple[int, int], limits: TreeLimits
) -> None:
    """Make `target` from `source`, all of it owned by `owner`; what `skip` names, and `.git` at the top, is left out.

    Raises ConfigError beyond the limits, OSError.
    """
    target.mkdir(mode=0o700)
    there, here = os.open(source, _DIRECTORY), os.open(target, _DIRECTORY)
    try:
        _Copy(frozenset(skip) | {_GIT}, owner, limits).directory(there, here, b"", 0)
    finally:
        os.close(there)
        os.close(here)


class _Copy:
    def __init__(self, skip: frozenset[bytes], owner: tuple[int, int], limits: TreeLimits) -> None:
        self._skip = skip
        self._owner = owner
        self._limits = limits
        self._bytes = 0
        self._entries = 0
        self._device = 0
        self._links: dict[tuple[int, int], bytes] = {}
        self._root = -1

    def directory(self, source: int, target: int, path: bytes, depth: int) -> None:
        """Everything below, then what the directory itself is."""
        if depth > self._limits.max_depth:
            raise ConfigError(f"the changes are nested more than {self._limits.max_depth} deep", hint="not a set-up")
        if depth == 0:
            self._root = target
        status = os.fstat(source)
        for text in os.listdir(source):
            name = os.fsencode(text)
            here = path + b"/" + name if path else name
            if here not in self._skip:
                self._entry(source, target, name, here, depth)
        with contextlib.suppress(OSError):  # not set
            if os.getxattr(source, _OPAQUE) == b"y":
                os.setxattr(target, _OPAQUE, b"y")
        os.fchown(target, *self._owner)
        os.fchmod(target, (stat.S_IMODE(status.st_mode) & 0o777) | 0o700)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _entry(self, source: int, target: int, name: bytes, path: bytes, depth: int) -> None:
        self._entries += 1
        if self._entries > self._limits.max_entries:
            raise ConfigError(f"the changes are more than {self._limits.max_entries:,} entries", hint="not a set-up")
        status = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            self._below(source, target, name, path, depth)
        elif stat.S_ISREG(status.st_mode):
            self._file(source, target, name, path)
        elif stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            os.chown(name, *self._owner, dir_fd=target, follow_symlinks=False)
        elif stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=target)  # a whiteout: the only device anybody may make

    def _below(self, source: int, target: int, name: bytes, path: bytes, depth: int) -> None:
        os.mkdir(name, 0o700, dir_fd=target)
        here = os.open(name, _DIRECTORY, dir_fd=target)
        try:
            there = os.open(name, _DIRECTORY, dir_fd=source)
            try:
                self.directory(there, here, path, depth + 1)
            finally:
                os.close(there)
        finally:
            os.close(here)

    def _file(self, source: int, target: int, name: bytes, path: bytes) -> None:
        there = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
        try:
            status = os.fstat(there)
            if self._link(status, target, name, path):
                return
            self._bytes += status.st_size
            if self._bytes > self._limits.max_bytes:
                raise ConfigError(
                    f"the changes are more than {self._limits.max_bytes} bytes", hint="raise limits.workspace_size"
                )
            here = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=target
            )
            try:
                while os.copy_file_range(there, here, _CHUNK_BYTES):
                    pass
                os.fchown(here, *self._owner)
                # SECURITY: a set-id bit would be the workspace owner's, who may be root
                # (test_a_layer_has_no_set_id_bit).
                os.fchmod(here, stat.S_IMODE(status.st_mode) & 0o777)
                os.utime(here, ns=(status.st_atime_ns, status.st_mtime_ns))
            finally:
                os.close(here)
        finally:
            os.close(there)

    def _link(self, status: os.stat_result, target: int, name: bytes, path: bytes) -> bool:
        """Whether this is another name of a file that was copied already."""
        if status.st_nlink < 2:
            return False
        known = self._links.setdefault((status.st_dev, status.st_ino), path)
        if known == path:
            return False
        os.link(known, name, src_dir_fd=self._root, dst_dir_fd=target, follow_symlinks=False)
        return True
