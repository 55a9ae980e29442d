"""A patch onto a workspace: all or nothing, on an unchanged base, without git in the user's repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.unit.patch.box import Box, make_box, make_opaque, put, whiteout

from corral.errors import PatchConflict, PatchError, PatchInvalid
from corral.patch import apply_patch, apply_plan, build_patch, plan_apply


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return make_box(tmp_path)


def tree(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """Everything below a directory: mode, and content or link target."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b"",
        )
        for path in root.rglob("*")
    }


def export(box: Box) -> bytes:
    build_patch(box.collect(), box.patch_file, keep=box.base / "objects")
    return box.patch_file.read_bytes()


def test_applies_every_kind_of_change(box: Box) -> None:
    for path in ("edit", "gone/away/x", "f-to-d", "d-to-f/a", "d-to-f/b/c", "old/name"):
        put(box.workspace, path, f"the content of {path}\n".encode() * 9)
    put(box.workspace, "script", b"#!/bin/sh\n")
    (box.workspace / "link").symlink_to("edit")
    put(box.upper, "edit", b"edited\n")
    whiteout(box.upper, "gone")
    put(box.upper, "f-to-d/in", b"inside\n")
    put(box.upper, "d-to-f", b"a file now\n")
    whiteout(box.upper, "old")
    put(box.upper, "new/name", b"the content of old/name\n" * 9)
    put(box.upper, "script", b"#!/bin/sh\n", 0o755)
    put(box.upper, "link", b"a file now, too\n")
    (box.upper / "made").symlink_to("edit")
    put(box.upper, "empty")
    put(box.upper, "bin", b"\0\1")
    apply_patch(export(box), box.workspace)
    files = {name: content for name, (mode, content) in tree(box.workspace).items() if mode & 0o170000 != 0o040000}
    assert files == {
        "edit": b"edited\n",
        "f-to-d/in": b"inside\n",
        "d-to-f": b"a file now\n",
        "new/name": b"the content of old/name\n" * 9,
        "script": b"#!/bin/sh\n",
        "link": b"a file now, too\n",
        "made": "edit",
        "empty": b"",
        "bin": b"\0\1",
    }
    assert (box.workspace / "script").stat().st_mode & 0o777 == 0o755
    assert not (box.workspace / "gone").exists()


def test_a_second_time_is_told_as_applied_already(box: Box) -> None:
    put(box.workspace, "a", b"1\n")
    put(box.workspace, "gone", b"g\n")
    put(box.workspace, "mode", b"m\n")
    put(box.upper, "a", b"2\n")
    put(box.upper, "new", b"n\n")
    put(box.upper, "mode", b"m\n", 0o755)
    whiteout(box.upper, "gone")
    data = export(box)
    apply_patch(data, box.workspace)
    before = tree(box.workspace)
    plan = apply_patch(data, box.workspace)
    assert (plan.is_applied_already, plan.skipped, tree(box.workspace)) == (True, ("a", "gone", "mode", "new"), before)


def test_what_is_done_already_is_skipped_and_the_rest_applied(box: Box) -> None:
    put(box.workspace, "a", b"1\n")
    put(box.workspace, "b", b"1\n")
    put(box.upper, "a", b"2\n")
    put(box.upper, "b", b"2\n")
    data = export(box)
    put(box.workspace, "a", b"2\n")
    plan = apply_patch(data, box.workspace)
    assert (plan.skipped, (box.workspace / "b").read_bytes()) == (("a",), b"2\n")


def test_edits_underneath_are_conflicts_and_nothing_is_applied(box: Box) -> None:
    lines = [b"line %d\n" % n for n in range(60)]
    for name in ("a.py", "b.py", "c.py"):
        put(box.workspace, name, b"".join(lines))
        put(box.upper, name, b"".join([*lines[:4], b"AGENT\n", *lines[5:]]))
    data = export(box)
    put(box.workspace, "a.py", b"".join([*lines[:4], b"USER\n", *lines[5:]]))
    put(box.workspace, "b.py", b"".join([*lines[:49], b"USER\n", *lines[50:]]))
    before = tree(box.workspace)
    with pytest.raises(PatchConflict) as caught:
        apply_patch(data, box.workspace)
    assert (caught.value.paths, tree(box.workspace)) == (("a.py", "b.py"), before)


def test_three_way_merges_what_does_not_overlap(box: Box) -> None:
    lines = [b"line %d\n" % n for n in range(60)]
    put(box.workspace, "b.py", b"".join(lines))
    put(box.upper, "b.py", b"".join([*lines[:4], b"AGENT\n", *lines[5:]]))
    put(box.upper, "new", b"n\n")
    data = export(box)
    put(box.workspace, "b.py", b"".join([*lines[:49], b"USER\n", *lines[50:]]), 0o600)
    plan = apply_patch(data, box.workspace, three_way=True, objects=box.base / "objects")
    merged = b"".join([*lines[:4], b"AGENT\n", *lines[5:49], b"USER\n", *lines[50:]])
    assert (plan.merged, tree(box.workspace)) == (("b.py",), {"b.py": (0o100600, merged), "new": (0o100644, b"n\n")})


def test_three_way_refuses_what_overlaps(box: Box) -> None:
    put(box.workspace, "a", b"1\n2\n3\n")
    put(box.workspace, "other", b"1\n")
    put(box.upper, "a", b"1\nAGENT\n3\n")
    put(box.upper, "other", b"2\n")
    data = export(box)
    put(box.workspace, "a", b"1\nUSER\n3\n")
    before = tree(box.workspace)
    with pytest.raises(PatchConflict) as caught:
        apply_patch(data, box.workspace, three_way=True, objects=box.base / "objects")
    assert (caught.value.paths, tree(box.workspace)) == (("a",), before)


@pytest.mark.parametrize("stands", ["file", "directory", "link", "fifo"])
def test_a_new_file_never_replaces_what_stands_there(box: Box, stands: str) -> None:
    put(box.upper, "new", b"n\n")
    data = export(box)
    place = box.workspace / "new"
    if stands == "file":
        place.write_bytes(b"user")
    elif stands == "directory":
        put(box.workspace, "new/user", b"u")
    elif stands == "link":
        place.symlink_to("nowhere")
    else:
        os.mkfifo(place)
    with pytest.raises(PatchConflict, match="'new' exists already"):
        apply_patch(data, box.workspace)
    assert os.path.lexists(place)


def test_a_removed_or_replaced_original_is_a_conflict(box: Box) -> None:
    for name in ("a", "b"):
        put(box.workspace, name, b"1\n")
        put(box.upper, name, b"2\n")
    data = export(box)
    (box.workspace / "a").unlink()
    (box.workspace / "b").unlink()
    (box.workspace / "b").symlink_to("c")
    with pytest.raises(PatchConflict) as caught:
        apply_patch(data, box.workspace)
    assert caught.value.paths == ("a", "b")


def test_a_change_between_plan_and_apply_is_a_conflict(box: Box) -> None:
    put(box.workspace, "a", b"1\n")
    put(box.workspace, "b", b"1\n")
    put(box.upper, "a", b"2\n")
    put(box.upper, "b", b"2\n")
    with plan_apply(export(box), box.workspace) as plan:
        put(box.workspace, "b", b"user\n")
        before = tree(box.workspace)
        with pytest.raises(PatchConflict, match="changed meanwhile"):
            apply_plan(plan)
    assert tree(box.workspace) == before


def test_a_failure_half_way_undoes_everything(box: Box) -> None:
    """A directory that may not be written to fails the last step, after removals, replacements and new directories."""
    put(box.workspace, "a", b"1\n")
    put(box.workspace, "d/gone", b"nothing like the others\n")
    put(box.workspace, "kind/x", b"x, and nothing else\n")
    put(box.workspace, "z/file", b"z\n")
    put(box.upper, "a", b"2\n")
    put(box.upper, "kind", b"a file now\n")
    whiteout(box.upper, "d")
    put(box.upper, "new/deep/f", b"n\n")
    put(box.upper, "z/made", b"m\n")
    with plan_apply(export(box), box.workspace) as plan:
        put(box.workspace, "z/made/sub/user", b"came after the plan, below a directory\n")
        before = tree(box.workspace)
        steps = [step for step in plan.steps if step.path != b"z/made"]
        plan.steps = (*steps, *(step for step in plan.steps if step.path == b"z/made"))
        with pytest.raises(PatchError):
            apply_plan(plan)
    assert tree(box.workspace) == before


def test_modes_of_replaced_files_stay_and_new_ones_follow_the_umask(box: Box) -> None:
    put(box.workspace, "private", b"1\n", 0o600)
    put(box.workspace, "tool", b"1\n", 0o640)
    put(box.upper, "private", b"2\n", 0o600)
    put(box.upper, "tool", b"2\n", 0o750)
    put(box.upper, "new/tool", b"#!\n", 0o755)
    data = export(box)
    before = os.umask(0o077)
    try:
        apply_patch(data, box.workspace)
    finally:
        os.umask(before)
    modes = {name: oct(mode & 0o777) for name, (mode, _) in tree(box.workspace).items()}
    assert modes == {"private": "0o600", "tool": "0o750", "new": "0o700", "new/tool": "0o700"}


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_root_gives_files_to_the_owner_of_the_directory(box: Box) -> None:
    put(box.workspace, "theirs/a", b"1\n")
    for path in ("theirs", "theirs/a"):
        os.chown(box.workspace / path, 1234, 2345)
    put(box.upper, "theirs/a", b"2\n")
    put(box.upper, "theirs/new/b", b"b\n")
    apply_patch(export(box), box.workspace)
    owners = {
        str(path.relative_to(box.workspace)): (path.stat().st_uid, path.stat().st_gid)
        for path in box.workspace.rglob("*")
    }
    assert owners == dict.fromkeys(["theirs", "theirs/a", "theirs/new", "theirs/new/b"], (1234, 2345))


def test_directories_the_user_left_empty_stay(box: Box) -> None:
    (box.workspace / "d/empty").mkdir(parents=True)
    put(box.workspace, "d/x", b"x\n")
    put(box.workspace, "e/f/y", b"y\n")
    whiteout(box.upper, "d/x")
    whiteout(box.upper, "e")
    apply_patch(export(box), box.workspace)
    assert sorted(tree(box.workspace)) == ["d", "d/empty"]


def test_dirty_files_the_patch_does_not_name_stay(box: Box) -> None:
    put(box.workspace, "b.txt", b"b\n")
    put(box.upper, "b.txt", b"b\nagent\n")
    data = export(box)
    put(box.workspace, "a.txt", b"wip\n")
    put(box.workspace, "untracked.txt", b"u\n")
    apply_patch(data, box.workspace)
    contents = {name: content for name, (_, content) in tree(box.workspace).items()}
    assert contents == {"a.txt": b"wip\n", "b.txt": b"b\nagent\n", "untracked.txt": b"u\n"}


def test_opaque_directories_round_trip(box: Box) -> None:
    put(box.workspace, "d/old", b"old, unlike anything\n")
    make_opaque(box.upper, "d")
    put(box.upper, "d/new", b"n\n")
    apply_patch(export(box), box.workspace)
    assert sorted(tree(box.workspace)) == ["d", "d/new"]


def test_a_plain_unified_diff_applies_by_its_context(box: Box) -> None:
    put(box.workspace, "a", b"1\n2\n3\n")
    data = b"--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+TWO\n 3\n"
    apply_patch(data, box.workspace)
    assert (box.workspace / "a").read_bytes() == b"1\nTWO\n3\n"
    with pytest.raises(PatchConflict):
        apply_patch(data, box.workspace)


def test_findings_that_ask_need_a_yes(box: Box) -> None:
    put(box.upper, ".github/workflows/x.yml", b"on: push\n")
    data = export(box)
    with pytest.raises(PatchError, match="is run by GitHub Actions") as caught:
        apply_patch(data, box.workspace)
    assert (caught.value.code, tree(box.workspace)) == ("patch_needs_approval", {})
    assert caught.value.hint is not None and "corral apply --yes" in caught.value.hint
    apply_patch(data, box.workspace, is_approved=True)
    assert (box.workspace / ".github/workflows/x.yml").read_bytes() == b"on: push\n"


@pytest.mark.parametrize("damage", ["strip", "cut", "flip", "mail"])
def test_damaged_patches_are_refused(box: Box, damage: str) -> None:
    put(box.workspace, "a", b"1\n2\n\n")
    put(box.upper, "a", b"1\nTWO\n\n")
    data = export(box)
    if damage == "strip":
        data = data.strip()
    elif damage == "cut":
        data = data[: data.rindex(b"+TWO")]
    elif damage == "flip":
        data = data.replace(b"+TWO", b"+two")
    else:
        data = data.replace(b"\n ", b"\n")
    with pytest.raises(PatchInvalid):
        apply_patch(data, box.workspace)
    assert (box.workspace / "a").read_bytes() == b"1\n2\n\n"


def test_mail_headers_and_prose_around_are_fine(box: Box) -> None:
    put(box.workspace, "a", b"1\n")
    put(box.upper, "a", b"2\n")
    mail = (
        b"From 0000 Mon Sep 17 00:00:00 2001\nSubject: [PATCH] a\n\nwords\n---\n a | 2 +-\n\n"
        + export(box)
        + b"-- \n2.39\n"
    )
    apply_patch(mail, box.workspace)
    assert (box.workspace / "a").read_bytes() == b"2\n"


def test_git_never_runs_in_the_workspace(box: Box, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    subprocess.run(["git", "init", "-q"], cwd=box.workspace, env=environment, check=True)
    put(box.workspace, "a.txt", b"1\n")
    index = tree(box.workspace / ".git")
    put(box.upper, "a.txt", b"2\n")
    apply_patch(export(box), box.workspace)
    assert tree(box.workspace / ".git") == index
