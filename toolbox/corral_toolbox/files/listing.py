"""file.list: the names below a directory, sorted by bytes, within limits on entries, work and reply size."""

from __future__ import annotations

import heapq
import os
import stat

from corral_protocol.name import encode_name
from corral_toolbox.files.error_map import name_kind
from corral_toolbox.files.move import MAX_DEPTH
from corral_toolbox.files.params import Params, take_bool, take_count, take_name
from corral_toolbox.files.resolve import FileEnv, open_directory, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_ENTRIES = 5000
_MAX_SEEN = 200_000  # names looked at in one call; what is beyond is not counted
_MAX_REPLY = 500 << 10  # of JSON; a control frame holds 1 MiB


class _Listing:
    def __init__(self, *, depth: int, limit: int, include_hidden: bool) -> None:
        self.depth = depth
        self.limit = limit
        self.include_hidden = include_hidden
        self.entries: list[dict[str, object]] = []
        self.total = 0
        self.room = _MAX_REPLY
        self.truncated = False

    def walk(self, fd: int, prefix: bytes, level: int) -> None:
        """Add the entries of an open directory, then of its directories, each right after its own line."""
        names, count = self._take_names(fd)
        self.total += count
        self.truncated = self.truncated or count > len(names)
        for name in names:
            found = _look(fd, name)
            if found is None:
                continue  # gone since it was read
            self._add(fd, prefix + name, name, found)
            if stat.S_ISDIR(found.st_mode) and level < self.depth:
                if self.total >= _MAX_SEEN or len(self.entries) >= self.limit:
                    self.truncated = True
                else:
                    self._enter(fd, name, prefix + name + b"/", level)

    def _take_names(self, fd: int) -> tuple[list[bytes], int]:
        """The first names in byte order, at no more memory than the limit needs, and how many there are."""
        counter = [0]

        def read() -> Iterator[bytes]:
            with os.scandir(fd) as found:
                for entry in found:
                    name = os.fsencode(entry.name)
                    if self.include_hidden or not name.startswith(b"."):
                        counter[0] += 1
                        yield name

        return heapq.nsmallest(self.limit + 1, read()), counter[0]

    def _enter(self, fd: int, name: bytes, prefix: bytes, level: int) -> None:
        try:
            child = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except OSError:
            self.truncated = True  # unreadable, or no longer a directory
            return
        try:
            self.walk(child, prefix, level + 1)
        finally:
            os.close(child)

    def _add(self, fd: int, path: bytes, name: bytes, found: os.stat_result) -> None:
        target = b""
        if stat.S_ISLNK(found.st_mode):
            try:
                target = os.readlink(name, dir_fd=fd)
            except OSError:
                pass
        self.room -= 120 + _count_json(path) + _count_json(target)
        if len(self.entries) >= self.limit or self.room < 0:
            self.truncated = True
            return
        self.entries.append(
            {
                "path": encode_name(path),
                "kind": name_kind(found.st_mode),
                "size": found.st_size,
                "mode": stat.S_IMODE(found.st_mode),
                "target": encode_name(target),
            }
        )


def list_files(params: Params, env: FileEnv) -> dict[str, object]:
    """FileList -> Listing."""
    depth, limit = take_count(params, "depth"), take_count(params, "limit")
    listing = _Listing(
        depth=min(1 if depth is None else max(depth, 1), MAX_DEPTH),
        limit=min(1000 if limit is None else max(limit, 1), MAX_ENTRIES),
        include_hidden=take_bool(params, "include_hidden", default=True),
    )
    with resolve(env, take_name(params, "path", may_be_empty=True)) as place:
        fd = open_directory(place)
        try:
            listing.walk(fd, b"", 1)
        finally:
            os.close(fd)
        return {
            "path": encode_name(place.path),
            "entries": listing.entries,
            "truncated": listing.truncated,
            "total": listing.total,
        }


def _look(fd: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return None


def _count_json(name: bytes) -> int:
    """An upper bound of a name's size in JSON: plain ASCII as it is, everything else as \\uXXXX."""
    text = name.decode("latin-1")
    return len(name) if text.isascii() and text.isprintable() and not {'"', "\\"} & set(text) else 6 * len(name)
