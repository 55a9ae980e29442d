"""Both sides of a small change set as one pack, written without git.

Git's start is most of what the export of a few files costs, so one git process less is a third of it. A large change
set goes through git fast-import, which compresses and never holds a whole file. One pack is two files, where loose
objects are a directory each: making and removing those costs more than all they hold.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from corral.patch.collect.selection import Change
from corral.patch.tree import Node

MAX_CHANGES = 64
MAX_BYTES = 1 << 20
_TREE, _BLOB = (2, b"tree"), (3, b"blob")
_TREE_MODE = b"40000"
_WORD = struct.Struct(">I")

_Tree = dict[bytes, "tuple[bytes, bytes] | _Tree"]
"""A name to a blob (mode, id), or to the tree below it."""


def is_small(changes: tuple[Change, ...]) -> bool:
    sizes = [node.size for change in changes for node in (change.before, change.after) if node is not None]
    return len(changes) <= MAX_CHANGES and sum(sizes) <= MAX_BYTES


def write_trees(git_dir: Path, changes: Iterable[Change]) -> tuple[str, str]:
    """Write blobs and trees; the ids of the trees before and after."""
    before: _Tree = {}
    after: _Tree = {}
    pack = _Pack()
    for change in changes:
        for tree, node in ((before, change.before), (after, change.after)):
            if node is not None:
                _insert(tree, change.path, _add_blob(pack, node))
    sides = _add_tree(pack, before).hex(), _add_tree(pack, after).hex()
    pack.write(git_dir / "objects" / "pack")
    return sides


def _insert(tree: _Tree, path: bytes, blob: tuple[bytes, bytes]) -> None:
    *parents, name = path.split(b"/")
    for part in parents:
        below = tree.setdefault(part, {})
        assert isinstance(below, dict)  # in one state a path is a file or a directory
        tree = below
    tree[name] = blob


def _add_blob(pack: _Pack, node: Node) -> tuple[bytes, bytes]:
    return b"%06o" % node.git_mode, pack.add(_BLOB, b"".join(node.read()))


def _add_tree(pack: _Pack, tree: _Tree) -> bytes:
    rows = list[tuple[bytes, bytes]]()
    for name, item in tree.items():
        if isinstance(item, dict):
            # Git sorts a directory as if its name ended in a slash.
            rows.append((name + b"/", b"%s %s\0%s" % (_TREE_MODE, name, _add_tree(pack, item))))
        else:
            rows.append((name, b"%s %s\0%s" % (item[0], name, item[1])))
    return pack.add(_TREE, b"".join(row for _, row in sorted(rows)))


class _Pack:
    """A pack (version 2) and its index (version 2), in memory: gitformat-pack(5)."""

    def __init__(self) -> None:
        self._data = bytearray(b"PACK" + _WORD.pack(2) + _WORD.pack(0))
        self._places: dict[bytes, tuple[int, int]] = {}  # by id: checksum and offset

    def add(self, kind: tuple[int, bytes], content: bytes) -> bytes:
        """Add an object, once; its id."""
        number, word = kind
        name = _hash(b"%s %d\0" % (word, len(content)), content)
        if name not in self._places:
            # Not compressed: it is at most a megabyte, and read once.
            packed = _head(number, len(content)) + zlib.compress(content, 0)
            self._places[name] = zlib.crc32(packed), len(self._data)
            self._data += packed
        return name

    def write(self, directory: Path) -> None:
        """Write both files; the index last, since it is what git looks for."""
        _WORD.pack_into(self._data, 8, len(self._places))
        checksum = _hash(self._data)
        index = self._index() + checksum
        place = os.fspath(directory / f"pack-{checksum.hex()}")
        for suffix, data in ((".pack", self._data + checksum), (".idx", index + _hash(index))):
            with open(place + suffix, "wb", buffering=0) as file:
                file.write(data)

    def _index(self) -> bytes:
        names = sorted(self._places)
        counts = [0] * 256
        for name in names:
            counts[name[0]] += 1
        total, fanout = 0, b""
        for count in counts:
            total += count
            fanout += _WORD.pack(total)
        parts = [b"\377tOc", _WORD.pack(2), fanout, *names]
        for field in (0, 1):
            parts += [_WORD.pack(self._places[name][field]) for name in names]
        return b"".join(parts)


def _hash(*parts: bytes | bytearray) -> bytes:
    digest = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _head(kind: int, size: int) -> bytes:
    """Kind and size of an object: four bits of the size first, then seven in a byte."""
    head = bytearray()
    byte, size = kind << 4 | size & 15, size >> 4
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    head.append(byte)
    return bytes(head)
