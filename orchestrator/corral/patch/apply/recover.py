"""Puts a workspace back to what it was before an apply that was killed half-way; nothing of anybody's is lost.

Every step looks at what stands there first, so it can itself be killed and run again. What was edited since the crash
stays as it is, and the original beside it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from corral.errors import PatchConflict
from corral.patch.apply.journal import Entry, Removal, Story, identify, load_stories, lock_workspace, remove_parts
from corral.patch.tree import list_names, lstat, open_directory, open_root, opened_parent
from corral.schema.visible import visible

_CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP)
"""Somebody went on working there since; anything else is a reason to try again later."""


@dataclass(frozen=True)
class Recovery:
    """What became of one apply that did not end."""

    workspace: Path
    outcome: str  # "rolled back", "finished" (everything was in place), or "not recovered"
    kept: tuple[str, ...] = ()
    """Originals that could not go back because something newer stands there: `path: where it is`, printable."""
    problem: str = ""


def recover_applies(workspace: Path | None = None, *, dry_run: bool = False) -> list[Recovery]:
    """Roll back what killed applies left, in one workspace or in all. Raises PatchConflict when the one that is asked
    for is being applied to right now.
    """
    done = []
    if not dry_run:
        remove_parts()
    wanted = os.path.realpath(workspace) if workspace is not None else None
    for story in load_stories():
        if isinstance(story, Path):
            if wanted is None:
                done.append(Recovery(story, "not recovered", problem="the journal cannot be read"))
            continue
        if wanted is not None and str(story.workspace) != wanted:
            continue
        try:
            found = _recover(story, dry_run=dry_run)
        except PatchConflict:
            if wanted is not None:
                raise
            continue  # alive
        except OSError as error:
            found = Recovery(story.workspace, "not recovered", problem=error.strerror or str(error))
        done += [found] if found else []
    return done


def _recover(story: Story, *, dry_run: bool) -> Recovery | None:
    if story.owner_lives:
        return None
    try:
        root = open_root(story.workspace)
    except FileNotFoundError:
        return None  # perhaps on a disk that is not mounted now
    try:
        lock_workspace(root, story.workspace)
        if not story.file.exists():
            return None  # its owner ended in order just now
        staging = lstat(story.staging, root)
        if os.fstat(root).st_ino != story.inode or staging is None:
            if not dry_run:
                story.file.unlink(missing_ok=True)
            return None
        outcome = "finished" if story.is_done else "rolled back"
        if dry_run:
            return Recovery(story.workspace, outcome)
        return Recovery(story.workspace, outcome, tuple(_Rollback(root, story).run()))
    finally:
        os.close(root)


class _Rollback:
    def __init__(self, root: int, story: Story) -> None:
        self.root = root
        self.story = story
        self.staging = open_directory(story.staging, root)
        self.kept = dict[bytes, bytes]()
        """Name in the staging directory and the path it should go to."""

    def run(self) -> list[str]:
        story = self.story
        try:
            if not story.is_done:
                self.undo()
            for name in list_names(self.staging):
                if name not in self.kept:
                    os.unlink(name, dir_fd=self.staging)
        finally:
            os.close(self.staging)
        if not self.kept:
            shutil.rmtree(story.staging, dir_fd=self.root)
        story.file.unlink(missing_ok=True)
        place = visible(story.staging)
        return [f"{visible(path)}: {place}/{visible(name)}" for name, path in self.kept.items()]

    def undo(self) -> None:
        story = self.story
        numbered = list(enumerate(story.entries))
        for number, entry in reversed(numbered):
            if entry.new is not None:
                self.undo_new(number, entry)
        for path in sorted(story.made, reverse=True):
            # Somebody's file may be in it by now: then it stays.
            self.attempt(path, lambda parent, name: os.rmdir(name, dir_fd=parent))
        for removal in reversed(story.removals):
            self.restore_directory(removal)
        for number, entry in reversed(numbered):
            if entry.leaves:
                self.put_back(number, entry)

    def undo_new(self, number: int, entry: Entry) -> None:
        """Take away what came, provided it is still just that."""
        old = lstat(b"old.%d" % number, self.staging)

        def undo(parent: int, name: bytes) -> None:
            now = lstat(name, parent)
            is_ours = now is not None and identify(now) == entry.new
            if entry.leaves or not entry.stands:
                if is_ours:
                    os.unlink(name, dir_fd=parent)
            elif old is not None and (now is None or is_ours or now.st_ino == old.st_ino):
                os.rename(b"old.%d" % number, name, src_dir_fd=self.staging, dst_dir_fd=parent)
            elif old is not None:
                self.kept[b"old.%d" % number] = entry.path

        if not self.attempt(entry.path, undo) and old is not None and not entry.leaves:
            self.kept[b"old.%d" % number] = entry.path

    def put_back(self, number: int, entry: Entry) -> None:
        name = b"old.%d" % number
        old = lstat(name, self.staging)
        if old is None:
            return

        def put(parent: int, target: bytes) -> None:
            now = lstat(target, parent)
            if now is not None:
                if now.st_ino != old.st_ino:  # else it is back already
                    self.kept[name] = entry.path
                return
            try:
                # link() never replaces what came meanwhile.
                os.link(name, target, src_dir_fd=self.staging, dst_dir_fd=parent, follow_symlinks=False)
            except OSError:  # no hard links here
                os.rename(name, target, src_dir_fd=self.staging, dst_dir_fd=parent)

        if not self.attempt(entry.path, put):
            self.kept[name] = entry.path

    def restore_directory(self, removal: Removal) -> None:
        def restore(parent: int, name: bytes) -> None:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
            below = open_directory(name, parent)
            try:
                if stat.S_IMODE(os.fstat(below).st_mode) != 0o700:
                    return  # it was never removed, or somebody made it anew
                if os.geteuid() == 0:
                    os.fchown(below, removal.uid, removal.gid)
                os.fchmod(below, removal.mode)
            finally:
                os.close(below)

        self.attempt(removal.path, restore)

    def attempt(self, path: bytes, action: Callable[[int, bytes], None]) -> bool:
        """Do something in the directory that holds `path`; False where that is not possible (any more)."""
        try:
            with opened_parent(self.root, path) as (parent, name):
                action(parent, name)
        except OSError as error:
            if error.errno not in _CHANGED:
                raise
            return False
        return True
