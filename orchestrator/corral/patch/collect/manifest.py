"""Finds a run's changes by comparing manifests: for a workspace that was copied into the box.

What was sent is known from our own list; what is there now is the box's claim, entry by entry: bounded, validated, and
believed only as far as the bytes that are fetched have the digest they were announced with.
"""

from __future__ import annotations

import asyncio
import hashlib
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from corral.errors import PatchError, SandboxProtocolError
from corral.patch.collect.entry import open_entry
from corral.patch.collect.ignore import IgnoreRules
from corral.patch.collect.selection import (
    DEPENDENCY_DIRS,
    Change,
    ChangeSet,
    ExportLimits,
    Selection,
    is_tool_directory,
    make_selection,
)
from corral.patch.collect.tracked import TrackedPaths
from corral.patch.name import MAX_DEPTH, is_git_component, is_toolbox_temp
from corral.patch.tree import CHUNK, MAX_LINK, Kind, Node, bytes_reader, lstat, nothing_reader, open_parent
from corral.sandbox.workspace import Packed
from corral.schema.patch import Reason
from corral.schema.visible import visible
from corral_protocol.error import ErrorCode
from corral_protocol.message import TreeEntry
from corral_protocol.name import decode_name, encode_name

Fetch = Callable[[str, Callable[[memoryview], None]], Awaitable[object]]
"""Streams the raw bytes of a workspace-relative path (wire form) of the box into a sink."""

_KINDS = {"file": Kind.FILE, "dir": Kind.DIRECTORY, "symlink": Kind.SYMLINK}
_OF_DIRECTORIES = frozenset({Reason.IGNORED, Reason.DEPENDENCY_DIR, Reason.TOOL_FILES, Reason.SUBMODULE})
_NEVER = 1 << 63  # change times say nothing here: the original is compared by content


async def collect_copy(
    workspace: Path,
    baseline: Iterable[Packed],
    after: AsyncIterator[TreeEntry],
    fetch: Fetch,
    staging: Path,
    *,
    masked: Collection[bytes] = (),
    started_ns: int,
    include_ignored: bool = False,
    limits: ExportLimits | None = None,
) -> ChangeSet:
    """What the box changed since `baseline` was sent. Changed files are fetched into `staging`, a directory of ours.

    Raises SandboxProtocolError where the box breaks its own word, PatchError over a limit.
    """
    selection = make_selection(masked, _NEVER, limits)
    sent = {entry.path: _from_packed(entry) for entry in baseline}
    now = await _read_claims(after, selection.limits.max_entries)
    await asyncio.to_thread(_compare, workspace, sent, now, selection, include_ignored=include_ignored)
    chosen = selection.finish()
    changes = tuple([await _fetched(change, number, fetch, staging) for number, change in enumerate(chosen.changes)])
    return ChangeSet(changes, chosen.not_exported, started_ns)


@dataclass(frozen=True)
class _Claim:
    """One entry of a manifest, ours or the box's."""

    kind: Kind
    mode: int
    size: int = 0
    sha256: str = ""
    target: bytes = b""
    detail: str = ""
    error: str = ""  # why the box could not read it: its content, or what is below it, is unknown


def _from_packed(entry: Packed) -> _Claim:
    # Set-id and sticky bits are not given to a copy.
    return _Claim(_KINDS[entry.kind], entry.mode & 0o777, entry.size, entry.sha256, entry.target)


async def _read_claims(entries: AsyncIterator[TreeEntry], limit: int) -> dict[bytes, _Claim]:
    found = dict[bytes, _Claim]()
    async for entry in entries:
        path = _claimed_path(entry.path)
        if path in found:
            raise SandboxProtocolError(f"the box listed {visible(path)!r} twice")
        if len(found) >= limit:
            raise PatchError(f"the box holds more than {limit:,} entries", hint="remove build output in the box")
        kind = _KINDS.get(entry.kind, Kind.SPECIAL)
        target = decode_name(entry.target) if kind is Kind.SYMLINK else b""
        size = len(target) if kind is Kind.SYMLINK else entry.size if kind is Kind.FILE else 0
        is_unknown = kind in (Kind.FILE, Kind.DIRECTORY) and bool(entry.error)
        has_digest = len(entry.sha256) == 64
        if size < 0 or len(target) > MAX_LINK or (kind is Kind.FILE and has_digest is is_unknown):
            raise SandboxProtocolError(f"the box listed {visible(path)!r} with impossible facts")
        detail = visible(entry.kind, limit=40) if kind is Kind.SPECIAL else ""
        error = visible(entry.error, limit=40) if is_unknown else ""
        found[path] = _Claim(kind, stat.S_IMODE(entry.mode), size, entry.sha256, target, detail, error)
    return found


def _claimed_path(wire: str) -> bytes:
    try:
        path = decode_name(wire)
    except ValueError as error:
        raise SandboxProtocolError("the box listed a name that is none") from error
    # SECURITY: a listed name becomes a path on the host (test_blocks_manifest_names_that_leave_the_tree).
    if any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise SandboxProtocolError(f"the box listed {visible(path)!r}, which leaves the tree")
    return path


def _compare(
    workspace: Path,
    sent: dict[bytes, _Claim],
    now: dict[bytes, _Claim],
    selection: Selection,
    *,
    include_ignored: bool,
) -> None:
    paths = sorted(path for path in sent.keys() | now.keys() if sent.get(path) != now.get(path))
    with IgnoreRules(workspace) as rules:
        judge = _Judge(workspace, sent, now, selection, rules, include_ignored=include_ignored)
        for path in paths:
            judge.path(path)
        judge.list_bundles()
        judge.list_emptied()


class _Judge:
    def __init__(
        self,
        workspace: Path,
        sent: dict[bytes, _Claim],
        now: dict[bytes, _Claim],
        selection: Selection,
        rules: IgnoreRules,
        *,
        include_ignored: bool,
    ) -> None:
        self.workspace, self.sent, self.now = workspace, sent, now
        self.selection, self.rules, self.include_ignored = selection, rules, include_ignored
        self.tracked = TrackedPaths(workspace)
        self.entered = set[bytes]()
        self.verdicts = dict[bytes, Reason | None]()
        self.ignored = dict[bytes, tuple[bool, bool]]()
        self.bundles = dict[tuple[bytes, Reason], tuple[int, bool]]()
        self.filled = {path.rpartition(b"/")[0] for path in now}
        self.was_filled = {path.rpartition(b"/")[0] for path in sent}

    def path(self, path: bytes) -> None:
        """One path that differs."""
        before, after = self.sent.get(path), self.now.get(path)
        stays = before is not None and before.kind is not Kind.DIRECTORY
        keeps = stays and (after is None or after.kind is Kind.DIRECTORY)
        is_listed = False
        for place in [*_parents(path), path]:
            reason = self.verdict(place)
            if reason is not None:
                count, kept = self.bundles.get((place, reason), (0, False))
                goes = before is not None and not _is_directory(after) and (after is None or _is_directory(before))
                self.bundles[place, reason] = count + 1, kept or keeps or goes
                if place != path or reason not in _OF_DIRECTORIES:
                    return
                is_listed = True  # as a directory; a file of that name is judged for itself
        if not is_listed and (_is_directory(before) or _is_directory(after)):
            self.directory(path, before, after)
        if any(one is not None and one.kind is not Kind.DIRECTORY for one in (before, after)):
            refusal = self.refuse_leaf(path, before, after)
            if refusal is None:
                self.leaf(path, before, after)
            else:
                self.selection.leave_out(path, *refusal, keeps=keeps)

    def refuse_leaf(self, path: bytes, before: _Claim | None, after: _Claim | None) -> tuple[Reason, str] | None:
        """Why one name that is no directory is listed instead of exported."""
        if self.is_ignored(path, is_directory=False) and not self.tracked.has(path):
            return Reason.IGNORED, ""
        if before is None and not _is_directory(after) and is_toolbox_temp(path.rpartition(b"/")[2]):
            return Reason.LEFTOVER, ""
        if after is not None and after.kind is Kind.FILE and after.error:
            return Reason.TOO_LARGE if after.error == ErrorCode.TOO_LARGE else Reason.UNREADABLE, after.error
        return None

    def list_bundles(self) -> None:
        for (place, reason), (count, keeps) in sorted(self.bundles.items()):
            is_directory = _is_directory(self.sent.get(place)) or _is_directory(self.now.get(place))
            detail = f"{count:,} {'entry' if count == 1 else 'entries'}"
            self.selection.leave_out(place + b"/" if is_directory else place, reason, detail, keeps=keeps)

    def list_emptied(self) -> None:
        """Directories that lost all their files but stay: applying the patch removes them."""
        for place in sorted(self.was_filled - self.filled - {b""}):
            if _is_directory(self.now.get(place)) and not any(
                self.verdict(above) for above in [*_parents(place), place]
            ):
                self.selection.leave_out(place + b"/", Reason.EMPTY_DIRECTORY, "kept without its files")

    def verdict(self, place: bytes) -> Reason | None:
        """Why a name and everything below it is listed instead of exported."""
        if place not in self.verdicts:
            self.verdicts[place] = self.find_verdict(place)
        return self.verdicts[place]

    def find_verdict(self, place: bytes) -> Reason | None:
        before, after = self.sent.get(place), self.now.get(place)
        name = place.rpartition(b"/")[2]
        if place in self.selection.masked:
            return Reason.MASKED
        if is_git_component(name):
            return Reason.GIT_DIR
        if place.count(b"/") + 1 >= MAX_DEPTH:
            return Reason.BAD_NAME
        was_directory = _is_directory(before)
        has_git = place + b"/.git" in self.sent or place + b"/.git" in self.now
        if was_directory and has_git and self.tracked.is_submodule(place):
            return Reason.SUBMODULE
        if after is not None and after.kind is Kind.DIRECTORY and after.error:
            return Reason.UNREADABLE
        if _is_directory(after) and not was_directory and is_tool_directory(name):
            return Reason.TOOL_FILES
        if self.include_ignored or not (was_directory or _is_directory(after)):
            return None
        if not was_directory and name in DEPENDENCY_DIRS:
            return Reason.DEPENDENCY_DIR
        is_hidden = self.is_ignored(place, is_directory=True) and not self.tracked.has_below(place)
        return Reason.IGNORED if is_hidden else None

    def is_ignored(self, path: bytes, *, is_directory: bool) -> bool:
        if self.include_ignored:
            return False
        if path not in self.ignored:
            self.ignored[path] = self.find_ignored(path)
        return self.ignored[path][is_directory]

    def find_ignored(self, path: bytes) -> tuple[bool, bool]:
        """Whether a path is ignored as a file, and as a directory. Parents are asked before what is in them."""
        parent, _, name = path.rpartition(b"/")
        if parent and self.is_ignored(parent, is_directory=True):
            return True, True
        for place in [b"", *_parents(path)]:
            if place not in self.entered:
                self.entered.add(place)
                self.rules.enter(place)
        found = self.rules.covered(parent, [(name, False), (name, True)])
        return (name, False) in found, (name, True) in found

    def directory(self, path: bytes, before: _Claim | None, after: _Claim | None) -> None:
        was, is_now = _is_directory(before), _is_directory(after)
        if was and is_now and before is not None and after is not None:
            self.selection.add_same_content(path, _bare_node(before), _bare_node(after))
        elif is_now and after is not None:
            if path not in self.filled:
                self.selection.leave_out(path + b"/", Reason.EMPTY_DIRECTORY, "new")
            self.selection.add_new_directory(path, _bare_node(after))
        elif was and path not in self.was_filled:
            self.selection.leave_out(path + b"/", Reason.EMPTY_DIRECTORY, "removed", keeps=True)

    def leaf(self, path: bytes, before: _Claim | None, after: _Claim | None) -> None:
        old = None if before is None else _bare_node(before)
        new = None if after is None else _bare_node(after)
        if old is None or old.kind is not Kind.DIRECTORY:
            live = self.live_node(path)
            if not _is_still(before, live):
                keeps = live is not None and (new is None or new.kind is Kind.DIRECTORY)
                text = "the original was edited while the box ran"
                self.selection.leave_out(path, Reason.BASE_CHANGED, text, keeps=keeps)
                return
            old = live
        if before is not None and after is not None and old is not None and new is not None:
            new = self.same_bytes(before, after, old, new)
            if new.read is old.read and new.git_mode == old.git_mode:
                self.selection.add_same_content(path, old, new)
                return
        self.selection.add(path, old, new)

    def same_bytes(self, before: _Claim, after: _Claim, old: Node, new: Node) -> Node:
        """A file whose content is as it was is read from the original: nothing is fetched for a mode."""
        same = before.kind is after.kind is Kind.FILE and (before.sha256, before.size) == (after.sha256, after.size)
        return replace(new, read=old.read) if same else new

    def live_node(self, path: bytes) -> Node | None:
        """What stands in the original now."""
        try:
            with open_parent(self.workspace, path) as (parent, name):
                info = lstat(name, parent)
                if info is None:
                    return None
                with open_entry(self.workspace, path, parent, info) as opened:
                    return opened.node
        except (FileNotFoundError, NotADirectoryError):
            return None


def _is_directory(claim: _Claim | None) -> bool:
    return claim is not None and claim.kind is Kind.DIRECTORY


def _is_still(sent: _Claim | None, live: Node | None) -> bool:
    """Whether the original is what was sent into the box."""
    if sent is None or live is None or sent.kind is not live.kind:
        return sent is None and live is None
    if sent.kind is Kind.SYMLINK:
        return b"".join(live.read()) == sent.target
    digest = hashlib.sha256()
    for chunk in live.read():
        digest.update(chunk)
    return live.size == sent.size and digest.hexdigest() == sent.sha256


def _bare_node(claim: _Claim) -> Node:
    read = bytes_reader(claim.target) if claim.kind is Kind.SYMLINK else nothing_reader
    return Node(claim.kind, claim.mode, claim.size, 0, read, claim.detail, digest=claim.sha256)


async def _fetched(change: Change, number: int, fetch: Fetch, staging: Path) -> Change:
    """The change with its new content on this side of the line."""
    new = change.after
    if new is None or new.kind is not Kind.FILE or new.read is not nothing_reader:
        return change
    place = staging / f"after-{number}"
    with place.open("xb") as output:
        sink = _Sink(output, new.size)
        await fetch(encode_name(change.path), sink)
    if sink.left or sink.digest.hexdigest() != new.digest:
        raise SandboxProtocolError(f"the box sent other bytes for {visible(change.path)!r} than it had listed")

    def read() -> Iterator[bytes]:
        with place.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                yield chunk

    return replace(change, after=replace(new, read=read))


class _Sink:
    """Takes announced bytes and not one more."""

    def __init__(self, output: IO[bytes], size: int) -> None:
        self.output, self.left, self.digest = output, size, hashlib.sha256()

    def __call__(self, data: memoryview) -> None:
        self.left -= len(data)
        if self.left < 0:
            raise SandboxProtocolError("the box sent more bytes than it had listed")
        self.digest.update(data)
        self.output.write(data)


def _parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]
