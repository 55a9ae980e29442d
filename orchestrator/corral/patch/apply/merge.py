"""Merges a file that the user edited since with what the patch does to it, from the blobs that the export kept."""

from __future__ import annotations

import tempfile
from pathlib import Path

from corral.errors import PatchError
from corral.patch.apply.result import merged_file
from corral.patch.apply.state import Standing
from corral.patch.git import Repository
from corral.patch.parse import FilePatch
from corral.patch.tree import file_reader

_PLAIN = (0o100644, 0o100755, None)


def merge_file(file: FilePatch, now: dict[bytes, Standing | None], objects: Path, place: Path, workspace: Path) -> bool:
    """Merge one text file. True when it merged cleanly; the result is at `merged_file(place, file)`."""
    standing = now[file.old_path] if file.old_path is not None else None
    if standing is None or standing.mode not in _PLAIN[:2] or file.new_path is None or file.binary:
        return False
    if file.old_mode not in _PLAIN or file.new_mode not in _PLAIN or not file.old_blob or not file.new_blob:
        return False
    assert file.old_path is not None
    repository = Repository(objects)
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        ours, base, theirs = (Path(scratch) / name for name in ("ours", "base", "theirs"))
        try:
            _write_blob(repository, file.old_blob, base)
            _write_blob(repository, file.new_blob, theirs)
        except PatchError:
            return False  # the run's blobs are gone: it stays a conflict
        with ours.open("wb") as stream:
            stream.writelines(file_reader(workspace, file.old_path, standing.info)())
        with (
            merged_file(place, file).open("wb") as output,
            repository.start("merge-file", "-p", str(ours), str(base), str(theirs)) as git,
        ):
            while chunk := git.stdout.read(1 << 20):
                output.write(chunk)
            return git.wait() == 0


def _write_blob(repository: Repository, blob: str, target: Path) -> None:
    with target.open("wb") as output, repository.start("cat-file", "blob", blob) as git:
        while chunk := git.stdout.read(1 << 20):
            output.write(chunk)
