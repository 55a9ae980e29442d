"""Random trees, random edits by the untrusted user of a real box: the exported patch plus the list is the change.

`git apply` on a clean copy and our own apply both give the box's tree as SPEC E1 defines it, in both workspace modes,
and for a user who may not read all that its own box left.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
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
from tests.support.command import SOCKET, User, find_user

from corral.patch import apply_patch
from corral.patch.export import Exporter
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import WorkspaceMode
from corral.schema.patch import NotExported, Patch, Reason
from corral_protocol.name import decode_name

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not can_mount(), reason="makes trees of any owner and reads them whole: needs root"),
]

USER = 54323


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
    sandbox_image: str, docker_engine: docker.DockerClient, rounds: Callable[[int], int]
) -> None:
    """The workspace is the user's, the box has that user's ids and can close files and directories to it."""
    home = Path(tempfile.mkdtemp(prefix="corral-user-"))
    try:
        os.chown(home, USER, USER)
        user = find_user(USER, (SOCKET.stat().st_gid,) if SOCKET.exists() else (), home)
        for number in range(rounds(12)):
            chance = Random(f"{SEED} {number}")
            original, edits, ignore = draw_original(chance), draw_edits(chance), chance.choice(IGNORE)
            with tempfile.TemporaryDirectory(dir=home) as name, told(number, original, edits, ignore):
                lower = Path(name) / "lower"
                make_tree(lower, [*original, ("write", ".gitignore", ignore)])
                give(Path(name))
                before = describe(os.fsencode(lower))
                done = run_as(user, Path(name), sandbox_image, docker_engine, edits)
                check(done, done.patch and settle_doubts(done.patch, before, done.after), before)
    finally:
        shutil.rmtree(home)


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

    workspace: Path
    file: Path
    patch: Patch | None
    after: dict[bytes, Seen]


async def run_box(
    base: Path, mode: WorkspaceMode, image: str, client: docker.DockerClient, edits: list[Operation]
) -> Done:
    """Edits, end of all processes, export."""
    spec = make_spec(base / "lower", base, image, mode=mode, mask=())
    async with DockerSandbox(spec) as box:
        assert box.info.mode is mode
        await edit_in_box(box, edits)
        await box.kill_all()
        after = await asyncio.to_thread(describe_box, client, box.info.box_id)
        patch = await Exporter(spec.workspace, spec.run_dir / "patch.diff").export(box)
    return Done(spec.workspace, spec.run_dir / "patch.diff", patch, after)


def run_as(user: User, base: Path, image: str, client: docker.DockerClient, edits: list[Operation]) -> Done:
    """The same by another user."""
    command = [user.python, "-m", "tests.property.user_run"]
    order = json.dumps({"base": str(base), "image": image, "operations": edits})
    with subprocess.Popen(
        command,
        env={"PATH": os.environ["PATH"], "DOCKER_HOST": f"unix://{SOCKET}"} | user.env,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=user.uid,
        group=user.uid,
        extra_groups=user.groups,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(order + "\n")
        process.stdin.flush()
        started = json.loads(process.stdout.readline())
        after = describe_box(client, started["box"])
        text, _ = process.communicate("\n")
    assert process.returncode == 0
    patch = Patch.model_validate_json(text) if text.strip() else None
    return Done(base / "lower", Path(started["run_dir"]) / "patch.diff", patch, after)


def check(done: Done, patch: Patch | None, before: dict[bytes, Seen]) -> None:
    if patch is None:
        assert done.after == before
        return
    lower, base = done.workspace, done.workspace.parent
    data = done.file.read_bytes()
    by_git = applied(base, lower, "by-git", lambda tree: git_apply(tree, done.file))
    by_us = applied(base, lower, "by-us", lambda tree: apply_all(data, tree))
    assert as_git_sees(by_us) == as_git_sees(by_git)
    check_list(patch, before, done.after, by_us)


def settle_doubts(patch: Patch, before: dict[bytes, Seen], after: dict[bytes, Seen]) -> Patch:
    """Without what was touched, cannot be read and did not change: who may not read it cannot know."""
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]

    def is_doubt(one: NotExported) -> bool:
        place = decode_name(one.path).rstrip(b"/")
        is_same = not any(path == place or path.startswith(place + b"/") for path in changed)
        return one.reason is Reason.UNREADABLE and is_same

    return patch.model_copy(update={"not_exported": tuple(one for one in patch.not_exported if not is_doubt(one))})


def apply_all(data: bytes, tree: Path) -> None:
    if data:
        apply_patch(data, tree, is_approved=True, allow_leaving_links=True)


def give(tree: Path) -> None:
    """Everything in a tree to that user."""
    os.chown(tree, USER, USER)
    for directory, folders, files in os.walk(os.fsencode(tree)):
        for name in folders + files:
            os.chown(os.path.join(directory, name), USER, USER, follow_symlinks=False)


def _can_be_copied(operation: Operation) -> bool:
    """A copy holds no FIFO and no set-id bits, and cannot tell what changed in directories that were closed before."""
    return operation[0] != "fifo" and (operation[0] != "chmod" or operation[2] == "755")
