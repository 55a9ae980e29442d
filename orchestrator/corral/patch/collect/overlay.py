"""Reads a run's changes out of the overlay's upper directory: cost depends on what changed, not on the repository.

The upper directory was written by untrusted code and the original is the user's live directory. A whiteout (character
device 0/0) stands for the whole subtree below its name; an opaque directory hides the original's; everything else is
compared with the original by content and mode, since touch and chmod copy up too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from corral.errors import PatchError
from corral.patch.collect import link
from corral.patch.collect.entry import (
    Opened,
    directory_node,
    is_opaque,
    is_whiteout,
    open_entry,
    opened_directory,
)
from corral.patch.collect.ignore import IgnoreRules
from corral.patch.collect.selection import (
    DEPENDENCY_DIRS,
    ChangeSet,
    ExportLimits,
    Selection,
    is_tool_directory,
    make_selection,
)
from corral.patch.collect.tally import Count, Tally, is_same_content
from corral.patch.collect.tracked import TrackedPaths
from corral.patch.name import MAX_DEPTH, is_git_component, is_toolbox_temp
from corral.patch.tree import Kind, Node, kind_of, list_names, lstat, open_root
from corral.schema.patch import Reason


def collect_overlay(
    workspace: Path,
    upper: Path,
    *,
    masked: Collection[bytes] = (),
    started_ns: int,
    include_ignored: bool = False,
    limits: ExportLimits | None = None,
    work: Path | None = None,
) -> ChangeSet:
    """What the box changed, divided into exportable changes and listed rest.

    The untrusted processes must be frozen or gone. `started_ns` is the time just before the box could run, on the
    clock that stamps files (`start_stamp`); `masked` are the workspace-relative paths of placeholders in `upper`;
    `work` is the overlay's workdir, whose index root can read (see link.py).
    Raises PatchError when there is more than the limits let us visit.
    """
    selection = make_selection(masked, started_ns, limits)
    upper_root, lower_root = _open_upper(upper), open_root(workspace)
    try:
        with IgnoreRules(workspace) as rules:
            walk = _Walk(workspace, upper, selection, rules, include_ignored=include_ignored)
            walk.start(upper_root, lower_root)
            link.settle_orphans(workspace, walk.orphans, walk.removed, selection)
            copies = walk.copies | link.index_copies(work)
            for path, old, new in link.find_aliases(workspace, copies, lower_root, upper_root):
                walk.alias(path, old, new)
    finally:
        os.close(upper_root)
        os.close(lower_root)
    return selection.finish()


def _open_upper(upper: Path) -> int:
    """The box may have closed the workspace to itself, and with it, for an ordinary user, to us."""
    mode = stat.S_IMODE(upper.stat().st_mode)
    if mode & 0o500 != 0o500:
        upper.chmod(mode | 0o500)
    return open_root(upper)


@dataclass(frozen=True)
class _Place:
    """One directory of the walk: in the upper directory, in the original, or in both."""

    path: bytes
    upper: int | None
    lower: int | None
    merged: bool  # what the upper does not name shows through
    ignored: bool  # an ignored parent: only what git tracks is exported
    unstable: bool  # the original's directory changed while the box ran

    def at(self, name: bytes) -> bytes:
        return self.path + b"/" + name if self.path else name


@dataclass(frozen=True)
class _Pair:
    """One name, before and after."""

    name: bytes
    path: bytes
    low: os.stat_result | None
    up: os.stat_result | None

    @property
    def before(self) -> Kind | None:
        return None if self.low is None else kind_of(self.low.st_mode)

    @property
    def after(self) -> Kind | None:
        return None if self.up is None else kind_of(self.up.st_mode)

    @property
    def is_leftover(self) -> bool:
        """What a killed file tool left; one that the original has already is a file like any other."""
        return self.low is None and self.after is not Kind.DIRECTORY and is_toolbox_temp(self.name)

    @property
    def has_other_mode(self) -> bool:
        """Whether both are there, of one kind, with other permission bits."""
        return (
            self.before is self.after
            and self.up is not None
            and self.low is not None
            and self.up.st_mode != self.low.st_mode
        )

    @property
    def keeps(self) -> bool:
        """Whether leaving this out makes the original keep something that the box removed."""
        return self.before is not None and self.after is not self.before and self.after in (None, Kind.DIRECTORY)


class _Walk:
    """The walk over one upper directory; feeds the selection."""

    def __init__(
        self, workspace: Path, upper: Path, selection: Selection, rules: IgnoreRules, *, include_ignored: bool
    ) -> None:
        self.workspace, self.upper = workspace, upper
        self.selection, self.rules, self.include_ignored = selection, rules, include_ignored
        self.tracked = TrackedPaths(workspace)
        self.tally = Tally(workspace, upper, selection.masked, selection.started_ns, self._visit, self._note_copy)
        self.device = 0
        self.visited = 0
        self.removed: list[bytes] = []  # original files that the box removed or moved
        self.orphans: list[link.Orphan] = []
        self.copies: dict[bytes, Node] = {}  # copied-up files with hard links in the original, by their handle

    def start(self, upper: int, lower: int) -> None:
        self.device = os.fstat(lower).st_dev
        self.directory(_Place(b"", upper, lower, merged=not is_opaque(upper), ignored=False, unstable=False))

    def alias(self, path: bytes, old: Node | None, new: Node) -> None:
        """A name that changed without standing in the upper directory: judged by the same rules."""
        if old is not None and old.mode == new.mode and is_same_content(old, new):
            return
        ignored = None if self.include_ignored or self.tracked.has(path) else self._ignored_part(path)
        if ignored is not None:
            self.selection.leave_out(ignored, Reason.IGNORED)
        elif old is None:
            self.selection.leave_out(path, Reason.UNREADABLE)
        else:
            add_if_different(self.selection, path, old, new)

    def _ignored_part(self, path: bytes) -> bytes | None:
        """The path, or the first of its parents, that a rule covers."""
        parts = path.split(b"/")
        for depth, name in enumerate(parts):
            above, is_directory = b"/".join(parts[:depth]), depth < len(parts) - 1
            self.rules.enter(above)
            if self.rules.covered(above, [(name, is_directory)]):
                here = b"/".join(parts[: depth + 1])
                return here + b"/" if is_directory and not self.tracked.has_below(here) else path
        return None

    def directory(self, place: _Place) -> None:
        """One directory: all its names first, so that the ignore rules are asked once."""
        if place.lower is not None and not place.ignored:
            self.rules.enter(place.path)
        pairs = self._pairs(place)
        covered = self._covered(place, pairs)
        for pair in pairs:
            self._pair(place, pair, covered)
        if place.path and place.lower is not None and place.upper is not None:
            self._note_emptied(place, pairs)

    def _pairs(self, place: _Place) -> list[_Pair]:
        names = set[bytes]() if place.upper is None else set(list_names(place.upper))
        if place.lower is not None and not place.merged:
            names |= set(list_names(place.lower))
        self._visit(len(names))
        pairs = list[_Pair]()
        for name in sorted(names):
            up, low = lstat(name, place.upper), lstat(name, place.lower)
            up = None if up is None or is_whiteout(up) else up
            if up is not None or low is not None:
                pairs.append(_Pair(name, place.at(name), low, up))
        return pairs

    def _visit(self, count: int) -> None:
        self.visited += count
        if self.visited > self.selection.limits.max_entries:
            raise PatchError(
                f"more than {self.selection.limits.max_entries:,} entries changed",
                hint="remove build output in the box before the export",
            )

    def _covered(self, place: _Place, pairs: list[_Pair]) -> set[tuple[bytes, bool]]:
        if self.include_ignored:
            return set()
        kinds = [(pair.name, kind is Kind.DIRECTORY) for pair in pairs for kind in {pair.before, pair.after} if kind]
        kinds = sorted(set(kinds))
        return set(kinds) if place.ignored else self.rules.covered(place.path, kinds)

    def _pair(self, place: _Place, pair: _Pair, covered: set[tuple[bytes, bool]]) -> None:
        if pair.path in self.selection.masked:
            self._masked(place, pair)
        elif is_git_component(pair.name):
            self._subtree(place, pair, Reason.GIT_DIR)
        elif pair.is_leftover:
            self.selection.leave_out(pair.path, Reason.LEFTOVER)
        else:
            if pair.before is Kind.DIRECTORY and pair.after is not Kind.DIRECTORY:
                self._tree(place, pair, ignored=(pair.name, True) in covered)
            if {pair.before, pair.after} - {None, Kind.DIRECTORY}:
                self._leaf(place, pair, ignored=(pair.name, False) in covered)
            if pair.after is Kind.DIRECTORY:
                self._tree(place, pair, ignored=(pair.name, True) in covered)

    def _masked(self, place: _Place, pair: _Pair) -> None:
        """A placeholder of ours, perhaps a directory of them: told only when the box touched it."""
        touched = pair.up is None or pair.up.st_ctime_ns >= self.selection.started_ns
        if not touched and pair.after is Kind.DIRECTORY and place.upper is not None:
            with opened_directory(pair.name, place.upper) as up:
                assert up is not None
                touched = self.tally.count(pair.path, up, None, placeholder=True).entries > 0
        if touched:
            self.selection.leave_out(pair.path, Reason.MASKED, "the box saw a placeholder", keeps=pair.keeps)

    def _tree(self, place: _Place, pair: _Pair, *, ignored: bool) -> None:
        """A directory: in both, new, or gone."""
        try:
            reason = self._skip_reason(place, pair, ignored=ignored)
            if reason is None:
                self._enter(place, pair, ignored=ignored)
            else:
                self._subtree(place, pair, reason)
        except PermissionError:
            self.selection.leave_out(pair.path + b"/", Reason.UNREADABLE, keeps=pair.keeps)

    def _enter(self, place: _Place, pair: _Pair, *, ignored: bool) -> None:
        seen = self.selection.seen
        in_upper = place.upper if pair.after is Kind.DIRECTORY else None
        in_lower = place.lower if pair.before is Kind.DIRECTORY else None
        with opened_directory(pair.name, in_upper) as up, opened_directory(pair.name, in_lower) as low:
            merged = place.merged and up is not None and low is not None and not is_opaque(up)
            self.directory(_Place(pair.path, up, low, merged, ignored, self._is_unstable(place, low)))
            self._note_directory(pair, up, low, is_bare=self.selection.seen == seen)

    def _is_unstable(self, place: _Place, lower: int | None) -> bool:
        if lower is None:
            return place.unstable
        return os.fstat(lower).st_ctime_ns >= self.selection.started_ns

    def _skip_reason(self, place: _Place, pair: _Pair, *, ignored: bool) -> Reason | None:
        """Why a whole directory is listed instead of entered."""
        if pair.path.count(b"/") + 1 >= MAX_DEPTH:
            return Reason.BAD_NAME
        if pair.low is not None and pair.before is Kind.DIRECTORY and pair.low.st_dev != self.device:
            return Reason.SUBMOUNT
        if pair.before is Kind.DIRECTORY and self._has_git(place, pair) and self.tracked.is_submodule(pair.path):
            return Reason.SUBMODULE
        if pair.before is not Kind.DIRECTORY and is_tool_directory(pair.name):
            return Reason.TOOL_FILES
        if self.include_ignored:
            return None
        if pair.before is not Kind.DIRECTORY and pair.name in DEPENDENCY_DIRS:
            return Reason.DEPENDENCY_DIR
        return Reason.IGNORED if ignored and not self.tracked.has_below(pair.path) else None

    def _has_git(self, place: _Place, pair: _Pair) -> bool:
        """Whether it may be a submodule at all: asking the index costs time that grows with the repository."""
        name = pair.name + b"/.git"
        return lstat(name, place.lower) is not None or (
            pair.after is Kind.DIRECTORY and lstat(name, place.upper) is not None
        )

    def _note_directory(self, pair: _Pair, up: int | None, low: int | None, *, is_bare: bool) -> None:
        if up is not None and low is not None:
            self.selection.add_same_content(pair.path, directory_node(low), directory_node(up))
        elif is_bare:
            word = "new" if low is None else "removed"
            self.selection.leave_out(pair.path + b"/", Reason.EMPTY_DIRECTORY, word, keeps=low is not None)
        if up is not None and low is None:
            self.selection.add_new_directory(pair.path, directory_node(up))

    def _note_emptied(self, place: _Place, pairs: list[_Pair]) -> None:
        """A directory that lost all its files but stays: applying the patch removes it."""
        if place.lower is None or any(pair.after for pair in pairs) or not pairs:
            return
        if not place.merged or set(list_names(place.lower)) <= {pair.name for pair in pairs}:
            self.selection.leave_out(place.path + b"/", Reason.EMPTY_DIRECTORY, "kept without its files")

    def _subtree(self, place: _Place, pair: _Pair, reason: Reason) -> None:
        """List a whole name as one line, with how much is in it; nothing where nothing differs."""
        if pair.before is Kind.DIRECTORY and pair.after is not Kind.DIRECTORY:
            self.selection.leave_out(pair.path + b"/", reason, "removed", keeps=True)
        elif pair.up is None:
            self.selection.leave_out(pair.path, reason, "removed", keeps=True)
        elif pair.after is Kind.DIRECTORY:
            assert place.upper is not None
            was_directory = pair.before is Kind.DIRECTORY
            try:
                with (
                    opened_directory(pair.name, place.upper) as up,
                    opened_directory(pair.name, place.lower if was_directory else None) as low,
                ):
                    assert up is not None
                    count = self.tally.count(pair.path, up, low, merged=place.merged) + Count(int(pair.has_other_mode))
            except PermissionError:
                count = Count(1)
            if count.entries or not was_directory:
                self.selection.leave_out(pair.path + b"/", reason, str(count), keeps=pair.keeps)
        elif not self._is_same(place, pair):
            self.selection.leave_out(pair.path, reason, keeps=pair.keeps)

    def _is_same(self, place: _Place, pair: _Pair) -> bool:
        if pair.up is None or pair.low is None or place.upper is None or place.lower is None:
            return False
        return self.tally.is_same(pair.path, place.upper, pair.up, place.lower, pair.low)

    def _leaf(self, place: _Place, pair: _Pair, *, ignored: bool) -> None:
        """A name that is not a directory on at least one side."""
        if ignored and not self.tracked.has(pair.path):
            if not self._is_same(place, pair):
                self.selection.leave_out(pair.path, Reason.IGNORED, keeps=pair.keeps)
            return
        try:
            self._compare(place, pair)
        except PermissionError:
            self.selection.leave_out(pair.path, Reason.UNREADABLE, keeps=pair.keeps)

    def _compare(self, place: _Place, pair: _Pair) -> None:
        if pair.low is None:
            assert pair.up is not None and place.upper is not None
            with open_entry(self.upper, pair.path, place.upper, pair.up) as new:
                self._note_copy(new)
                if new.origin is not None and place.unstable:
                    self.orphans.append(link.Orphan(pair.path, new.node, new.origin))
                else:
                    self.selection.add(pair.path, None, new.node)
            return
        assert place.lower is not None
        with open_entry(self.workspace, pair.path, place.lower, pair.low) as old:
            if pair.up is None:
                self.removed.append(pair.path)
                self.selection.add(pair.path, old.node, None)
                return
            assert place.upper is not None
            if pair.before is not pair.after:
                self.removed.append(pair.path)
            with open_entry(self.upper, pair.path, place.upper, pair.up) as new:
                self._note_copy(new)
                add_if_different(self.selection, pair.path, old.node, new.node)

    def _note_copy(self, new: Opened) -> None:
        if new.indexed and new.origin is not None:
            self.copies[new.origin] = new.node


def add_if_different(selection: Selection, path: bytes, old: Node, new: Node) -> None:
    """Compare two sides that both exist; the same content and git mode is no change."""
    if old.git_mode == new.git_mode and is_same_content(old, new):
        selection.add_same_content(path, old, new)
    else:
        selection.add(path, old, new)
