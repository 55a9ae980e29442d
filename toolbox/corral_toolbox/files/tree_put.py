"""tree.put: a tar stream from the host into the workspace, created entry by entry, never by extractall.

The sender is trusted, the place it goes to is not: nothing is created through a link, wherever it came from.
"""

from __future__ import annotations

import errno
import os

from corral_protocol.failure import WireError
from corral_toolbox.files.atomic import write_all
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.error_map import make_error
from corral_toolbox.files.params import Params, invalid, take_int
from corral_toolbox.files.resolve import FileEnv, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    import tarfile
    from typing import IO

    from corral_toolbox.files.stream import Reader

_CHUNK_BYTES = 256 << 10
_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_TRAILER = 1 << 20  # padding after the archive's end mark


class _Unpack:
    def __init__(self, root_fd: int, max_bytes: int, max_entries: int) -> None:
        self.root_fd = root_fd
        self.max_bytes = max_bytes
        self.max_entries = max_entries
        self.entries = 0
        self.bytes = 0
        self._late_modes: list[tuple[list[bytes], int, int]] = []
        self._last: tuple[list[bytes], int] = ([], -1)

    def close(self) -> None:
        """Give the kept directory back."""
        if self._last[1] >= 0:
            os.close(self._last[1])
        self._last = ([], -1)

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Create one entry."""
        names = _split_name(member.name)
        self.entries += 1
        self.bytes += member.size if member.isreg() else 0
        if self.entries > self.max_entries or self.bytes > self.max_bytes:
            raise WireError(
                ErrorCode.TOO_LARGE,
                f"the tree is larger than {self.max_entries} entries or {self.max_bytes} bytes",
                {"entries": self.entries, "bytes": self.bytes},
            )
        if not names:
            return  # the root itself
        if member.isdir():
            self._open_dir(names)
            self._late_modes.append((names, member.mode & 0o777, _read_time(member)))
            return
        parent = self._open_dir(names[:-1])
        if member.isreg():
            self._put_file(archive, member, parent, names[-1])
        elif member.issym():
            _make_way(parent, names[-1])
            os.symlink(_encode(member.linkname), names[-1], dir_fd=parent)
        elif member.islnk():
            self._link(_split_name(member.linkname), parent, names[-1])
        else:
            raise invalid(f"the archive holds something that is no file, directory or link: {member.name!a}")

    def finish(self) -> None:
        """Set the modes of directories, deepest first: a directory may be read-only for its owner."""
        for names, mode, mtime_ns in sorted(self._late_modes, key=lambda late: -len(late[0])):
            fd = self._open_dir(names)
            os.utime(fd, ns=(mtime_ns, mtime_ns))
            os.fchmod(fd, mode)
        self.close()

    def _put_file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: bytes) -> None:
        _make_way(parent, name)
        # SECURITY: EXCL and NOFOLLOW, or a link that appears here just now is written through (test_tree.py).
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=parent)
        try:
            source = archive.extractfile(member)
            left = member.size
            while source is not None and left and (chunk := source.read(min(left, _CHUNK_BYTES))):
                write_all(fd, chunk)
                left -= len(chunk)
            if left:
                raise invalid(f"the stream ended inside {member.name!a}")
            os.fchmod(fd, member.mode & 0o777)
            os.utime(fd, ns=(_read_time(member),) * 2)
        finally:
            os.close(fd)

    def _link(self, target: list[bytes], parent: int, name: bytes) -> None:
        if not target:
            raise invalid("a hard link in the archive points to nothing")
        kept = os.dup(parent)  # opening the target's directory may close the kept one
        try:
            source = self._open_dir(target[:-1])
            _make_way(kept, name)
            os.link(target[-1], name, src_dir_fd=source, dst_dir_fd=kept, follow_symlinks=False)
        finally:
            os.close(kept)

    def _open_dir(self, names: list[bytes]) -> int:
        """A directory below the root, created where missing, never through a link; the last one is kept open."""
        if self._last[1] >= 0 and self._last[0] == names:
            return self._last[1]
        self.close()
        fd = os.dup(self.root_fd)
        try:
            for name in names:
                child = _enter_dir(fd, name)
                os.close(fd)
                fd = child
        except BaseException:
            os.close(fd)
            raise
        self._last = (names, fd)
        return fd


def put_tree(params: Params, env: FileEnv, reader: Reader) -> dict[str, object]:
    """TreePut -> TreePutReply."""
    import tarfile  # late: 10 ms of start-up that only workspace mode `copy` needs

    max_bytes, max_entries = take_int(params, "max_bytes"), take_int(params, "max_entries")
    with resolve(env, env.workspace) as place:
        root_fd = os.open(place.name, _OPEN_DIR, dir_fd=place.parent_fd)
    unpack = _Unpack(root_fd, max_bytes, max_entries)
    try:
        stream: IO[bytes] = reader  # type: ignore[assignment]  # in mode r| only read() is called
        with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
            while (member := archive.next()) is not None:
                unpack.add(archive, member)
                archive.members = []  # type: ignore[attr-defined]  # or every header stays in memory
            unpack.finish()
        _drain(reader)
    except tarfile.TarError as error:
        raise invalid(f"the stream is not a tar archive: {error}") from error
    finally:
        unpack.close()
        os.close(root_fd)
    return {"entries": unpack.entries, "bytes": unpack.bytes}


def _drain(reader: Reader) -> None:
    left = _MAX_TRAILER
    while chunk := reader.read(_CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            raise invalid("the stream goes on after the end of the archive")


def _enter_dir(fd: int, name: bytes) -> int:
    try:
        os.mkdir(name, 0o755, dir_fd=fd)
    except FileExistsError:
        pass
    try:
        return os.open(name, _OPEN_DIR, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise make_error(
                ErrorCode.OUTSIDE_WORKSPACE, name, "a link or file stands where a directory should"
            ) from error
        raise


def _make_way(parent: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def _split_name(name: str) -> list[bytes]:
    raw = _encode(name)
    names = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if raw.startswith(b"/") or b".." in names or b"\0" in raw:
        raise make_error(ErrorCode.OUTSIDE_WORKSPACE, raw, "an archive member must lie inside the workspace")
    return names


def _encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _read_time(member: tarfile.TarInfo) -> int:
    return int(member.mtime * 1_000_000_000)
