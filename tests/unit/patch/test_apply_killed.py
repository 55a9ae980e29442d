"""An apply that is killed at any of its steps: the next one finds a workspace as it was, or as it shall be."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Set
from pathlib import Path

import pytest
from tests.unit.patch.box import Box, make_box, put, whiteout
from tests.unit.patch.test_apply import export, tree

from corral.cli.apply import apply as apply_command
from corral.errors import PatchConflict
from corral.patch import Recovery, apply_patch, recover_applies
from corral.patch.apply.journal import find_journals, lock_workspace
from corral.patch.tree import open_root

_STEPS = frozenset(
    {"open", "os.mkdir", "os.rename", "os.link", "os.symlink", "os.rmdir", "os.remove", "os.chmod", "os.chown"}
)
"""Audit events of what can be seen on the disk."""

Tree = dict[str, tuple[int, bytes | str]]


class Scene:
    """A workspace that is put back to its first state as often as one likes, and a patch with every kind of change."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.fill()
        self.before = tree(box.workspace)
        put(box.upper, "edit", b"edited\n")
        whiteout(box.upper, "gone")
        put(box.upper, "f-to-d/deep/in", b"inside\n")
        put(box.upper, "d-to-f", b"a file now\n")
        put(box.upper, "link", b"a file now, too\n")
        put(box.upper, "new/deep/file", b"new\n")
        (box.upper / "made").symlink_to("edit")
        self.patch = export(box)

    def fill(self) -> None:
        workspace = self.box.workspace
        for path in sorted(workspace.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for path in ("edit", "gone/away/x", "f-to-d", "d-to-f/a", "d-to-f/b/c", "stays"):
            put(workspace, path, f"the content of {path}\n".encode())
        (workspace / "link").symlink_to("edit")

    def run_killed_at(
        self, step: int, work: Callable[[], object], *, since: str = "applies", steps: Set[str] = _STEPS
    ) -> bool:
        """In a process of its own that SIGKILL ends just before its step number `step`, counted from the first with
        `since` in its path; False when it has fewer."""
        child = os.fork()
        if child == 0:
            status = 9
            try:
                _die_at(step, since, steps)
                work()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or status == 0, status
        return os.WIFSIGNALED(status)

    def apply(self) -> None:
        apply_patch(self.patch, self.box.workspace)


def _die_at(step: int, since: str, steps: Set[str]) -> None:
    left = step
    is_counting = False

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left, is_counting
        is_counting = is_counting or (event in _STEPS and since in str(arguments[0]))
        if is_counting and event in steps:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))  # what a killed one leaves there is gc's
    return Scene(make_box(tmp_path))


def list_journals() -> list[Path]:
    return sorted(find_journals().glob("*.jsonl"))


@pytest.fixture(params=[pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def stride(request: pytest.FixtureRequest) -> int:
    """Every seventh step, from any of the first seven; every one in the slow tests."""
    assert isinstance(request.param, int)
    return request.param


def test_a_kill_at_any_step_is_rolled_back_by_the_next_apply(scene: Scene, stride: int, chance: random.Random) -> None:
    workspace = scene.box.workspace
    scene.apply()
    after = tree(workspace)
    right = {"nothing to do": (scene.before, after), "rolled back": (scene.before,), "finished": (after,)}
    outcomes, step = dict[str, int](), chance.randrange(stride)
    while True:
        scene.fill()
        if not scene.run_killed_at(step, scene.apply):
            break
        half_way = tree(workspace)
        (told,) = recover_applies(workspace) or [Recovery(workspace, "nothing to do")]
        assert tree(workspace) in right[told.outcome], f"step {step}: {half_way}"
        assert (told.kept, told.problem, list_journals()) == ((), "", [])
        outcomes[told.outcome] = outcomes.get(told.outcome, 0) + 1
        step += stride
    assert tree(workspace) == after
    assert outcomes["rolled back"] > 20 // stride  # else the steps were not seen


def kill_late(scene: Scene) -> None:
    """When everything is in its place but the directories that became empty."""
    assert scene.run_killed_at(2, scene.apply, steps={"os.rmdir"})


def test_a_kill_at_any_step_of_the_recovery_loses_nothing_either(
    scene: Scene, stride: int, chance: random.Random
) -> None:
    workspace, step = scene.box.workspace, chance.randrange(stride)
    while True:
        kill_late(scene)
        if not scene.run_killed_at(step, lambda: recover_applies(workspace), since=""):
            break
        recover_applies(workspace)
        assert (tree(workspace), list_journals()) == (scene.before, []), step
        step += stride
    assert step > 20


def test_what_was_edited_since_the_kill_stays_and_the_original_beside_it(scene: Scene) -> None:
    workspace = scene.box.workspace
    kill_late(scene)
    (workspace / "edit").write_bytes(b"my own work since\n")
    (workspace / "new/deep/file").write_bytes(b"mine, too\n")
    (told,) = recover_applies(workspace)
    (kept,) = told.kept
    path, _, place = kept.partition(": ")
    assert path == "edit"
    assert (workspace / place).read_bytes() == b"the content of edit\n"
    state = tree(workspace)
    assert state.pop("edit")[1] == b"my own work since\n"
    assert state.pop("new/deep/file")[1] == b"mine, too\n"
    state.pop("new"), state.pop("new/deep"), state.pop(place), state.pop(str(Path(place).parent))
    assert state == {path: what for path, what in scene.before.items() if path != "edit"}


def test_a_journal_in_the_workspace_says_nothing(scene: Scene) -> None:
    """A repository can hold anything; only what lies in our own data directory is believed."""
    planted = scene.box.workspace / ".corral-apply-0000000000000000"
    planted.mkdir()
    (planted / "old.0").write_bytes(b"#!/bin/sh\n")
    before = tree(scene.box.workspace)
    assert recover_applies(scene.box.workspace) == []
    assert tree(scene.box.workspace) == before


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../b", "", "a//b"])
def test_a_damaged_journal_leads_nowhere(scene: Scene, path: str) -> None:
    kill_late(scene)
    (journal,) = list_journals()
    head, plan, *rest = journal.read_text().splitlines()
    story = json.loads(plan)
    story["entries"][0]["path"] = path
    journal.write_text("\n".join([head, json.dumps(story), *rest, ""]))
    half_way = tree(scene.box.workspace)
    assert recover_applies() == [Recovery(journal, "not recovered", problem="the journal cannot be read")]
    assert tree(scene.box.workspace) == half_way


def test_two_applies_at_once_are_refused(scene: Scene) -> None:
    workspace = scene.box.workspace
    root = open_root(workspace)
    lock_workspace(root, workspace)
    try:
        with pytest.raises(PatchConflict, match="another corral apply is at work"):
            scene.apply()
    finally:
        os.close(root)
    assert (tree(workspace), list_journals()) == (scene.before, [])


def test_the_command_says_what_it_rolled_back(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    kill_late(scene)
    file = scene.box.base / "a.patch"
    file.write_bytes(scene.patch)
    half_way = tree(scene.box.workspace)
    try:
        apply_command(str(file), directory=scene.box.workspace, dry_run=True)
    except PatchConflict:
        pass  # half-way, it may not fit
    assert tree(scene.box.workspace) == half_way
    assert "would be rolled back" in capsys.readouterr().err
    assert apply_command(str(file), directory=scene.box.workspace) == 0
    told = capsys.readouterr()
    assert f"an interrupted apply in {str(scene.box.workspace)!r} was rolled back" in told.err
    assert "applied: " in told.out
    assert (scene.box.workspace / "new/deep/file").read_bytes() == b"new\n"
