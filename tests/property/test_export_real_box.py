"""Random trees, random edits by the untrusted user of a real box: the exported patch plus the list is the change.

`git apply` on a clean copy and our own apply both give the box's tree as SPEC E1 defines it, in both workspace modes,
and for a user who may not read all that its own box left.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import docker
import pytest
from tests.conftest import SEED
from tests.contract.boxes import make_spec
from tests.property.edit_program import draw_edits, draw_original
from tests.property.overlay_box import Operation, Seen, can_mount, describe, make_tree
from tests.property.real_box import describe_box, edit_in_box
from tests.property.test_patch_round_trip import (
    IGNORE,
    applied,
    as_git_sees,
    check_list,
    git_apply,
)

from corral.patch import apply_patch
from corral.patch.export import OBJECTS, Exporter
from corral.sandbox.base import BoxInfo
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import SandboxSpec, WorkspaceMode
from corral.schema.patch import NotExported, Patch, Reason
from corral_protocol.name import decode_name, encode_name

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not can_mount(), reason="makes trees of any owner and reads them whole: needs root"),
]

FIRST_ID = 0x70000000  # of boxes


@pytest.mark.parametrize("mode", [WorkspaceMode.OVERLAY, WorkspaceMode.COPY])
def test_patch_and_list_are_what_the_box_changed(
    mode: WorkspaceMode, sandbox_image: str, docker_engine: docker.DockerClient, rounds: Callable[[int], int]
) -> None:
    for number in range(rounds(12)):
        chance = Random(f"{SEED} {number}")
        original, edits, ignore = draw_original(chance), draw_edits(chance), chance.choice(IGNORE)
        if mode is WorkspaceMode.COPY:
            original = [one for one in original if _can_be_copied(one)]
        with tempfile.TemporaryDirectory() as name, told(number, original, edits, ignore):
            before = make_tree(Path(name) / "lower", [*original, ("write", ".gitignore", ignore)])
            done = asyncio.run(run_box(Path(name), mode, sandbox_image, docker_engine, edits))
            check(done, done.patch, before)


def test_it_holds_for_a_user_who_may_not_read_everything(
    sandbox_image: str, docker_engine: docker.DockerClient, rounds: Callable[[int], int], chance: Random
) -> None:
    """The workspace is the user's, the box has that user's ids and can close files and directories to it."""
    uid = FIRST_ID + chance.randrange(1 << 16)
    for number in range(rounds(12)):
        chance = Random(f"{SEED} {number}")
        original, edits, ignore = draw_original(chance), draw_edits(chance), chance.choice(IGNORE)
        with tempfile.TemporaryDirectory() as name, told(number, original, edits, ignore):
            lower = Path(name) / "lower"
            make_tree(lower, [*original, ("write", ".gitignore", ignore)])
            give(lower, uid)
            before = describe(os.fsencode(lower))
            done = asyncio.run(run_box(Path(name), WorkspaceMode.OVERLAY, sandbox_image, docker_engine, edits, uid))
            patch = export_as(uid, done)
            check(done, patch and settle_doubts(patch, lower, before, done.after), before)


@contextmanager
def told(number: int, original: list[Operation], edits: list[Operation], ignore: str) -> Iterator[None]:
    """A failure says what it was about."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"round {number}\noriginal={original!r}\nignore={ignore!r}\nedits={edits!r}")
        raise


@dataclass(frozen=True)
class Done:
    """One run that is over: its patch, and the tree the patch should stand for."""

    spec: SandboxSpec
    info: BoxInfo
    patch: Patch | None
    after: dict[bytes, Seen]

    @property
    def file(self) -> Path:
        return self.spec.run_dir / "patch.diff"


async def run_box(
    base: Path, mode: WorkspaceMode, image: str, client: docker.DockerClient, edits: list[Operation], uid: int = 0
) -> Done:
    """Edits, end of all processes, export. With `uid` the box has that id."""
    spec = make_spec(base / "lower", base, image, mode=mode, mask=())
    if uid:
        (spec.run_dir / "box").mkdir()
        (spec.run_dir / "box" / "uid").write_text(str(uid))
    async with DockerSandbox(spec) as box:
        assert box.info.mode is mode
        await edit_in_box(box, edits)
        await box.kill_all()
        after = await asyncio.to_thread(describe_box, client, box)
        patch = await Exporter(spec.workspace, spec.run_dir / "patch.diff").export(box)
    return Done(spec, box.info, patch, after)


def export_as(uid: int, done: Done) -> Patch | None:
    """The export again, by a process of that user."""
    run_dir = done.spec.run_dir
    shutil.rmtree(run_dir / OBJECTS, ignore_errors=True)
    done.file.unlink(missing_ok=True)
    run_dir.parent.chmod(0o755)
    for path in (run_dir, run_dir / "box", run_dir / "box" / "upper", run_dir / "baseline.jsonl"):
        os.chown(path, uid, uid)
    answer = run_dir / "answer"
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            patch = asyncio.run(Exporter(done.spec.workspace, done.file).export(_Over(done.info)))  # type: ignore[arg-type]
            answer.write_text(patch.model_dump_json() if patch else "")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    return Patch.model_validate_json(answer.read_text()) if answer.read_text() else None


@dataclass(frozen=True)
class _Over:
    """A box that is gone: its changes are in the run's directory."""

    info: BoxInfo


def check(done: Done, patch: Patch | None, before: dict[bytes, Seen]) -> None:
    if patch is None:
        assert done.after == before
        return
    lower, base = done.spec.workspace, done.spec.workspace.parent
    data = done.file.read_bytes()
    by_git = applied(base, lower, "by-git", lambda tree: git_apply(tree, done.file))
    by_us = applied(base, lower, "by-us", lambda tree: apply_all(data, tree))
    assert as_git_sees(by_us) == as_git_sees(by_git)
    check_list(patch, before, done.after, by_us)


def settle_doubts(patch: Patch, lower: Path, before: dict[bytes, Seen], after: dict[bytes, Seen]) -> Patch:
    """Who may not read a file cannot know whether it changed at all, nor of which other names it is the hard link."""
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]

    def is_doubt(one: NotExported) -> bool:
        place = decode_name(one.path).rstrip(b"/")
        is_same = not any(path == place or path.startswith(place + b"/") for path in changed)
        return one.reason is Reason.UNREADABLE and is_same

    listed = {one.path for one in patch.not_exported if one.reason is Reason.UNREADABLE}
    linked = [name for name in listed if (lower / os.fsdecode(decode_name(name))).is_file()]
    inodes = {(lower / os.fsdecode(decode_name(name))).lstat().st_ino for name in linked}
    others = [path for path in before if (lower / os.fsdecode(path)).lstat().st_ino in inodes]
    more = [NotExported(path=encode_name(path), reason=Reason.UNREADABLE) for path in others]
    return patch.model_copy(
        update={"not_exported": tuple(one for one in (*patch.not_exported, *more) if not is_doubt(one))}
    )


def apply_all(data: bytes, tree: Path) -> None:
    if data:
        apply_patch(data, tree, is_approved=True, allow_leaving_links=True)


def give(tree: Path, uid: int) -> None:
    """Everything in a tree to one user."""
    os.chown(tree, uid, uid)
    for directory, folders, files in os.walk(os.fsencode(tree)):
        for name in folders + files:
            os.chown(os.path.join(directory, name), uid, uid, follow_symlinks=False)


def _can_be_copied(operation: Operation) -> bool:
    """A copy holds no FIFO and no set-id bits, and cannot tell what changed in directories that were closed before."""
    return operation[0] != "fifo" and (operation[0] != "chmod" or operation[2] == "755")
