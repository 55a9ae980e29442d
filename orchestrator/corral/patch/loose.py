"""Both sides of a small change set as loose objects, written without git.

Git's start is most of what the export of a few files costs, so one git process less is a third of it. A large change
set goes through git fast-import: one pack is then quicker than many files.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from corral.patch.collect.selection import Change
from corral.patch.tree import Node

MAX_CHANGES = 64
MAX_BYTES = 1 << 20
_TREE_MODE = b"40000"

_Tree = dict[bytes, "tuple[bytes, bytes] | _Tree"]
"""A name to a blob (mode, id), or to the tree below it."""


def is_small(changes: tuple[Change, ...]) -> bool:
    sizes = [node.size for change in changes for node in (change.before, change.after) if node is not None]
    return len(changes) <= MAX_CHANGES and sum(sizes) <= MAX_BYTES


def write_trees(git_dir: Path, changes: Iterable[Change]) -> tuple[str, str]:
    """Write blobs and trees; the ids of the trees before and after."""
    before: _Tree = {}
    after: _Tree = {}
    objects = os.fspath(git_dir / "objects")
    for change in changes:
        for tree, node in ((before, change.before), (after, change.after)):
            if node is not None:
                _insert(tree, change.path, _write_blob(objects, node))
    return _write_tree(objects, before).hex(), _write_tree(objects, after).hex()


def _insert(tree: _Tree, path: bytes, blob: tuple[bytes, bytes]) -> None:
    *parents, name = path.split(b"/")
    for part in parents:
        below = tree.setdefault(part, {})
        assert isinstance(below, dict)  # in one state a path is a file or a directory
        tree = below
    tree[name] = blob


def _write_blob(objects: str, node: Node) -> tuple[bytes, bytes]:
    return b"%06o" % node.git_mode, _write(objects, b"blob", b"".join(node.read()))


def _write_tree(objects: str, tree: _Tree) -> bytes:
    rows = list[tuple[bytes, bytes]]()
    for name, item in tree.items():
        if isinstance(item, dict):
            # Git sorts a directory as if its name ended in a slash.
            rows.append((name + b"/", b"%s %s\0%s" % (_TREE_MODE, name, _write_tree(objects, item))))
        else:
            rows.append((name, b"%s %s\0%s" % (item[0], name, item[1])))
    return _write(objects, b"tree", b"".join(row for _, row in sorted(rows)))


def _write(objects: str, kind: bytes, content: bytes) -> bytes:
    data = b"%s %d\0%s" % (kind, len(content), content)
    digest = hashlib.sha1(data, usedforsecurity=False)
    name = digest.hexdigest()
    directory = f"{objects}/{name[:2]}"
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    try:
        descriptor = os.open(f"{directory}/{name[2:]}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return digest.digest()
    with os.fdopen(descriptor, "wb") as file:
        file.write(zlib.compress(data, 1))
    return digest.digest()
