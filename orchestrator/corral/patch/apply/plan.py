"""Decides what applying a patch would do: parse, look at the workspace, refuse or compute results. Changes nothing.

The results are computed by `git apply` in a throw-away directory that holds only the files concerned. Git never runs in
the user's repository, and what it made is compared with what our own reading of the patch allows.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from corral.errors import PatchConflict, PatchError, WorkspaceError
from corral.patch.apply.merge import merge_file
from corral.patch.apply.result import Result, compute_results
from corral.patch.apply.state import Standing, is_blob, look, look_briefly
from corral.patch.checks import check_patch, leaves_tree
from corral.patch.git import Repository
from corral.patch.name import is_git_component
from corral.patch.parse import FilePatch, ParsedPatch, parse_patch
from corral.patch.tree import list_names, open_parent
from corral.sandbox.scratch import make_scratch
from corral.schema.patch import Finding, Severity
from corral.schema.visible import visible
from corral_protocol.name import encode_name


@dataclass(frozen=True)
class Step:
    """What happens at one path of the workspace."""

    path: bytes
    before: Standing | None
    after: Result | None


@dataclass
class ApplyPlan:
    """A patch that fits, and what it will do. Holds the results in a temporary directory: use as a context manager."""

    workspace: Path
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...] = ()
    skipped: tuple[str, ...] = ()  # files that already are as the patch makes them, printable
    merged: tuple[str, ...] = ()  # files where the user's edits and the patch were merged, printable
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def is_applied_already(self) -> bool:
        return not self.steps and bool(self.skipped)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def plan_apply(patch: bytes, workspace: Path, *, three_way: bool = False, objects: Path | None = None) -> ApplyPlan:
    """Work out what the patch does to the workspace as it is now.

    `objects` is the directory that build_patch kept; with `three_way` a file that was edited since is merged from its
    blobs. Raises PatchInvalid for what is refused whatever the workspace holds, PatchConflict naming every file that
    does not fit. Nothing is written to the workspace.
    """
    if not workspace.is_dir():
        raise WorkspaceError(
            f"the workspace {str(workspace)!r} is not a directory", hint="-C names the directory to apply it to"
        )
    parsed = parse_patch(patch)
    try:
        return _plan(parsed, workspace, three_way=three_way, objects=objects)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PatchError(f"the workspace cannot be read: {reason}", hint="nothing was applied") from error


def _plan(parsed: ParsedPatch, workspace: Path, *, three_way: bool, objects: Path | None) -> ApplyPlan:
    with ExitStack() as stack:
        scratch = make_scratch("apply")
        place = Path(stack.enter_context(scratch))
        judged = _Judgement(parsed, workspace)
        judged.run()
        merged = list[FilePatch]()
        if three_way and objects is not None and judged.edited:
            merged = [file for file in judged.edited if merge_file(file, judged.now, objects, place, workspace)]
        _raise_conflicts(judged, merged, can_merge=objects is not None and not three_way)
        todo = [file for file in parsed.files if file not in judged.done and file not in merged]
        results = compute_results(Repository(place), parsed, todo, judged.now, workspace)
        results |= {file.path: Result.of_merge(file, place, judged.now) for file in merged}
        return ApplyPlan(
            workspace,
            tuple(_steps(todo + merged, judged.now, results)),
            _merge_findings(check_patch(parsed, workspace), _link_findings(results)),
            tuple(visible(file.path) for file in judged.done),
            tuple(visible(file.path) for file in merged),
            stack.pop_all(),
        )


class _Judgement:
    """Compares each file of the patch with the workspace."""

    def __init__(self, patch: ParsedPatch, workspace: Path) -> None:
        self.files = patch.files
        self.workspace = workspace
        paths = {path for file in patch.files for path in (file.old_path, file.new_path) if path is not None}
        self.now = {path: look(workspace, path) for path in paths}
        moved = [file for file in patch.files if file.old_path != file.new_path]
        self.removers = {file.old_path: file for file in moved if file.old_path is not None}
        self.makers = {file.new_path: file for file in moved if file.new_path is not None}
        self.done = list[FilePatch]()
        self.edited = list[FilePatch]()
        self.conflicts = list[tuple[bytes, str]]()

    def run(self) -> None:
        for file in self.files:
            problem = self.problem(file)
            if problem is None:
                continue
            if self.is_done(file):
                self.done.append(file)
                continue
            path, text = problem
            if text is _EDITED:
                self.edited.append(file)
            self.conflicts.append((path, text))

    def problem(self, file: FilePatch) -> tuple[bytes, str] | None:
        """Why this file does not fit, or None."""
        found = self.source_problem(file)
        if found is None and file.new_path is not None and file.new_path != file.old_path:
            found = self.target_problem(file.new_path)
        return found

    def source_problem(self, file: FilePatch) -> tuple[bytes, str] | None:
        """Whether what the patch changes or removes is what it was."""
        if file.old_path is not None:
            now = self.now[file.old_path]
            if now is None or now.is_directory:
                return file.old_path, "is not there any more"
            is_link = now.mode == 0o120000
            if now.mode is None or (file.old_mode is not None and is_link != (file.old_mode == 0o120000)):
                return file.old_path, "is of another kind now"
            if is_blob(file.old_blob, now.blob) is False:
                return file.old_path, _EDITED
            if file.old_mode != file.new_mode and file.new_mode == now.mode and not file.hunks and not file.binary:
                return file.old_path, "has the new mode already"
        return None

    def target_problem(self, path: bytes) -> tuple[bytes, str] | None:
        """Whether a new file can stand at `path` once the patch has removed what it removes."""
        parts = path.split(b"/")
        for depth in range(1, len(parts)):
            above = b"/".join(parts[:depth])
            info = look_briefly(self.workspace, above)
            # SECURITY: a link or file as parent is never written through (test_blocks_writing_through_a_symlink).
            if info is not None and not _is_directory(info) and not self.is_cleared(above):
                return path, f"cannot be made: {visible(above)!r} is no directory"
        now = self.now[path]
        if now is None or self.is_cleared(path):
            return None
        if now.is_directory and self.is_emptied(path):
            return None
        return path, "exists already"

    def is_cleared(self, path: bytes) -> bool:
        """Whether the patch takes away what stands at a path, and it is what the patch knows."""
        remover = self.removers.get(path)
        return remover is not None and self.source_problem(remover) is None

    def is_emptied(self, directory: bytes) -> bool:
        """Whether the patch removes everything that stands in a directory, itself empty directories excepted."""
        for name in _names(self.workspace, directory):
            below = directory + b"/" + name
            info = look_briefly(self.workspace, below)
            if info is None:
                continue
            if _is_directory(info):
                if is_git_component(name) or not _names(self.workspace, below) or not self.is_emptied(below):
                    return False
            elif not self.is_cleared(below):
                return False
        return True

    def is_done(self, file: FilePatch) -> bool:
        """Whether the workspace already is as this file's change makes it."""
        if file.old_path is not None and file.old_path != file.new_path:
            maker, now = self.makers.get(file.old_path), self.now[file.old_path]
            if maker is not None and not self.stands(maker):
                return False
            if maker is None and now is not None and not now.is_directory:
                return False
        return file.new_path is None or self.stands(file)

    def stands(self, file: FilePatch) -> bool:
        """Whether the new file is there, with the content and kind it shall have."""
        now = self.now[file.path]
        if now is None or now.mode is None or (file.new_mode is not None and now.mode != file.new_mode):
            return False
        same = is_blob(file.new_blob, now.blob)
        return same if same is not None else not file.hunks and not file.binary


_EDITED = "was edited since"


def _is_directory(info: os.stat_result) -> bool:
    return stat.S_ISDIR(info.st_mode)


def _names(workspace: Path, directory: bytes) -> list[bytes]:
    with open_parent(workspace, directory + b"/.") as (descriptor, _):
        return list_names(descriptor)


def _raise_conflicts(judged: _Judgement, merged: list[FilePatch], *, can_merge: bool) -> None:
    settled = {file.old_path for file in merged}
    left = [(path, text) for path, text in judged.conflicts if path not in settled or text is not _EDITED]
    if not left:
        return
    shown = "; ".join(f"{visible(path)!r} {text}" for path, text in left[:5])
    more = f"; and {len(left) - 5} more" if len(left) > 5 else ""
    hint = "nothing was applied; " + (
        "try again with a three-way merge" if can_merge else "undo those edits, or run the task again on the new state"
    )
    raise PatchConflict(
        f"the patch does not fit the workspace: {shown}{more}",
        hint=hint,
        paths=tuple(visible(path) for path, _ in left),
    )


def _steps(
    files: Iterable[FilePatch], now: dict[bytes, Standing | None], results: dict[bytes, Result]
) -> Iterator[Step]:
    paths = {path for file in files for path in (file.old_path, file.new_path) if path is not None}
    for path in sorted(paths):
        yield Step(path, now[path], results.get(path))


def _merge_findings(first: Iterable[Finding], second: Iterable[Finding]) -> tuple[Finding, ...]:
    """Both, and what both found once."""
    found = dict[tuple[str, str, int | None], Finding]()
    for one in (*first, *second):
        found.setdefault((one.kind, one.path, one.line), one)
    return tuple(found.values())


def _link_findings(results: dict[bytes, Result]) -> Iterator[Finding]:
    """What the patch's text cannot tell: where links lead after renames and edits."""
    for path, result in sorted(results.items()):
        if result.target is not None and leaves_tree(path, result.target):
            yield Finding(
                kind="link_leaves",
                severity=Severity.BLOCK,
                path=encode_name(path),
                text=f"symlink to {visible(result.target)}",
            )
