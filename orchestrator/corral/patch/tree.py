"""Reading a tree nobody trusts: by directory descriptors, never following a link, every read bounded.

A `Node` is one side of a change: what stands at a path, and how to read it later. Reading later checks that it is still
what was seen, since the original is the user's live directory.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from corral.errors import PatchConflict, PatchError
from corral.schema.visible import visible

CHUNK = 1 << 20
MAX_LINK = 4096  # PATH_MAX: no symlink target is longer

_NAMES = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()  # as os.fsencode, which is slow for many
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class Kind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    SPECIAL = "special"


@dataclass(frozen=True, slots=True)
class Node:
    """One side of a change."""

    kind: Kind
    mode: int  # permission bits, as stat gives them
    size: int
    ctime_ns: int
    read: Callable[[], Iterator[bytes]]  # exactly `size` bytes in chunks, or PatchError
    detail: str = ""  # for special files: which
    xattrs: frozenset[tuple[str, bytes]] = frozenset()
    digest: str = ""  # SHA-256 that was announced for content still in the box

    @property
    def exportable(self) -> bool:
        return self.kind in (Kind.FILE, Kind.SYMLINK)

    @property
    def git_mode(self) -> int:
        """The mode git gives it: 0o100644, 0o100755 or 0o120000."""
        if self.kind is Kind.SYMLINK:
            return 0o120000
        return 0o100755 if self.mode & 0o100 else 0o100644


def kind_of(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY
    return Kind.SYMLINK if stat.S_ISLNK(mode) else Kind.SPECIAL


def special_name(mode: int) -> str:
    """What a special file is, in a word."""
    for test, name in ((stat.S_ISFIFO, "fifo"), (stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "character device")):
        if test(mode):
            return name
    return "block device" if stat.S_ISBLK(mode) else "special file"


def open_root(root: Path) -> int:
    """Descriptor of a tree's root. The root's own path is ours or the user's: links in it are fine."""
    return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


@contextmanager
def opened_root(root: Path) -> Iterator[int]:
    descriptor = open_root(root)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_directory(name: bytes, parent: int) -> int:
    # SECURITY: O_NOFOLLOW: a link here would lead the walk out of the tree (test_never_follows_links_in_the_upper).
    return os.open(name, _DIRECTORY, dir_fd=parent)


def open_file(name: bytes, parent: int) -> int:
    """Descriptor of a regular file: never blocks on a FIFO, never opens a device for use, never follows."""
    descriptor = os.open(name, _FILE, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "not a regular file")
    return descriptor


@contextmanager
def open_parent(root: Path, path: bytes) -> Iterator[tuple[int, bytes]]:
    """The descriptor of the directory that holds `path`, reached component by component, and the last name."""
    with opened_root(root) as descriptor, opened_parent(descriptor, path) as found:
        yield found


@contextmanager
def opened_parent(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """The same from the root's descriptor."""
    *parents, name = path.split(b"/")
    current = os.dup(root)
    try:
        for part in parents:
            below = open_directory(part, current)
            os.close(current)
            current = below
        yield current, name
    finally:
        os.close(current)


def lstat(name: bytes, parent: int | None) -> os.stat_result | None:
    """What stands at a name, or None. A missing directory holds nothing."""
    if parent is None:
        return None
    try:
        return os.lstat(name, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_names(directory: int) -> list[bytes]:
    """The names in a directory, sorted by their bytes."""
    return sorted([name.encode(*_NAMES) for name in os.listdir(directory)])


def read_chunks(descriptor: int, size: int) -> Iterator[bytes]:
    """Exactly `size` bytes; a file that got shorter meanwhile is an error."""
    left = size
    while left:
        data = os.read(descriptor, min(left, CHUNK))
        if not data:
            raise PatchError("a file got shorter while it was read", hint="run the export again")
        left -= len(data)
        yield data


def _identity(info: os.stat_result) -> tuple[int, int, int, int]:
    return info.st_ino, info.st_mode, info.st_size, info.st_ctime_ns


def file_reader(root: Path, path: bytes, seen: os.stat_result) -> Callable[[], Iterator[bytes]]:
    """How to read a regular file later, provided it is still the one that was seen."""

    def read() -> Iterator[bytes]:
        try:
            with open_parent(root, path) as (parent, name):
                descriptor = open_file(name, parent)
        except OSError as error:
            raise _moved(path) from error
        try:
            if _identity(os.fstat(descriptor)) != _identity(seen):
                raise _moved(path)
            yield from read_chunks(descriptor, seen.st_size)
        finally:
            os.close(descriptor)

    return read


def _moved(path: bytes) -> PatchConflict:
    return PatchConflict(
        f"{visible(path)!r} changed while it was read", hint="run the export again", paths=(visible(path),)
    )


def bytes_reader(data: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter((data,) if data else ())


def nothing_reader() -> Iterator[bytes]:
    return iter(())
