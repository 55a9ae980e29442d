"""What the upper directory says, and what of it is exported."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.unit.patch.box import Box, changed, listed, make_box, make_opaque, put, whiteout

from corral.errors import PatchError
from corral.patch import ExportLimits
from corral.schema.patch import Reason

GIT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return make_box(tmp_path)


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *arguments], cwd=directory, env=GIT, check=True, capture_output=True)


def test_new_files_and_deep_ones_are_in_the_patch(box: Box) -> None:
    put(box.workspace, "a.txt", b"a\n")
    put(box.upper, "new.py", b"n\n")
    put(box.upper, "d/deep.py", b"m\n")
    assert changed(box.export()) == {b"new.py": "added", b"d/deep.py": "added"}


def test_a_whiteout_stands_for_everything_below(box: Box) -> None:
    put(box.workspace, "d/x", b"x")
    put(box.workspace, "d/e/y", b"y")
    put(box.workspace, "keep", b"k")
    whiteout(box.upper, "d")
    patch = box.export()
    assert (changed(patch), listed(patch)) == ({b"d/e/y": "deleted", b"d/x": "deleted"}, {})


def test_an_opaque_directory_hides_the_original(box: Box) -> None:
    put(box.workspace, "d/same", b"same")
    put(box.workspace, "d/gone", b"gone, and of no likeness to anything else")
    put(box.workspace, "d/e/deep", b"deep, and unlike every other content")
    make_opaque(box.upper, "d")
    put(box.upper, "d/same", b"same")
    put(box.upper, "d/new", b"brand new")
    assert changed(box.export()) == {b"d/gone": "deleted", b"d/e/deep": "deleted", b"d/new": "added"}


def test_a_mark_the_box_could_set_itself_is_no_mark(box: Box) -> None:
    put(box.workspace, "d/x", b"x")
    put(box.upper, "d/new", b"n")
    os.setxattr(box.upper / "d", "user.overlay.overlay.opaque", b"y")
    patch = box.export()
    assert (changed(patch), listed(patch)) == ({b"d/new": "added"}, {b"d": Reason.XATTR})


def test_touched_files_vanish(box: Box) -> None:
    put(box.workspace, "a", b"a\n")
    put(box.upper, "a", b"a\n")
    changes = box.collect()
    assert (changes.changes, changes.not_exported) == ((), ())


def test_the_executable_bit_is_exported_and_other_bits_are_listed(box: Box) -> None:
    put(box.workspace, "run.sh", b"#!/bin/sh\n")
    put(box.workspace, "private", b"p")
    put(box.upper, "run.sh", b"#!/bin/sh\n", 0o755)
    put(box.upper, "private", b"p", 0o600)
    put(box.upper, "root", b"r", 0o4755)
    patch = box.export()
    assert changed(patch) == {b"run.sh": "mode", b"root": "added"}
    assert listed(patch) == {b"private": Reason.MODE_BITS, b"root": Reason.MODE_BITS}
    assert b"old mode 100644\nnew mode 100755\n" in box.patch_file.read_bytes()


def test_files_directories_and_links_replace_each_other(box: Box) -> None:
    put(box.workspace, "d/x", b"x1")
    put(box.workspace, "f", b"f1")
    (box.workspace / "l").symlink_to("f")
    put(box.upper, "d", b"now a file")
    put(box.upper, "l/in", b"now in a directory")
    (box.upper / "f").symlink_to("d")
    assert changed(box.export()) == {
        b"d": "added",
        b"d/x": "deleted",
        b"f": "retyped",
        b"l": "deleted",
        b"l/in": "added",
    }


def test_special_files_are_listed_never_opened(box: Box) -> None:
    put(box.workspace, "was", b"w")
    os.mkfifo(box.upper / "pipe")
    os.mkfifo(box.upper / "was")
    os.mkfifo(box.workspace / "old")
    put(box.upper, "old", b"now a file")
    patch = box.export()
    assert changed(patch) == {b"was": "deleted"}
    assert listed(patch) == dict.fromkeys([b"pipe", b"was", b"old"], Reason.SPECIAL_FILE)


def test_empty_directories_are_listed(box: Box) -> None:
    (box.workspace / "was").mkdir()
    put(box.workspace, "emptied/x", b"x")
    (box.upper / "new").mkdir()
    whiteout(box.upper, "was")
    whiteout(box.upper, "emptied/x")
    patch = box.export()
    assert changed(patch) == {b"emptied/x": "deleted"}
    assert listed(patch) == dict.fromkeys([b"new/", b"was/", b"emptied/"], Reason.EMPTY_DIRECTORY)


def test_git_directories_are_never_exported(box: Box) -> None:
    put(box.workspace, ".git/HEAD", b"ref: refs/heads/main\n")
    put(box.upper, ".git/hooks/pre-commit", b"evil", 0o755)
    put(box.upper, "sub/.git/config", b"c")
    put(box.upper, "sub/f", b"x")
    put(box.upper, "lower/.GIT/config", b"c")
    put(box.upper, "short/git~1/config", b"c")
    patch = box.export()
    assert changed(patch) == {b"sub/f": "added"}
    names = [b".git/", b"sub/.git/", b"lower/.GIT/", b"short/git~1/"]
    assert listed(patch) == dict.fromkeys(names, Reason.GIT_DIR)


def test_a_removed_git_directory_does_not_matter(box: Box) -> None:
    put(box.workspace, ".git/HEAD", b"x")
    put(box.workspace, "a", b"1\n")
    whiteout(box.upper, ".git")
    put(box.upper, "a", b"2\n")
    patch = box.export()
    assert (changed(patch), listed(patch)) == ({b"a": "modified"}, {b".git/": Reason.GIT_DIR})


def test_ignored_files_follow_the_original_rules(box: Box) -> None:
    put(box.workspace, ".gitignore", b"*.log\nbuild/\n!keep.log\n")
    put(box.workspace, "deep/.gitignore", b"/only-here\n")
    put(box.workspace, ".git/info/exclude", b"# comment\nprivate\n")
    put(box.upper, ".gitignore", b"*.py\n")  # the box's own rules change nothing
    for path in ("a.log", "keep.log", "build/x/y", "deep/only-here", "only-here", "private", "m.py"):
        put(box.upper, path, b"content of " + path.encode())
    patch = box.export()
    assert changed(patch) == {
        b".gitignore": "modified",
        b"keep.log": "added",
        b"only-here": "added",
        b"m.py": "added",
    }
    assert listed(patch) == dict.fromkeys([b"a.log", b"build/", b"deep/only-here", b"private"], Reason.IGNORED)


def test_include_ignored_lifts_the_rules(box: Box) -> None:
    put(box.workspace, ".gitignore", b"*.log\n")
    put(box.upper, "a.log", b"log")
    put(box.upper, "node_modules/m", b"module")
    patch = box.export(include_ignored=True)
    assert changed(patch) == {b"a.log": "added", b"node_modules/m": "added"}


@pytest.mark.parametrize("version", ["2", "4"])
def test_tracked_files_are_exported_though_a_rule_covers_them(box: Box, version: str) -> None:
    git(box.workspace, "init", "-q")
    put(box.workspace, "lib/deep/tracked.py", b"1\n")
    put(box.workspace, "lib/deep/untracked.py", b"1\n")
    put(box.workspace, "t.log", b"1\n")
    git(box.workspace, "add", "lib/deep/tracked.py", "t.log")
    git(box.workspace, "update-index", "--index-version", version)
    put(box.workspace, ".gitignore", b"lib/\n*.log\n")
    for path in ("lib/deep/tracked.py", "lib/deep/untracked.py", "t.log", "u.log"):
        put(box.upper, path, b"2\n")
    patch = box.export()
    assert changed(patch) == {b"lib/deep/tracked.py": "modified", b"t.log": "modified"}
    assert listed(patch) == {b"lib/deep/untracked.py": Reason.IGNORED, b"u.log": Reason.IGNORED}


@pytest.mark.parametrize(
    "broken", [b"", b"DIRC", b"DIRC\0\0\0\2\xff\xff\xff\xff" + b"\xff" * 500, b"DIRC\0\0\0\4" * 99]
)
def test_a_broken_index_tracks_nothing(box: Box, broken: bytes) -> None:
    put(box.workspace, ".git/index", broken)
    put(box.workspace, ".gitignore", b"*.log\n")
    put(box.upper, "a.log", b"x")
    assert listed(box.export()) == {b"a.log": Reason.IGNORED}


def test_a_nested_repository_of_the_box_is_plain_files(box: Box) -> None:
    git(box.upper, "init", "-q", "sub")
    put(box.upper, "sub/f", b"x\n")
    patch = box.export()
    assert (changed(patch), listed(patch)) == ({b"sub/f": "added"}, {b"sub/.git/": Reason.GIT_DIR})


def test_a_submodule_is_listed_and_the_rest_still_exported(box: Box, tmp_path: Path) -> None:
    put(tmp_path, "library/x.c", b"int x;\n")
    git(tmp_path / "library", "init", "-q")
    git(tmp_path / "library", "add", ".")
    git(tmp_path / "library", "commit", "-qm", "x")
    git(box.workspace, "init", "-q")
    git(box.workspace, "submodule", "add", str(tmp_path / "library"), "lib")
    put(box.upper, "lib/x.c", b"int y;\n")
    put(box.upper, "main.c", b"int main;\n")
    patch = box.export()
    assert (changed(patch), listed(patch)) == ({b"main.c": "added"}, {b"lib/": Reason.SUBMODULE})


def test_new_dependency_directories_are_left_out_by_rule(box: Box) -> None:
    put(box.workspace, "vendor/node_modules/kept.js", b"1")
    for number in range(50):
        put(box.upper, f"node_modules/f{number}", b"x")
    put(box.upper, ".venv/bin/python", b"x")
    put(box.upper, "vendor/node_modules/kept.js", b"2")
    patch = box.export()
    assert changed(patch) == {b"vendor/node_modules/kept.js": "modified"}
    assert {one.path: (one.reason, one.detail) for one in patch.not_exported} == {
        "node_modules/": (Reason.DEPENDENCY_DIR, "50 entries, 50 bytes"),
        ".venv/": (Reason.DEPENDENCY_DIR, "2 entries, 1 bytes"),
    }


@pytest.mark.parametrize("include_ignored", [True, False])
def test_the_tools_own_files_are_never_in_the_patch(box: Box, include_ignored: bool) -> None:
    put(box.upper, ".corral/state.json", b"{}")
    put(box.upper, "sub/.corral-apply-1/old.1", b"x")
    changes = box.collect(include_ignored=include_ignored)
    assert changes.changes == ()
    assert listed(changes) == dict.fromkeys([b".corral/", b"sub/.corral-apply-1/"], Reason.TOOL_FILES)


def test_masked_files_are_told_only_when_the_box_touched_them(box: Box) -> None:
    put(box.workspace, ".env", b"KEY=secret\n")
    put(box.workspace, ".npmrc", b"token\n")
    put(box.workspace, "keys/id", b"private\n")
    put(box.workspace, ".git/config", b"[core]\n")
    for path in (".env", ".npmrc", "keys/id", ".git/config"):
        put(box.upper, path, b"masked\n")
    started = box.start()
    masked = [b".env", b".npmrc", b"keys", b".git/config"]
    assert box.collect(started, masked=masked).not_exported == ()
    put(box.upper, ".env", b"KEY=guess\n")
    (box.upper / "keys/id").unlink()
    whiteout(box.upper, "keys/id")
    changes = box.collect(started, masked=masked)
    assert changes.changes == ()
    assert listed(changes) == {b".env": Reason.MASKED, b"keys": Reason.MASKED}


def test_user_edits_from_before_the_run_are_the_base(box: Box) -> None:
    put(box.workspace, "a.txt", b"a\nwip\n")
    put(box.workspace, "untracked.txt", b"u\n")
    put(box.workspace, "b.txt", b"b\n")
    started = box.start()
    put(box.upper, "b.txt", b"b\nagent\n")
    patch = box.export(started)
    assert (changed(patch), listed(patch)) == ({b"b.txt": "modified"}, {})


def test_never_reverts_user_edits(box: Box) -> None:
    put(box.workspace, "both", b"1\n")
    put(box.workspace, "d/gone", b"1\n")
    started = box.start()
    put(box.upper, "both", b"agent\n")
    put(box.upper, "made-by-both", b"agent\n")
    whiteout(box.upper, "d")
    put(box.workspace, "both", b"user\n")
    put(box.workspace, "made-by-both", b"user\n")
    put(box.workspace, "d/new-by-user", b"user\n")
    patch = box.export(started)
    assert changed(patch) == {b"d/gone": "deleted"}
    assert listed(patch) == dict.fromkeys([b"both", b"made-by-both", b"d/new-by-user"], Reason.BASE_CHANGED)


def test_an_edit_between_collecting_and_building_is_a_conflict(box: Box) -> None:
    from corral.errors import PatchConflict
    from corral.patch import build_patch

    put(box.workspace, "a", b"1\n")
    put(box.upper, "a", b"2\n")
    changes = box.collect()
    put(box.workspace, "a", b"3\n")
    with pytest.raises(PatchConflict, match="changed while it was read"):
        build_patch(changes, box.patch_file)
    assert not box.patch_file.exists()


def test_a_file_stays_out_when_something_unexported_stands_in_its_way(box: Box) -> None:
    put(box.workspace, ".gitignore", b"*.o\n")
    put(box.workspace, "d/x.o", b"o")
    put(box.workspace, "d/y", b"y, unlike all else")
    put(box.upper, "d", b"now a file")
    patch = box.export()
    assert changed(patch) == {b"d/y": "deleted"}
    assert listed(patch) == {b"d/x.o": Reason.IGNORED, b"d": Reason.IN_THE_WAY}


def test_limits_list_what_they_leave_out(box: Box) -> None:
    put(box.upper, "big", b"x" * 2000)
    for number in range(5):
        put(box.upper, f"small{number}", b"%d" % number)
    patch = box.export(limits=ExportLimits(max_files=3, max_file_bytes=1000))
    assert len(patch.files) == 3
    assert listed(patch) == {b"big": Reason.TOO_LARGE, b"small3": Reason.TOO_MANY, b"small4": Reason.TOO_MANY}


def test_too_many_entries_are_refused_with_numbers(box: Box) -> None:
    for number in range(20):
        put(box.upper, f"f{number}")
    with pytest.raises(PatchError, match="more than 10 entries changed"):
        box.collect(limits=ExportLimits(max_entries=10))


def test_sparse_checkouts_delete_nothing(box: Box) -> None:
    git(box.workspace, "init", "-q")
    put(box.workspace, "a/x", b"1\n")
    put(box.workspace, "b/y", b"1\n")
    git(box.workspace, "add", ".")
    git(box.workspace, "commit", "-qm", "all")
    git(box.workspace, "sparse-checkout", "set", "a")
    assert not (box.workspace / "b").exists()
    put(box.upper, "a/x", b"2\n")
    patch = box.export()
    assert (changed(patch), listed(patch)) == ({b"a/x": "modified"}, {})


def test_a_repository_without_a_commit_exports_the_difference_of_the_trees(box: Box) -> None:
    git(box.workspace, "init", "-q")
    put(box.workspace, "a", b"a\n")
    git(box.workspace, "add", "a")
    put(box.workspace, "a", b"a\nb\n")
    put(box.upper, "a", b"a\nb\nc\n")
    patch = box.export()
    assert (patch.added, patch.removed, changed(patch)) == (1, 0, {b"a": "modified"})


def test_deep_trees_are_listed_not_followed_forever(box: Box) -> None:
    current = os.open(box.upper, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=current)
        below = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    changes = box.collect()
    assert changes.changes == ()
    assert set(listed(changes).values()) == {Reason.BAD_NAME}


def test_a_file_stays_out_where_an_ignored_directory_is_kept(box: Box) -> None:
    put(box.workspace, ".gitignore", b"b/\n")
    put(box.workspace, "a/b/x", b"ignored")
    put(box.upper, "a/b", b"now a file")
    patch = box.export()
    assert changed(patch) == {}
    assert listed(patch) == {b"a/b/": Reason.IGNORED, b"a/b": Reason.IN_THE_WAY}
