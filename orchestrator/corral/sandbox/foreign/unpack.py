"""Makes a directory of this machine out of a tar stream that an engine made of an image: every name in it is a claim.

Nothing is created through a link, nothing outside the directory; no device, no owner, no set-id bit comes along.
"""

from __future__ import annotations

import errno
import io
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass

from corral.errors import ImageError
from corral.schema.visible import visible

_CHUNK_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# SECURITY: EXCL and NOFOLLOW, or a link of the stream is written through (test_an_archive_never_writes_through_a_link).
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_END = bytes(1024)
_RESERVE_BYTES = 512 << 20
"""What stays free on the disk: the records of the runs go on."""
MAX_ENTRIES = 5_000_000
MAX_DEPTH = 256
_MAX_HEADER_BYTES = 4 << 20
"""Of the records that stand before an entry, for long names and attributes: tarfile reads one whole into memory."""
_LAST_S = (1 << 63) // 10**9 - 1
"""The latest time that a file can have, counted in nanoseconds."""


@dataclass
class Unpacked:
    """What came out."""

    entries: int = 0
    bytes: int = 0
    skipped: int = 0
    """Devices, sockets and FIFOs."""


def unpack_tree(chunks: Iterable[bytes], target: int) -> Unpacked:
    """Everything below the archive's one top directory into the open directory `target`. Raises ImageError, OSError."""
    stream = _Stream(chunks)
    try:
        # In mode r| the archive is read once, front to back, whatever its size.
        with tarfile.open(
            fileobj=stream, mode="r|", tarinfo=_Member, encoding="utf-8", errors="surrogateescape"
        ) as archive:
            unpacking = _Unpacking(archive, target)
            for member in archive:
                unpacking.add(member)
                archive.members = []  # type: ignore[attr-defined]  # or every header stays in memory
            unpacking.finish()
        stream.finish()
    except (tarfile.TarError, EOFError, ValueError, RecursionError) as error:
        words = visible(str(error), limit=200)
        raise ImageError(f"the engine's archive of the image cannot be read: {words}") from error
    return unpacking.done


class _Member(tarfile.TarInfo):
    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """What tarfile calls with every raw header, before it reads what follows it."""
        # SECURITY: test_a_header_has_a_largest_size
        if self.type not in tarfile.REGULAR_TYPES and not 0 <= self.size <= _MAX_HEADER_BYTES:
            raise tarfile.TarError(f"a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return]


class _Stream(io.RawIOBase):
    """Chunks of any size, read in pieces of any size."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""
        self._last = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts, left = [], size
        while left:
            if not self._rest:
                self._rest = next(self._chunks, b"")
                if not self._rest:
                    break
            parts.append(self._rest[:left])
            self._rest = self._rest[left:]
            left -= len(parts[-1])
        data = b"".join(parts)
        self._last = (self._last + data)[-len(_END) :]
        return data

    def finish(self) -> None:
        """Read to the end. Raises EOFError when the archive has none: it is taken for one by tarfile."""
        while self.read(_CHUNK_BYTES):
            pass
        if self._last != _END:
            raise EOFError("it breaks off")


class _Unpacking:
    def __init__(self, archive: tarfile.TarFile, target: int) -> None:
        self.done = Unpacked()
        self._archive = archive
        self._target = target
        self._late_modes: list[tuple[list[bytes], int, int]] = []

    def add(self, member: tarfile.TarInfo) -> None:
        """Create one entry; the top directory itself is `target`."""
        if member.size < 0:
            raise tarfile.TarError(f"a file of {member.size} bytes")
        names = _split(member.name)[1:]
        if not names:
            if not member.isdir():
                raise NotADirectoryError(errno.ENOTDIR, "not a directory")
            self._late_modes.append(([], member.mode & 0o777, _read_time(member)))
            return
        if len(names) > MAX_DEPTH:
            raise ImageError(f"the tree is nested more than {MAX_DEPTH} deep", hint="name a smaller directory")
        self._count(member)
        if member.isdir():
            os.close(self._enter(names))
            self._late_modes.append((names, member.mode & 0o777, _read_time(member)))
        elif member.isreg() or member.issym() or member.islnk():
            parent = self._enter(names[:-1])
            try:
                self._put(member, parent, names[-1])
            finally:
                os.close(parent)
        else:
            self.done.skipped += 1

    def finish(self) -> None:
        """Modes and times of directories, deepest first; their owner, later the box's user, may always enter."""
        for names, mode, time_ns in sorted(self._late_modes, key=lambda late: -len(late[0])):
            directory = self._enter(names)
            try:
                os.utime(directory, ns=(time_ns, time_ns))
                os.fchmod(directory, mode | 0o700)
            finally:
                os.close(directory)

    def _count(self, member: tarfile.TarInfo) -> None:
        self.done.entries += 1
        self.done.bytes += member.size if member.isreg() else 0
        if self.done.entries > MAX_ENTRIES:
            raise ImageError(f"the tree has more than {MAX_ENTRIES:,} entries", hint="name a smaller directory")
        if (member.isreg() and member.size > _CHUNK_BYTES) or self.done.entries % 1000 == 1:
            disk = os.fstatvfs(self._target)
            if disk.f_bavail * disk.f_frsize - member.size < _RESERVE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _put(self, member: tarfile.TarInfo, parent: int, name: bytes) -> None:
        if member.issym():
            os.symlink(_encode(member.linkname), name, dir_fd=parent)
        elif member.islnk():
            self._link(_split(member.linkname)[1:], parent, name)
        else:
            self._write(member, parent, name)

    def _write(self, member: tarfile.TarInfo, parent: int, name: bytes) -> None:
        file = os.open(name, _NEW_FILE, 0o600, dir_fd=parent)
        try:
            source = self._archive.extractfile(member)
            assert source is not None
            left = member.size
            while left and (chunk := source.read(min(left, _CHUNK_BYTES))):
                left -= len(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(file, view) :]
            if left:
                raise EOFError(f"it ends inside {member.name!a}")
            os.utime(file, ns=(_read_time(member),) * 2)
            os.fchmod(file, member.mode & 0o777)
        finally:
            os.close(file)

    def _link(self, target: list[bytes], parent: int, name: bytes) -> None:
        if not target:
            raise tarfile.TarError(f"a hard link that leads nowhere: {name!r}")
        source = self._enter(target[:-1])
        try:
            os.link(target[-1], name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(source)

    def _enter(self, names: list[bytes]) -> int:
        """A directory below the target, made where it is missing, never through a link."""
        directory = os.dup(self._target)
        try:
            for name in names:
                try:
                    os.mkdir(name, 0o700, dir_fd=directory)
                except FileExistsError:
                    pass
                below = os.open(name, _DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = below
        except BaseException:
            os.close(directory)
            raise
        return directory


def _split(name: str) -> list[bytes]:
    raw = _encode(name)
    names = [part for part in raw.split(b"/") if part not in (b"", b".")]
    # SECURITY: test_an_archive_never_leaves_its_directory
    if raw.startswith(b"/") or b".." in names or b"\0" in raw:
        raise tarfile.TarError(f"a name that leads outside: {raw!r}")
    return names


def _encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _read_time(member: tarfile.TarInfo) -> int:
    try:
        seconds = int(member.mtime)
    except (ValueError, OverflowError):  # an extended header may say nan or inf
        seconds = 0
    return max(-_LAST_S, min(seconds, _LAST_S)) * 1_000_000_000
