"""tree.scan: what lies in the workspace, one JSON line per entry, for a host that cannot see the directory itself."""

from __future__ import annotations

import errno
import os
import stat
from itertools import islice

from corral_protocol.name import encode_name
from corral_toolbox.channel.wire import encode_json
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.error_map import name_kind, translate_os_error
from corral_toolbox.files.move import MAX_DEPTH
from corral_toolbox.files.params import Params, take_bool, take_name
from corral_toolbox.files.read import hash_file
from corral_toolbox.files.resolve import FileEnv, open_directory, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_toolbox.files.stream import Writer

_BATCH = 4096  # names of one directory held (and sorted) at once, on up to MAX_DEPTH levels
_MAX_HASHED = 4 << 30
_FLUSH_BYTES = 64 << 10


class _Scan:
    def __init__(self, writer: Writer, *, hash_files: bool) -> None:
        self.writer = writer
        self.hash_files = hash_files
        self.entries = 0
        self._lines: list[bytes] = []
        self._pending = 0

    def walk(self, fd: int, prefix: bytes, level: int) -> None:
        """Tell every entry of an open directory, then what is below it; links are told, not followed."""
        with os.scandir(fd) as found:
            while names := sorted(os.fsencode(entry.name) for entry in islice(found, _BATCH)):
                for name in names:
                    self._visit(fd, name, prefix + name, level)

    def _visit(self, fd: int, name: bytes, path: bytes, level: int) -> None:
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        sha256, target, error = "", b"", ""
        child = -1
        try:
            if stat.S_ISREG(found.st_mode) and self.hash_files:
                sha256 = _hash(fd, name)
                error = "" if sha256 else ErrorCode.TOO_LARGE
            elif stat.S_ISLNK(found.st_mode):
                target = os.readlink(name, dir_fd=fd)
            elif stat.S_ISDIR(found.st_mode) and level >= MAX_DEPTH:
                error = ErrorCode.TOO_LARGE
            elif stat.S_ISDIR(found.st_mode):
                child = _open_searchable(fd, name)
        except OSError as failure:
            error = translate_os_error(failure, path).code
        self._tell(path, found, sha256, target, error)
        if child >= 0:
            try:
                self.walk(child, path + b"/", level + 1)
            finally:
                os.close(child)

    def _tell(self, path: bytes, found: os.stat_result, sha256: str, target: bytes, error: str) -> None:
        entry = {
            "path": encode_name(path),
            "kind": name_kind(found.st_mode),
            "mode": found.st_mode,
            "size": found.st_size,
            "mtime_ns": found.st_mtime_ns,
            "sha256": sha256,
            "target": encode_name(target),
            "error": error,
        }
        if not self.hash_files:
            entry["blocks"] = found.st_blocks
        line = encode_json(entry) + b"\n"
        self.entries += 1
        self._lines.append(line)
        self._pending += len(line)
        if self._pending >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        if self._lines:
            self.writer.write(b"".join(self._lines))
        self._lines, self._pending = [], 0


def scan_tree(params: Params, env: FileEnv, writer: Writer) -> dict[str, object]:
    """TreeScan -> TreeScanReply. Entries come sorted within batches of 4096 names per directory."""
    scan = _Scan(writer, hash_files=take_bool(params, "hash_files", default=True))
    _let_in(env.workspace)
    with resolve(env, take_name(params, "path", may_be_empty=True)) as place:
        fd = open_directory(place)
        try:
            scan.walk(fd, b"", 1)
        finally:
            os.close(fd)
    scan.flush()
    return {"entries": scan.entries}


def _let_in(workspace: bytes) -> None:
    """The user may have closed the workspace to itself: then nothing of what it changed would be seen."""
    mode = stat.S_IMODE(os.stat(workspace).st_mode)
    if mode & 0o500 != 0o500:
        try:
            os.chmod(workspace, mode | 0o500)
        except PermissionError:
            return  # not its own: the walk says what it may not


def _open_searchable(parent_fd: int, name: bytes) -> int:
    """A directory whose names can be listed and looked at: to read it is one right, to search it another."""
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    try:
        os.stat(".", dir_fd=fd)
    except OSError:
        os.close(fd)
        raise
    return fd


def _hash(parent_fd: int, name: bytes) -> str:
    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=parent_fd)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ENXIO, "not a regular file any more")
        return hash_file(fd, found.st_size, _MAX_HASHED)
    finally:
        os.close(fd)
