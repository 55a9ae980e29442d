"""Decides, change by change, what goes into the patch and what is listed as not exported, and why.

Both collectors feed it: the overlay walk and the manifest comparison. List and patch together are every change.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from corral.patch.name import refuse_reason
from corral.patch.tree import Kind, Node
from corral.schema.patch import NotExported, Reason
from corral.schema.visible import visible
from corral_protocol.name import encode_name

DEPENDENCY_DIRS = frozenset(
    {b"node_modules", b".venv", b"venv", b"__pycache__", b".tox", b".nox", b".mypy_cache", b".pytest_cache"}
    | {b".ruff_cache", b".hypothesis", b".gradle", b".eggs", b"bower_components"}
)
"""Directories that tools fill. A new one is left out; one that the original has is treated like any other."""


def is_tool_directory(name: bytes) -> bool:
    """Whether a new directory of this name is a dropping of corral itself."""
    return name == b".corral" or name.startswith(b".corral-")


@dataclass(frozen=True)
class ExportLimits:
    """How much one export may carry. What is over a limit is listed, never cut."""

    max_files: int = 20_000
    max_file_bytes: int = 256 << 20
    max_total_bytes: int = 1 << 30  # before and after together
    max_patch_bytes: int = 1 << 30
    max_entries: int = 2_000_000  # visited by the walk: over it the export is refused


@dataclass(frozen=True)
class Change:
    """One path of the patch; at least one side is a regular file or a symlink, and none is anything else."""

    path: bytes
    before: Node | None
    after: Node | None


@dataclass(frozen=True)
class ChangeSet:
    """Everything that changed, divided. Reading a side later fails if it is no longer what was seen."""

    changes: tuple[Change, ...]
    not_exported: tuple[NotExported, ...]
    started_ns: int


@dataclass
class Selection:
    """Collects changes one by one; `finish` divides what only the whole can tell."""

    masked: frozenset[bytes]
    started_ns: int
    limits: ExportLimits
    seen: int = 0  # changes and listings so far: a new directory under which none came is an empty one
    _changes: dict[bytes, Change] = field(default_factory=dict)
    _listed: dict[tuple[bytes, Reason], NotExported] = field(default_factory=dict)
    _left: set[bytes] = field(default_factory=set)  # paths where the original keeps something the box removed
    _bytes: int = 0

    def leave_out(self, path: bytes, reason: Reason, detail: str = "", *, keeps: bool = False) -> None:
        """List a change. `keeps`: the original's entry at this path stays although the box removed it."""
        self.seen += 1
        key = (path, reason)
        if key not in self._listed:
            self._listed[key] = NotExported(path=encode_name(path), reason=reason, detail=detail)
        if keeps:
            self._left.add(path.rstrip(b"/"))

    def add(self, path: bytes, before: Node | None, after: Node | None) -> None:
        """Judge one path that differs. The caller has dealt with directories' contents, `.git`, masks and rules."""
        problem = self._problem(path, before, after)
        if problem is not None:
            stays = before is not None and before.kind is not Kind.DIRECTORY
            self.leave_out(path, *problem, keeps=stays and (after is None or after.kind is Kind.DIRECTORY))
            return
        self._list_special(path, before, after)
        old = before if before is not None and before.exportable else None
        new = after if after is not None and after.exportable else None
        if (old is None and new is None) or not self._within_limits(path, before, old, new):
            return
        self._list_residue(path, old, new)
        self._changes[path] = Change(path, old, new)
        self.seen += 1

    def add_same_content(self, path: bytes, before: Node, after: Node) -> None:
        """A path whose content and git mode are as before: what else changed is listed."""
        self._list_residue(path, before, after)

    def add_new_directory(self, path: bytes, node: Node) -> None:
        """A directory that came; its files speak for themselves, its mode and attributes are listed."""
        self._list_residue(path, None, node)

    def finish(self) -> ChangeSet:
        self._drop_blocked()
        changes = tuple(self._changes[path] for path in sorted(self._changes))
        listed = tuple(self._listed[key] for key in sorted(self._listed))
        return ChangeSet(changes, listed, self.started_ns)

    def _problem(self, path: bytes, before: Node | None, after: Node | None) -> tuple[Reason, str] | None:
        refused = refuse_reason(path, link=after is not None and after.kind is Kind.SYMLINK)
        if refused is not None:
            return Reason.BAD_NAME, refused
        if before is not None and before.kind is Kind.SPECIAL:
            return Reason.SPECIAL_FILE, f"the original has a {before.detail} here"
        # SECURITY: the original is live: the patch would revert the user's edits (test_never_reverts_user_edits).
        if before is not None and before.exportable and before.ctime_ns >= self.started_ns:
            return Reason.BASE_CHANGED, "the original was edited while the box ran"
        return None

    def _list_special(self, path: bytes, before: Node | None, after: Node | None) -> None:
        if after is not None and after.kind is Kind.SPECIAL:
            self.leave_out(path, Reason.SPECIAL_FILE, after.detail)

    def _within_limits(self, path: bytes, before: Node | None, old: Node | None, new: Node | None) -> bool:
        sizes = [node.size for node in (old, new) if node is not None]
        reason = None
        if len(self._changes) >= self.limits.max_files:
            reason = Reason.TOO_MANY, f"more than {self.limits.max_files:,} files"
        elif max(sizes) > self.limits.max_file_bytes:
            reason = Reason.TOO_LARGE, f"{max(sizes):,} bytes; the limit for a file is {self.limits.max_file_bytes:,}"
        elif self._bytes + sum(sizes) > self.limits.max_total_bytes:
            reason = Reason.TOO_LARGE, f"the changes together are over {self.limits.max_total_bytes:,} bytes"
        if reason is not None:
            self.leave_out(path, *reason, keeps=old is not None and new is None)
            return False
        self._bytes += sum(sizes)
        return True

    def _list_residue(self, path: bytes, old: Node | None, new: Node | None) -> None:
        """Permission bits and attributes that git's three modes cannot say."""
        if new is None or new.kind is Kind.SYMLINK:
            return
        if not _mode_is_told(old, new):
            was = f"{old.mode:04o} to " if old is not None and old.kind is new.kind else ""
            self.leave_out(path, Reason.MODE_BITS, f"{was}{new.mode:04o}")
        had = old.xattrs if old is not None and old.kind is new.kind else frozenset()
        if new.xattrs != had:
            names = sorted({name for name, _ in new.xattrs ^ had})
            self.leave_out(path, Reason.XATTR, ", ".join(visible(name) for name in names)[:200])

    def _drop_blocked(self) -> None:
        """Leave out files whose place is still taken: by what stays below them, or by what stays at a parent."""
        holds = {parent for path in self._left for parent in _parents(path)}
        for path in [path for path, change in self._changes.items() if change.before is None]:
            if path in holds or path in self._left or any(parent in self._left for parent in _parents(path)):
                del self._changes[path]
                self.leave_out(path, Reason.IN_THE_WAY, "something that is not exported stands here in the original")


def _parents(path: bytes) -> list[bytes]:
    places = [place for place, byte in enumerate(path) if byte == 0x2F]
    return [path[:place] for place in places]


def _mode_is_told(old: Node | None, new: Node) -> bool:
    """Whether git's mode says all about the permission bits of `new`, given what it was."""
    if old is None or old.kind is not new.kind:
        return new.mode == (0o644 if new.kind is Kind.FILE and not new.mode & 0o100 else 0o755)
    if new.kind is not Kind.FILE or old.git_mode == new.git_mode:
        return new.mode == old.mode
    plain = 0o755 if new.git_mode == 0o100755 else 0o644
    return new.mode in (plain, old.mode | 0o111) if plain == 0o755 else new.mode in (plain, old.mode & ~0o111)


def make_selection(masked: Collection[bytes], started_ns: int, limits: ExportLimits | None) -> Selection:
    return Selection(frozenset(masked), started_ns, limits or ExportLimits())
