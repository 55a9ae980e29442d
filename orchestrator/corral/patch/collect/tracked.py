"""Which paths the original's git index tracks, read by ourselves: git never runs on the user's `.git`.

Ignore rules do not cover tracked files. The index is only a claim of an untrusted repository: a broken one tracks
nothing. Submodules are its entries of mode 160000.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from corral.patch.tree import open_file, open_parent

MAX_INDEX = 256 << 20
MAX_SEARCHES = 100
_GITLINK = 0o160000
_MODES = frozenset({0o100644, 0o100755, 0o120000, _GITLINK})  # with their zero bytes, which no name can hold
_GITLINK_FIELD = struct.pack(">I", _GITLINK)
_LONG_NAME = 0xFFF
_MODE, _FLAGS = struct.Struct(">I"), struct.Struct(">H")


class TrackedPaths:
    """Names in `.git/index` of a tree, loaded when the first question needs it.

    The first questions are answered by searching the file, which costs a hundredth of parsing it; many, by parsing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._raw: bytes | None = None
        self._names: list[bytes] | None = None
        self._links: frozenset[bytes] = frozenset()
        self._searches = 0
        self._has_links: bool | None = None

    def has(self, path: bytes) -> bool:
        if self._is_parsed():
            return path == self._first_from(path)
        return any(True for _ in self._search(path + b"\0"))

    def has_below(self, directory: bytes) -> bool:
        """Whether anything below a directory is tracked."""
        prefix = directory + b"/"
        if self._is_parsed():
            return self._first_from(prefix).startswith(prefix)
        return any(True for _ in self._search(prefix))

    def is_submodule(self, path: bytes) -> bool:
        if self._has_links is None:  # asked of every directory, and most trees have none
            self._has_links = _GITLINK_FIELD in self._bytes()
        if not self._has_links:
            return False
        if self._is_parsed():
            return path in self._links
        return _GITLINK in self._search(path + b"\0")

    def _is_parsed(self) -> bool:
        self._searches += 1
        if self._searches > MAX_SEARCHES and self._names is None:
            entries = _parse(self._bytes())
            self._names = sorted({name for name, _ in entries})
            self._links = frozenset(name for name, mode in entries if mode == _GITLINK)
        return self._names is not None

    def _first_from(self, name: bytes) -> bytes:
        """The first name that does not sort before this one."""
        names = self._names or []
        place = bisect.bisect_left(names, name)
        return names[place] if place < len(names) else b""

    def _search(self, start: bytes) -> Iterator[int]:
        """Modes of the entries whose names start so (a whole name: with its NUL)."""
        data = self._bytes()
        place = data.find(start)
        while place >= 0:
            mode = _mode_at(data, place)
            if mode is not None:
                yield mode
            place = data.find(start, place + 1)

    def _bytes(self) -> bytes:
        if self._raw is None:
            self._raw = _expand(_load(self._root))
        return self._raw


def _mode_at(data: bytes, name_at: int) -> int | None:
    """The mode of the entry whose name starts here; None when this is the inside of something else."""
    for fixed in (62, 64):  # versions 2 and 3; an extended entry of version 3
        start = name_at - fixed
        if start < 12 or start % 8 != 4:  # entries start 8 apart, the first at 12
            continue
        mode, flags = _MODE.unpack_from(data, start + 24)[0], _FLAGS.unpack_from(data, start + 60)[0]
        length = flags & _LONG_NAME
        has_end = length == _LONG_NAME or data[name_at + length : name_at + length + 1] == b"\0"
        if mode in _MODES and has_end and bool(flags & 0x4000) is (fixed == 64):
            return int(mode)
    return None


def _load(root: Path) -> bytes:
    try:
        with open_parent(root, b".git/index") as (parent, name):
            descriptor = open_file(name, parent)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(MAX_INDEX)


def _version(data: bytes) -> int:
    return struct.unpack_from(">4sII", data)[1] if len(data) >= 12 and data[:4] == b"DIRC" else 0


def _expand(data: bytes) -> bytes:
    """Version 4 keeps names as differences: write them out, so that searching works for every version."""
    if _version(data) != 4:
        return data
    body = b"".join(
        bytes(24) + struct.pack(">I", mode) + bytes(32) + struct.pack(">H", min(len(name), 0xFFF)) + name
        + bytes(8 - (62 + len(name)) % 8)
        for name, mode in _parse(data)
    )  # fmt: skip
    return struct.pack(">4sII", b"DIRC", 2, struct.unpack_from(">I", data, 8)[0]) + body


def _parse(data: bytes) -> list[tuple[bytes, int]]:
    """Name and mode of each entry. Stops at the first thing that is not an entry."""
    version, found = _version(data), list[tuple[bytes, int]]()
    if version not in (2, 3, 4):
        return found
    count, offset, previous = struct.unpack_from(">I", data, 8)[0], 12, b""
    while len(found) < count and offset + 62 <= len(data):
        mode, flags = struct.unpack_from(">I", data, offset + 24)[0], struct.unpack_from(">H", data, offset + 60)[0]
        start = offset + (64 if version >= 3 and flags & 0x4000 else 62)
        if version == 4:
            strip, start = _varint(data, start)
            if strip > len(previous):
                break
        end = data.find(b"\0", start)
        if end < 0:
            break
        name = data[start:end]
        if version == 4:
            name, offset = previous[: len(previous) - strip] + name, end + 1
        else:
            offset += (end - offset + 8) & ~7
        previous = name
        found.append((name, mode))
    return found


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Git's offset encoding: seven bits a byte, each continuation adds one."""
    value = -1
    for place in range(offset, min(offset + 9, len(data))):
        value = ((value + 1) << 7) | (data[place] & 0x7F)
        if not data[place] & 0x80:
            return value, place + 1
    return 1 << 62, len(data)
