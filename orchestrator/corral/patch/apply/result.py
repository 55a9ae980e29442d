"""Computes the files a patch makes, with `git apply` in a throw-away directory of ours."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corral.errors import PatchConflict, PatchError, PatchInvalid
from corral.patch.apply.state import Standing, blob_id, is_blob
from corral.patch.git import Repository
from corral.patch.parse import FilePatch, ParsedPatch
from corral.patch.tree import MAX_LINK, file_reader, list_names, lstat, open_directory, opened_root
from corral.schema.visible import visible


@dataclass(frozen=True)
class Result:
    """One file as the patch makes it: content in a file of ours, or the target of a link."""

    mode: int  # git's
    content: Path | None = None
    target: bytes | None = None

    @classmethod
    def of_merge(cls, file: FilePatch, place: Path, now: dict[bytes, Standing | None]) -> Result:
        """The merged content that merge_file left."""
        standing = now[file.old_path] if file.old_path is not None else None
        mode = standing.mode if standing is not None and file.old_mode == file.new_mode else file.new_mode
        return cls(mode or 0o100644, merged_file(place, file))


def merged_file(place: Path, file: FilePatch) -> Path:
    return place / f"merged-{file.line}"


def compute_results(
    repository: Repository,
    patch: ParsedPatch,
    files: list[FilePatch],
    now: dict[bytes, Standing | None],
    workspace: Path,
) -> dict[bytes, Result]:
    """Apply the parts of the patch that concern `files` to copies. Raises PatchConflict or PatchInvalid."""
    if not files:
        return {}
    tree = repository.work_tree
    before = {file.old_path for file in files if file.old_path is not None}
    for path in before:
        _copy_in(tree, path, now[path], workspace)
    try:
        with repository.start("apply", "--whitespace=nowarn", "-p1", "-", stdin=True) as git:
            for file in files:
                git.write(patch.data[file.start : file.end])
    except PatchError as error:
        raise _explain(error, files) from error
    return _check(tree, files, before)


def _explain(error: PatchError, files: list[FilePatch]) -> PatchError:
    if any(file.old_blob is None and file.hunks for file in files):
        return PatchConflict(
            f"the patch does not fit the workspace: {error.message}",
            hint="nothing was applied",
            paths=tuple(visible(file.path) for file in files),
        )
    return PatchInvalid(f"the patch is damaged: {error.message}", hint="nothing was applied")


def _copy_in(tree: Path, path: bytes, standing: Standing | None, workspace: Path) -> None:
    """Put a copy of what stands in the workspace into the throw-away directory."""
    assert standing is not None
    place = os.path.join(os.fsencode(tree), path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if standing.target is not None:
        os.symlink(standing.target, place)
        return
    mode = 0o755 if standing.mode == 0o100755 else 0o644
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        for chunk in file_reader(workspace, path, standing.info)():
            stream.write(chunk)


def _check(tree: Path, files: list[FilePatch], before: set[bytes]) -> dict[bytes, Result]:
    """What git made, provided it is just what our own reading of the patch allows."""
    with opened_root(tree) as root:
        found = dict(_scan(tree, b"", root))
    expected = {file.new_path for file in files if file.new_path is not None}
    # SECURITY: git may read a crafted patch differently than we did (test_blocks_a_patch_that_git_reads_differently).
    if set(found) != expected:
        odd = sorted(visible(path) for path in set(found) ^ expected)
        raise PatchInvalid(f"the patch does something else than its headers say, at {odd[0]!r}")
    for file in files:
        if file.new_path is None:
            continue
        result = found[file.new_path]
        is_link = result.mode == 0o120000
        if file.new_mode is not None and is_link != (file.new_mode == 0o120000):
            raise PatchInvalid(f"the patch makes {visible(file.new_path)!r} another kind than its headers say")
        if file.old_blob is not None and is_blob(file.new_blob, _blob(result)) is False:
            raise PatchInvalid(f"the patch is damaged: {visible(file.new_path)!r} does not get the content it names")
    return {path: found[path] for path in expected}


def _blob(result: Result) -> str:
    if result.target is not None:
        return blob_id([result.target], len(result.target))
    assert result.content is not None
    with result.content.open("rb") as stream:
        return blob_id(iter(lambda: stream.read(1 << 20), b""), result.content.stat().st_size)


def _scan(tree: Path, path: bytes, directory: int) -> Iterator[tuple[bytes, Result]]:
    for name in list_names(directory):
        info = lstat(name, directory)
        here = path + b"/" + name if path else name
        if info is None:
            continue
        if stat.S_ISDIR(info.st_mode):
            below = open_directory(name, directory)
            try:
                yield from _scan(tree, here, below)
            finally:
                os.close(below)
        elif stat.S_ISLNK(info.st_mode):
            yield here, Result(0o120000, target=os.readlink(name, dir_fd=directory)[:MAX_LINK])
        else:
            mode = 0o100755 if info.st_mode & 0o100 else 0o100644
            yield here, Result(mode, content=Path(os.fsdecode(os.path.join(os.fsencode(tree), here))))
