"""Makes the patch file: old and new content go as blobs into an empty repository of ours, git compares the two trees.

One or two git processes, whatever the number of files: fast-import takes much in (a little goes in without it, see
pack.py), diff-tree writes the patch, the statistics and the names in one stream. Nothing of the user's git takes part.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from corral.errors import PatchError
from corral.patch.collect.selection import Change, ChangeSet, ExportLimits
from corral.patch.git import Repository
from corral.patch.pack import is_small, write_trees
from corral.sandbox.scratch import make_scratch
from corral.schema.patch import Action, FileChange, Patch
from corral_protocol.name import encode_name

RENAME_LIMIT = 400
"""Sources times targets that git compares for moves with edits; over it only exact moves are found."""

_DIFF = (
    "diff-tree", "-r", "-z", "--raw", "--numstat", "-p", "--binary", "--full-index", "--no-abbrev", "-M50%",
    f"-l{RENAME_LIMIT}", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
    "--unified=3", "--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic", "--no-relative",
)  # fmt: skip
_COMMIT = b"commit refs/corral/%s\ncommitter corral <corral@localhost> 0 +0000\ndata 0\n"
_ENTRY = re.compile(rb":(\d{6}) (\d{6}) ([0-9a-f]{40}) ([0-9a-f]{40}) ([A-Z])\d*\Z")
_CHUNK = 1 << 20


def build_patch(
    changes: ChangeSet, target: Path, *, limits: ExportLimits | None = None, keep: Path | None = None
) -> Patch:
    """Write the patch to `target` (mode 0600, replaced as a whole) and tell what is in it.

    `keep` is a directory that shall hold the blobs of both sides afterwards: a later three-way apply needs them.
    Raises PatchConflict when the original changed while it was read, PatchError over a limit.
    """
    limits = limits or ExportLimits()
    partial = target.with_name(target.name + ".part")
    try:
        with ExitStack() as stack, _create(partial) as output:
            place = keep or Path(stack.enter_context(make_scratch("build")))
            files, digest = list[FileChange](), hashlib.sha256()
            if changes.changes:
                repository = Repository(place)
                repository.clear()
                sides = _take_in(repository, changes.changes)
                files = _compare(repository, sides, _Capped(output, digest, limits.max_patch_bytes))
            size = output.tell()
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return Patch(
        sha256=digest.hexdigest(),
        size=size,
        files=tuple(files),
        not_exported=changes.not_exported,
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        started_ns=changes.started_ns,
    )


def _create(path: Path) -> IO[bytes]:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def _take_in(repository: Repository, changes: tuple[Change, ...]) -> tuple[str, str]:
    """Both sides into the repository; what git knows them by."""
    if is_small(changes):
        return write_trees(repository.git_dir, changes)
    _import(repository, changes)
    return "refs/corral/before", "refs/corral/after"


def _import(repository: Repository, changes: tuple[Change, ...]) -> None:
    """Feed both trees to git fast-import."""
    with repository.start("fast-import", "--quiet", "--done", stdin=True) as git:
        mark = 0
        trees = {b"before": list[bytes](), b"after": list[bytes]()}
        for change in changes:
            for tree, node in ((b"before", change.before), (b"after", change.after)):
                if node is None:
                    continue
                mark += 1
                git.write(b"blob\nmark :%d\ndata %d\n" % (mark, node.size))
                for chunk in node.read():
                    git.write(chunk)
                git.write(b"\n")
                trees[tree].append(b"M %06o :%d %s\n" % (node.git_mode, mark, _quote(change.path)))
        for tree, lines in trees.items():
            git.write(_COMMIT % tree + b"".join(lines) + b"\n")
        git.write(b"done\n")


def _quote(path: bytes) -> bytes:
    """A name as fast-import reads it: every byte that is not plain as an octal escape."""
    plain = b"".join(bytes((byte,)) if 0x20 < byte < 0x7F and byte not in b'"\\' else b"\\%03o" % byte for byte in path)
    return b'"%s"' % plain


class _Capped:
    """The patch file under its size limit, hashed as it is written."""

    def __init__(self, output: IO[bytes], digest: hashlib._Hash, limit: int) -> None:
        self._output, self._digest, self._left, self._limit = output, digest, limit, limit

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise PatchError(
                f"the patch is larger than {self._limit:,} bytes",
                hint="remove build output in the box, or raise the limit for the patch",
            )
        self._digest.update(data)
        self._output.write(data)


def _compare(repository: Repository, sides: tuple[str, str], output: _Capped) -> list[FileChange]:
    """Run git diff-tree: names and statistics are parsed, the patch goes to the file untouched."""
    with repository.start(*_DIFF, *sides) as git:
        fields = _Fields(git.stdout)
        entries = list(_entries(fields))
        counts = [_count(fields) for _ in entries]
        fields.end_head()
        output.write(fields.rest())
        while chunk := git.stdout.read(_CHUNK):
            output.write(chunk)
    return [_file_change(entry, count) for entry, count in zip(entries, counts, strict=True)]


class _Fields:
    """NUL-terminated fields at the head of a stream."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._buffer = b""
        self._offset = 0

    def peek(self) -> bytes:
        """The byte that comes next, or nothing at the end."""
        if self._offset == len(self._buffer):
            self._buffer, self._offset = self._stream.read(_CHUNK), 0
        return self._buffer[self._offset : self._offset + 1]

    def next(self) -> bytes:
        while (end := self._buffer.find(b"\0", self._offset)) < 0:
            data = self._stream.read(_CHUNK)
            if not data:
                raise PatchError("git diff-tree ended early")
            self._buffer, self._offset = self._buffer[self._offset :] + data, 0
        field, self._offset = self._buffer[self._offset : end], end + 1
        return field

    def end_head(self) -> None:
        """An empty field stands between the statistics and the patch."""
        if self.peek() and self.next():
            raise PatchError("git diff-tree answered in an unknown form")

    def rest(self) -> bytes:
        return self._buffer[self._offset :]


@dataclass(frozen=True)
class _Entry:
    old_mode: str
    new_mode: str
    old_blob: str
    new_blob: str
    status: str
    old_path: bytes
    path: bytes


def _entries(fields: _Fields) -> Iterator[_Entry]:
    while fields.peek() == b":":
        found = _ENTRY.match(fields.next())
        if found is None:
            raise PatchError("git diff-tree answered in an unknown form")
        old_mode, new_mode, old_blob, new_blob, status = (part.decode("ascii") for part in found.groups())
        old_path = fields.next()
        yield _Entry(
            old_mode, new_mode, old_blob, new_blob, status, old_path, fields.next() if status == "R" else old_path
        )


def _count(fields: _Fields) -> tuple[int, int, bool]:
    """Added and removed lines, and whether git took the file for binary. A rename has both names after an empty one."""
    added, removed, path = fields.next().split(b"\t", 2)
    if not path:
        fields.next()
        fields.next()
    binary = added == b"-"
    return (0, 0, True) if binary else (int(added), int(removed), False)


def _file_change(entry: _Entry, count: tuple[int, int, bool]) -> FileChange:
    action = {"A": Action.ADDED, "D": Action.DELETED, "R": Action.RENAMED, "T": Action.RETYPED}.get(
        entry.status, Action.MODIFIED if entry.old_blob != entry.new_blob else Action.MODE
    )
    added, removed, binary = count
    return FileChange(
        path=encode_name(entry.path),
        action=action,
        old_path=encode_name(entry.old_path) if action is Action.RENAMED else None,
        old_mode=None if action is Action.ADDED else entry.old_mode,
        new_mode=None if action is Action.DELETED else entry.new_mode,
        old_blob=None if action is Action.ADDED else entry.old_blob,
        new_blob=None if action is Action.DELETED else entry.new_blob,
        added=added,
        removed=removed,
        binary=binary,
    )
