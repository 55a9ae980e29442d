"""Hard links and moves, which the upper directory tells only half.

With index=on the overlay keeps the hard links of the original together: writing to one name changes all of them, but
only the name written to stands in the upper directory. And a file that was copied up whose original is nowhere was
removed by the user while the box ran, unless the box moved it. Both are settled by the kernel's file handles, which the
overlay keeps in its origin marks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from corral.patch.collect.entry import file_handle, is_opaque, open_entry, opened_directory
from corral.patch.collect.selection import Selection
from corral.patch.name import MAX_DEPTH, is_git_component
from corral.patch.tree import Kind, Node, kind_of, list_names, lstat, open_parent, opened_root
from corral.schema.patch import Reason


@dataclass(frozen=True)
class Orphan:
    """A copied-up file without an original at its path, in a directory that changed while the box ran."""

    path: bytes
    node: Node
    origin: bytes


def settle_orphans(workspace: Path, orphans: list[Orphan], removed: list[bytes], selection: Selection) -> None:
    """A moved file is a new file; one whose original vanished is the user's removal, which is not undone."""
    if not orphans:
        return
    moved = {handle for path in removed if (handle := _handle(workspace, path)) is not None}
    for orphan in orphans:
        if orphan.origin in moved:
            selection.add(orphan.path, None, orphan.node)
        else:
            selection.leave_out(orphan.path, Reason.BASE_CHANGED, "the original was removed while the box ran")


def _handle(root: Path, path: bytes) -> bytes | None:
    try:
        with open_parent(root, path) as (parent, name):
            return file_handle(name, parent)
    except OSError:
        return None


def index_copies(work: Path | None) -> dict[bytes, Node]:
    """Copied-up files by the handle of their original, out of the overlay's own index, where we may read it.

    It knows one thing that the upper directory does not: a file written through one name that was then removed.
    """
    found = dict[bytes, Node]()
    if work is None:
        return found
    try:
        with opened_root(work / "index") as index:
            for name in list_names(index):
                info = lstat(name, index)
                if info is not None and stat.S_ISREG(info.st_mode):
                    with open_entry(work / "index", name, index, info) as copy:
                        if copy.origin is not None:
                            found[copy.origin] = copy.node
    except (FileNotFoundError, PermissionError):
        pass  # index=off, or an ordinary user: the marks in the upper directory are all there is
    return found


def find_aliases(
    workspace: Path, copies: dict[bytes, Node], lower: int, upper: int
) -> Iterator[tuple[bytes, Node | None, Node]]:
    """Names of the original that show a copied-up file without standing in the upper directory: path, before, after.
    What is closed to us has no before, and what lies in closed directories is not found.

    Costs a walk over the original, and happens only when a file with several names was copied up.
    """
    if copies:
        yield from _scan(workspace, copies, b"", lower, upper)


def _scan(
    workspace: Path, copies: dict[bytes, Node], path: bytes, lower: int, upper: int | None
) -> Iterator[tuple[bytes, Node | None, Node]]:
    for name in list_names(lower):
        low, up = lstat(name, lower), lstat(name, upper)
        here = path + b"/" + name if path else name
        if low is None or is_git_component(name) or here.count(b"/") >= MAX_DEPTH:
            continue
        kind = kind_of(low.st_mode)
        if kind is Kind.DIRECTORY and (up is None or stat.S_ISDIR(up.st_mode)):
            with (
                suppress(PermissionError),
                opened_directory(name, lower) as below,
                opened_directory(name, upper if up else None) as above,
            ):
                if below is not None and (above is None or not is_opaque(above)):
                    yield from _scan(workspace, copies, here, below, above)
        elif kind is Kind.FILE and up is None and low.st_nlink > 1:
            new = copies.get(file_handle(name, lower) or b"")
            if new is not None:
                yield here, _try_read(workspace, here, lower, low), new


def _try_read(workspace: Path, path: bytes, parent: int, info: os.stat_result) -> Node | None:
    try:
        with open_entry(workspace, path, parent, info) as opened:
            return opened.node
    except PermissionError:
        return None
