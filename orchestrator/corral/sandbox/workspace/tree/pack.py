"""The workspace as a tar stream, for engines that cannot see it, and the manifest of what was sent.

Regular files, directories and symlinks, masks in place; everything else is left out and told. GNU tar, because it
carries names of any length and any bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from corral.errors import WorkspaceError
from corral.sandbox.workspace.tree.walk import Found, TreeWalk

_CHUNK = 256 << 10
_BLOCK = 512
_PAGE = 4096


@dataclass(frozen=True)
class Packed:
    """One entry as it was sent."""

    path: bytes
    kind: str  # file dir symlink
    mode: int
    size: int
    mtime_ns: int
    sha256: str = ""
    target: bytes = b""
    is_masked: bool = False


@dataclass(frozen=True)
class Measure:
    """What a tree would take in the box."""

    bytes: int
    entries: int


def measure(root: int) -> Measure:
    """Size of everything below `root`, in whole pages."""
    total = entries = 0
    for found in TreeWalk(root):
        entries += 1
        if stat.S_ISREG(found.status.st_mode):
            total += -(-found.status.st_size // _PAGE) * _PAGE
    return Measure(total, entries)


@dataclass
class TreePack:
    """One stream of the tree below `root`. `masks`: content by path; None hides all below a directory."""

    root: int
    masks: Mapping[bytes, bytes | None]
    max_bytes: int
    max_entries: int
    record: Callable[[Packed], None]
    skipped: list[tuple[bytes, str]] = field(default_factory=list)
    sent_bytes: int = 0
    sent_entries: int = 0

    def __iter__(self) -> Iterator[bytes]:
        walk = TreeWalk(self.root)
        hidden: bytes | None = None
        for found in walk:
            if hidden is not None and found.path.startswith(hidden):
                continue
            if found.path in self.masks and self.masks[found.path] is None:
                hidden = found.path + b"/"
            yield from self._pack(found)
        self.skipped.extend(walk.problems)
        yield bytes(2 * _BLOCK)

    def _pack(self, found: Found) -> Iterator[bytes]:
        mode = found.status.st_mode
        if stat.S_ISDIR(mode):
            yield self._head(found, "dir", tarfile.DIRTYPE)
            self.record(_describe(found, "dir"))
        elif stat.S_ISLNK(mode):
            target = os.fsencode(os.readlink(found.name, dir_fd=found.directory))
            yield self._head(found, "symlink", tarfile.SYMTYPE, target=target)
            self.record(_describe(found, "symlink", size=len(target), target=target))
        elif not stat.S_ISREG(mode):
            self.skipped.append((found.path, f"a {_name_kind(mode)}"))
        elif found.path in self.masks:
            yield from self._pack_mask(found, self.masks[found.path] or b"")
        else:
            yield from self._pack_file(found)

    def _pack_mask(self, found: Found, content: bytes) -> Iterator[bytes]:
        yield self._head(found, "file", tarfile.REGTYPE, size=len(content))
        yield _pad(content)
        digest = hashlib.sha256(content).hexdigest()
        self.record(_describe(found, "file", size=len(content), sha256=digest, is_masked=True))

    def _pack_file(self, found: Found) -> Iterator[bytes]:
        """The size in the head is a promise: a file that shrinks meanwhile is filled up, and told."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(found.name, flags, dir_fd=found.directory)
        except OSError as error:
            self.skipped.append((found.path, error.strerror or "unreadable"))
            return
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                self.skipped.append((found.path, "replaced while it was read"))
                return
            size = status.st_size
            yield self._head(found, "file", tarfile.REGTYPE, size=size)
            digest = hashlib.sha256()
            left = size
            while left and (data := file.read(min(_CHUNK, left))):
                digest.update(data)
                left -= len(data)
                yield data
        while left:
            missing = bytes(min(_CHUNK, left))
            digest.update(missing)
            left -= len(missing)
            yield missing
            if not left:
                self.skipped.append((found.path, "it shrank while it was read: sent with zeros at its end"))
        yield bytes(-size % _BLOCK)
        self.record(_describe(found, "file", size=size, sha256=digest.hexdigest()))

    def _head(self, found: Found, kind: str, code: bytes, *, size: int = 0, target: bytes = b"") -> bytes:
        self.sent_entries += 1
        self.sent_bytes += size
        if self.sent_bytes > self.max_bytes or self.sent_entries > self.max_entries:
            raise WorkspaceError(
                f"the workspace is too large to copy: over {self.max_bytes} bytes or {self.max_entries} entries",
                hint="raise the workspace limits, name a smaller directory, or use overlay mode",
            )
        info = tarfile.TarInfo(os.fsdecode(found.path) + ("/" if kind == "dir" else ""))
        info.type, info.size, info.linkname = code, size, os.fsdecode(target)
        # Set-id bits would be the box user's own: of no use to it, and a surprise in a patch.
        info.mode = stat.S_IMODE(found.status.st_mode) & 0o1777
        info.mtime = found.status.st_mtime_ns // 1_000_000_000
        return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _describe(
    found: Found, kind: str, *, size: int = 0, sha256: str = "", target: bytes = b"", is_masked: bool = False
) -> Packed:
    status = found.status
    return Packed(found.path, kind, stat.S_IMODE(status.st_mode), size, status.st_mtime_ns, sha256, target, is_masked)


def _pad(content: bytes) -> bytes:
    return content + bytes(-len(content) % _BLOCK)


def _name_kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "FIFO"
    return "socket" if stat.S_ISSOCK(mode) else "device"
