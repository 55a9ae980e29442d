"""Counts what changed below a directory that is listed as a whole: how many entries, how many bytes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corral.patch.collect.entry import Opened, is_opaque, is_whiteout, open_entry, opened_directory
from corral.patch.name import MAX_DEPTH
from corral.patch.tree import Kind, Node, kind_of, list_names, lstat


@dataclass(frozen=True)
class Count:
    entries: int = 0
    size: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.entries + other.entries, self.size + other.size)

    def __str__(self) -> str:
        return f"{self.entries:,} {'entry' if self.entries == 1 else 'entries'}, {self.size:,} bytes"


@dataclass(frozen=True)
class Tally:
    """Counts in the upper directory. Rewritten files with the old content and untouched placeholders are no change."""

    workspace: Path
    upper: Path
    masked: frozenset[bytes]
    started_ns: int
    visit: Callable[[int], None]  # raises when there is too much
    note: Callable[[Opened], None]  # told of every copied-up file: another name of it may be exported

    def count(
        self, path: bytes, upper: int, lower: int | None, *, placeholder: bool = False, merged: bool = True
    ) -> Count:
        """`merged`: what the upper does not name shows through from the original."""
        total, names = Count(), list_names(upper)
        self.visit(len(names))
        merged = merged and not is_opaque(upper)
        if lower is not None and not merged:
            total += Count(len(set(list_names(lower)) - set(names)))
        for name in names:
            info, old = lstat(name, upper), lstat(name, lower)
            if info is not None:
                total += self._entry(
                    path + b"/" + name, upper, info, lower, old, placeholder=placeholder, merged=merged
                )
        return total

    def _entry(
        self,
        path: bytes,
        upper: int,
        info: os.stat_result,
        lower: int | None,
        old: os.stat_result | None,
        *,
        placeholder: bool,
        merged: bool,
    ) -> Count:
        name = path.rpartition(b"/")[2]
        if placeholder or path in self.masked:
            placeholder = True
            if not stat.S_ISDIR(info.st_mode) or info.st_ctime_ns >= self.started_ns:
                return Count(int(info.st_ctime_ns >= self.started_ns))
        if is_whiteout(info):
            return Count(int(old is not None))
        if kind_of(info.st_mode) is Kind.DIRECTORY and path.count(b"/") < MAX_DEPTH:
            was_directory = old is not None and stat.S_ISDIR(old.st_mode)
            try:
                with (
                    opened_directory(name, upper) as below,
                    opened_directory(name, lower if was_directory else None) as low,
                ):
                    assert below is not None
                    own = Count(int(old is None or old.st_mode != info.st_mode))
                    return own + self.count(path, below, low, placeholder=placeholder, merged=merged)
            except PermissionError:
                return Count(1)
        if old is not None and lower is not None and self.is_same(path, upper, info, lower, old):
            return Count()
        return Count(1, info.st_size)

    def is_same(self, path: bytes, upper: int, info: os.stat_result, lower: int, old: os.stat_result) -> bool:
        try:
            with (
                open_entry(self.upper, path, upper, info) as new,
                open_entry(self.workspace, path, lower, old) as original,
            ):
                self.note(new)
                return new.node.mode == original.node.mode and is_same_content(original.node, new.node)
        except PermissionError:
            return False


def is_same_content(old: Node, new: Node) -> bool:
    """Whether two entries are of one kind and hold the same."""
    if old.kind is not new.kind or old.size != new.size:
        return False
    if old.kind is Kind.SPECIAL:
        return old.detail == new.detail
    return all(one == other for one, other in zip(old.read(), new.read(), strict=True))
