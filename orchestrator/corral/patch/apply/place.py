"""Puts planned results into the workspace: all of them or none, by descriptors, never through a link.

Everything is staged in one directory inside the workspace first, so that a full disk shows before anything moved. What
is replaced moves into the same directory and goes back if a later step fails. After a crash in between, the journal
tells the next apply how to go back.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from corral.errors import PatchConflict, PatchError
from corral.patch.apply.journal import Entry, Journal, identify, open_journal
from corral.patch.apply.plan import ApplyPlan, Step
from corral.patch.tree import CHUNK, lstat, open_directory, opened_parent, opened_root
from corral.schema.patch import Severity
from corral.schema.path import show_path
from corral.schema.visible import visible

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def apply_plan(plan: ApplyPlan, *, is_approved: bool = False, allow_leaving_links: bool = False) -> None:
    """Carry out a plan. Raises PatchError where it needs a yes or is blocked, PatchConflict when a file changed since
    the plan was made; after any failure the workspace is as it was.
    """
    _require_approval(plan, is_approved=is_approved, allow_leaving_links=allow_leaving_links)
    if not plan.steps:
        return
    try:
        with opened_root(plan.workspace) as root, open_journal(plan.workspace, root) as journal:
            _Placement(root, plan.steps, journal).run()
    except OSError as error:
        reason = error.strerror or str(error)
        raise PatchError(f"the patch could not be applied: {reason}", hint="nothing was applied") from error


def _require_approval(plan: ApplyPlan, *, is_approved: bool, allow_leaving_links: bool) -> None:
    for finding in plan.findings:
        shown = f"{show_path(finding.path)}: {finding.text}"
        # SECURITY: blocked by default, whoever asks (test_blocks_symlink_that_leaves_the_workspace).
        if finding.severity is Severity.BLOCK and not (finding.kind == "link_leaves" and allow_leaving_links):
            way = (
                "; corral apply --allow-leaving-links applies it all the same" if finding.kind == "link_leaves" else ""
            )
            raise PatchError(f"the patch is blocked: {shown}", hint=f"nothing was applied{way}", code="patch_blocked")
        if finding.severity is Severity.ASK and not is_approved:
            raise PatchError(
                f"the patch needs a yes: {shown}",
                hint="nothing was applied; once you have looked at the findings: corral apply --yes",
                code="patch_needs_approval",
            )


class _Placement:
    def __init__(self, root: int, steps: tuple[Step, ...], journal: Journal) -> None:
        self.root = root
        self.steps = steps
        self.journal = journal
        self.undo = list[Callable[[], None]]()
        self.name = journal.staging
        self.staging = -1

    def run(self) -> None:
        try:
            os.mkdir(self.name, 0o700, dir_fd=self.root)
        except OSError:
            self.journal.forget()
            raise
        try:
            self.staging = open_directory(self.name, self.root)
            for number, step in enumerate(self.steps):
                self.stage(number, step)
            self.check_unchanged()
            self.write_plan()
            self.move()
            self.journal.finish()
        except BaseException:
            self.roll_back()
            raise
        finally:
            if self.staging >= 0:
                os.close(self.staging)
        self.clean_up()

    def clean_up(self) -> None:
        shutil.rmtree(self.name, dir_fd=self.root)
        self.journal.forget()

    def roll_back(self) -> None:
        try:
            for step in reversed(self.undo):
                step()
        except OSError as error:
            raise PatchError(
                f"undoing a half-applied patch failed: {error.strerror}",
                hint=f"the original files are in {visible(self.name)!r} in the workspace; corral gc tries again",
            ) from error
        self.clean_up()

    def write_plan(self) -> None:
        """What recover.py needs to undo the rest if this process does not get to it."""
        entries, made = [], dict[bytes, None]()
        for number, step in enumerate(self.steps):
            new = lstat(b"new.%d" % number, self.staging) if step.after is not None else None
            stands = step.before is not None and not step.before.is_directory
            entries.append(Entry(step.path, stands, _leaves(step), identify(new) if new else None))
            if new is not None:
                made |= dict.fromkeys(self.missing_directories(step.path))
        self.journal.plan(entries, list(made))

    def missing_directories(self, path: bytes) -> Iterator[bytes]:
        """Those above a path that will have to be made."""
        parts = path.split(b"/")
        for depth in range(1, len(parts)):
            above = b"/".join(parts[:depth])
            try:
                with self.parent(above) as (parent, name):
                    info = lstat(name, parent)
            except (FileNotFoundError, NotADirectoryError):
                info = None
            if info is None or not stat.S_ISDIR(info.st_mode):
                yield above

    def stage(self, number: int, step: Step) -> None:
        """Write the new entry of one path, complete with mode and owner, under a name of ours."""
        after, name = step.after, b"new.%d" % number
        if after is None:
            return
        if after.target is not None:
            os.symlink(after.target, name, dir_fd=self.staging)
            self.give(name, step)
            return
        assert after.content is not None
        descriptor = os.open(name, _NEW_FILE, 0o777 if after.mode == 0o100755 else 0o666, dir_fd=self.staging)
        with os.fdopen(descriptor, "wb") as output, after.content.open("rb") as source:
            shutil.copyfileobj(source, output, CHUNK)
            self.give(name, step)
            old = step.before
            if old is not None and stat.S_ISREG(old.info.st_mode):
                os.fchmod(descriptor, _new_mode(old.info.st_mode, after.mode))

    def give(self, name: bytes, step: Step) -> None:
        """As root: to the owner of what it replaces, else of the directory it goes to."""
        if os.geteuid() != 0:
            return
        owner = step.before.info if step.before is not None else self.nearest_directory(step.path)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=self.staging, follow_symlinks=False)

    def nearest_directory(self, path: bytes) -> os.stat_result:
        current, info = os.dup(self.root), os.fstat(self.root)
        try:
            for part in path.split(b"/")[:-1]:
                try:
                    below = open_directory(part, current)
                except (FileNotFoundError, NotADirectoryError):
                    break
                os.close(current)
                current, info = below, os.fstat(below)
        finally:
            os.close(current)
        return info

    def check_unchanged(self) -> None:
        """Between plan and now the user may have worked on."""
        for step in self.steps:
            try:
                with self.parent(step.path) as (parent, name):
                    info = lstat(name, parent)
            except (FileNotFoundError, NotADirectoryError):
                info = None
            was = step.before.identity if step.before is not None else None
            now = (info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns) if info else None
            is_directory = info is not None and stat.S_ISDIR(info.st_mode)
            if was != now and not (is_directory and step.before is not None and step.before.is_directory):
                shown = visible(step.path)
                raise PatchConflict(f"{shown!r} changed meanwhile", hint="nothing was applied", paths=(shown,))

    def move(self) -> None:
        """Removals, then replacements and new files, then the directories that the patch emptied."""
        numbered = list(enumerate(self.steps))
        leaving = [(number, step) for number, step in numbered if _leaves(step)]
        for number, step in leaving:
            self.take_away(number, step.path)
        for number, step in numbered:
            if step.after is None:
                continue
            if step.before is not None and not step.before.is_directory and not _leaves(step):
                self.replace(number, step.path)
            else:
                self.create(number, step)
        for _, step in leaving:
            self.remove_emptied(step.path)

    def take_away(self, number: int, path: bytes) -> None:
        with self.parent(path) as (parent, name):
            self.rename(name, parent, b"old.%d" % number, self.staging)
        self.undo.append(lambda: self.put_back(number, path))

    def put_back(self, number: int, path: bytes) -> None:
        with self.parent(path) as (parent, name):
            self.rename(b"old.%d" % number, self.staging, name, parent)

    def replace(self, number: int, path: bytes) -> None:
        """Atomic for whoever reads the file meanwhile: there is always the old or the new one."""
        with self.parent(path) as (parent, name):
            try:
                os.link(name, b"old.%d" % number, src_dir_fd=parent, dst_dir_fd=self.staging, follow_symlinks=False)
            except OSError:  # no hard links here: a moment without the file
                self.rename(name, parent, b"old.%d" % number, self.staging)
            self.undo.append(lambda: self.put_back(number, path))
            self.rename(b"new.%d" % number, self.staging, name, parent)

    def create(self, number: int, step: Step) -> None:
        if step.before is not None and step.before.is_directory:
            self.remove_directory(step.path)
        self.make_parents(step.path)
        with self.parent(step.path) as (parent, name):
            # SECURITY: link() never replaces what came meanwhile (test_never_overwrites_a_new_file).
            try:
                os.link(b"new.%d" % number, name, src_dir_fd=self.staging, dst_dir_fd=parent, follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK) or lstat(name, parent) is not None:
                    raise
                self.rename(b"new.%d" % number, self.staging, name, parent)
        self.undo.append(lambda: self.unlink(step.path))

    def unlink(self, path: bytes) -> None:
        with self.parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def make_parents(self, path: bytes) -> None:
        parts = path.split(b"/")
        for depth in range(1, len(parts)):
            above = b"/".join(parts[:depth])
            with self.parent(above) as (parent, name):
                if lstat(name, parent) is not None:
                    continue
                os.mkdir(name, 0o777, dir_fd=parent)
                self.undo.append(lambda above=above: self.rmdir(above))  # type: ignore[misc]
                if os.geteuid() == 0:
                    owner = os.fstat(parent)
                    os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)

    def remove_directory(self, path: bytes) -> None:
        """Remove a directory that holds nothing but directories, so that a file can stand there."""
        with self.parent(path) as (parent, name):
            below = open_directory(name, parent)
            try:
                names = os.listdir(below)
            finally:
                os.close(below)
        for entry in names:
            self.remove_directory(path + b"/" + os.fsencode(entry))
        self.rmdir_undoably(path)

    def remove_emptied(self, path: bytes) -> None:
        """Remove the parents of a removed file that are empty now, as git does."""
        while b"/" in path:
            path = path.rpartition(b"/")[0]
            try:
                self.rmdir_undoably(path)
            except OSError:
                return

    def rmdir_undoably(self, path: bytes) -> None:
        with self.parent(path) as (parent, name):
            info = os.lstat(name, dir_fd=parent)
            if not stat.S_ISDIR(info.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "a file stands there")
            self.journal.remove_directory(path, info)
            os.rmdir(name, dir_fd=parent)
        self.undo.append(lambda: self.restore_directory(path, info))

    def restore_directory(self, path: bytes, info: os.stat_result) -> None:
        with self.parent(path) as (parent, name):
            os.mkdir(name, 0o700, dir_fd=parent)
            if os.geteuid() == 0:
                os.chown(name, info.st_uid, info.st_gid, dir_fd=parent, follow_symlinks=False)
            descriptor = open_directory(name, parent)
            try:
                os.fchmod(descriptor, stat.S_IMODE(info.st_mode))
            finally:
                os.close(descriptor)

    def rmdir(self, path: bytes) -> None:
        with self.parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)

    def rename(self, name: bytes, parent: int, target: bytes, target_parent: int) -> None:
        os.rename(name, target, src_dir_fd=parent, dst_dir_fd=target_parent)

    @contextmanager
    def parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """The directory that holds `path`."""
        with opened_parent(self.root, path) as found:
            yield found


def _leaves(step: Step) -> bool:
    """Whether what stands there moves away before anything new comes: it goes, or its kind changes."""
    before = step.before
    if before is None or before.is_directory:
        return False
    return step.after is None or (step.after.target is not None) != stat.S_ISLNK(before.info.st_mode)


def _new_mode(old: int, git_mode: int) -> int:
    """The permission bits a file keeps when its content is replaced: its own, the executable bits as the patch says."""
    bits = stat.S_IMODE(old) & 0o777
    if git_mode == 0o100755:
        return bits | ((bits & 0o444) >> 2)
    return bits & ~0o111
