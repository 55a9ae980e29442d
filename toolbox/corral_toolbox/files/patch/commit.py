"""Puts staged files in place: everything is written beside its target first, then swapped; a failure swaps back."""

from __future__ import annotations

import binascii
import os

from corral_toolbox.files.atomic import (
    TEMP_PREFIX,
    describe_loss,
    lookup,
    remove_made,
    remove_quietly,
    rename_exclusive,
    require_unchanged,
    stage_bytes,
)
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.error_map import make_error, translate_os_error
from corral_toolbox.files.patch.stage import StagedFile
from corral_toolbox.files.resolve import make_parents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def commit_files(files: list[StagedFile]) -> None:
    """Write and remove all files, or leave everything as it was. Raises WireError."""
    commit = _Commit()
    current = files[0] if files else None
    try:
        try:
            for current in files:
                commit.prepare(current)
            for current in files:
                _check_fresh(current)
            for current in files:
                commit.swap(current)
        except OSError as error:
            raise translate_os_error(error, current.place.path if current else b"") from error
    except BaseException as error:
        left = commit.roll_back()
        if left:
            raise make_error(
                ErrorCode.IO_ERROR,
                left[0],
                f"could not be put back after a failure ({error})",
                f"its old content is in a {TEMP_PREFIX.decode()}old-* file beside it",
            ) from error
        raise
    finally:
        commit.close()
    commit.clean_up()


def _check_fresh(file: StagedFile) -> None:
    """Refuse when a file is no longer what the patch was worked out against."""
    if file.place.stat is not None:
        require_unchanged(file.place, file.place.stat)
    elif lookup(file.place.parent_fd, file.place.name) is not None:
        raise make_error(ErrorCode.EXISTS, file.place.path, "was created by somebody else just now", "read it")


class _Commit:
    def __init__(self) -> None:
        self._temps: dict[bytes, bytes] = {}
        self._files: list[StagedFile] = []
        self._made: list[tuple[int, bytes]] = []
        self._undo: list[tuple[bytes, Callable[[], None]]] = []
        self._backups: list[tuple[int, bytes]] = []

    def prepare(self, file: StagedFile) -> None:
        """Write the new content beside its target."""
        self._files.append(file)
        if file.new is None:
            return
        make_parents(file.place, self._made)
        self._temps[file.place.path] = stage_bytes(file.place.parent_fd, [file.new], file.mode, file.place.stat)

    def swap(self, file: StagedFile) -> None:
        """Put one file in its place, keeping the old one under another name."""
        place = file.place
        fd, name = place.parent_fd, place.name
        temp = self._temps.get(place.path)
        if place.stat is None and temp is not None:
            rename_exclusive(fd, temp, fd, name)
            self._undo.append((place.path, lambda: os.unlink(name, dir_fd=fd)))
        elif place.stat is not None:
            backup = TEMP_PREFIX + b"old-" + binascii.hexlify(os.urandom(8))
            self._back_up(file, backup, is_kept=temp is not None)
            self._backups.append((fd, backup))
            self._undo.append((place.path, lambda: _put_back(fd, backup, name)))
            if temp is not None:
                os.rename(temp, name, src_dir_fd=fd, dst_dir_fd=fd)
                file.notices += describe_loss(place.stat, lookup(fd, name))
        self._temps.pop(place.path, None)

    def _back_up(self, file: StagedFile, backup: bytes, *, is_kept: bool) -> None:
        """A second name for the old file; where links are not allowed, its only name."""
        fd, name = file.place.parent_fd, file.place.name
        if is_kept:
            try:
                os.link(name, backup, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
                return
            except OSError:
                pass
        os.rename(name, backup, src_dir_fd=fd, dst_dir_fd=fd)

    def roll_back(self) -> list[bytes]:
        """Undo what was done, newest first; gives the paths where that failed."""
        left: list[bytes] = []
        for path, undo in reversed(self._undo):
            try:
                undo()
            except OSError:
                left.append(path)
        for file in self._files:
            temp = self._temps.get(file.place.path)
            if temp is not None:
                remove_quietly(file.place.parent_fd, temp)
        remove_made(self._made)
        return left

    def clean_up(self) -> None:
        """After success: the old files go."""
        for fd, name in self._backups:
            remove_quietly(fd, name)

    def close(self) -> None:
        """Give the descriptors of created directories' parents back."""
        for fd, _ in self._made:
            os.close(fd)
        self._made = []


def _put_back(fd: int, backup: bytes, name: bytes) -> None:
    os.rename(backup, name, src_dir_fd=fd, dst_dir_fd=fd)
    remove_quietly(fd, backup)  # rename does nothing when both are still names of one file
