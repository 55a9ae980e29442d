"""What stands in the workspace at the paths of a patch: read by descriptors, identified by git's blob id."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from corral.patch.tree import MAX_LINK, lstat, open_file, open_parent, read_chunks

ZERO = "0" * 40
MAX_COMPARED = 1 << 30


@dataclass(frozen=True)
class Standing:
    """One existing entry. `mode` is git's; None for what git has no mode for (a directory, a FIFO)."""

    info: os.stat_result
    mode: int | None
    blob: str | None = None  # git's id of the content
    target: bytes | None = None

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.info.st_mode)

    @property
    def identity(self) -> tuple[int, int, int, int, int]:
        info = self.info
        return info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns


def look(root: Path, path: bytes) -> Standing | None:
    """What stands at a path; None where nothing does, or where a parent is no directory. Never follows a link."""
    try:
        with open_parent(root, path) as (parent, name):
            info = lstat(name, parent)
            if info is None:
                return None
            if stat.S_ISLNK(info.st_mode):
                target = os.readlink(name, dir_fd=parent)[:MAX_LINK]
                return Standing(info, 0o120000, blob_id([target], len(target)), target)
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_COMPARED:
                return Standing(info, None)
            descriptor = open_file(name, parent)
            try:
                info = os.fstat(descriptor)
                blob = blob_id(read_chunks(descriptor, info.st_size), info.st_size)
            finally:
                os.close(descriptor)
            return Standing(info, 0o100755 if info.st_mode & 0o100 else 0o100644, blob)
    except (FileNotFoundError, NotADirectoryError):
        return None


def look_briefly(root: Path, path: bytes) -> os.stat_result | None:
    try:
        with open_parent(root, path) as (parent, name):
            return lstat(name, parent)
    except (FileNotFoundError, NotADirectoryError):
        return None


def blob_id(chunks: Iterable[bytes], size: int) -> str:
    """Git's SHA-1 of a blob: an identity check against the patch's own header, not a security boundary."""
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def is_blob(known: str | None, blob: str | None) -> bool | None:
    """Whether content has the id a patch names, perhaps shortened. None when the patch names none."""
    if known is None or not known.strip("0"):
        return None
    return blob is not None and blob.startswith(known)
