"""Where a patch may write, and that it is all or nothing when the disk says no."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from corral_protocol.error import ErrorCode

BAD_PATHS = [
    "../evil",
    "a/../../evil",
    "a/../b",
    "/abs/path",
    ".git/hooks/pre-commit",
    ".GIT/config",
    "sub/.Git/config",
    ".git",
    ".git./config",
    ".git /config",
    ".g\u200cit/config",
    "git~1/config",
]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_paths_that_no_patch_may_write(box: Any, path: str) -> None:
    patches = [
        f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n",
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n",
        f"diff --git a/f b/{path}\nsimilarity index 100%\nrename from f\nrename to {path}\n",
        f"*** Begin Patch\n*** Update File: f\n*** Move to: {path}\n@@\n-x\n+y\n*** End Patch\n",
        f"*** Begin Patch\n*** Delete File: {path}\n*** End Patch\n",
    ]
    box.put("f", b"x\n")
    box.put(".git/config", b"[core]\n")
    before = box.tree()
    for text in patches if not path.startswith("/") else [patches[0], *patches[2:]]:
        assert (box.fail_patch(text, overwrite=True).code, box.tree()) == (ErrorCode.OUTSIDE_WORKSPACE, before)


def test_an_absolute_name_in_a_diff_is_refused(box: Any) -> None:
    error = box.fail_patch("--- /dev/null\n+++ /abs/path\n@@ -0,0 +1 @@\n+x\n")
    assert (error.code, box.tree()) == (ErrorCode.OUTSIDE_WORKSPACE, {})


def test_ordinary_dot_names_are_fine(box: Any) -> None:
    for path in (".github/workflows/x.yml", ".gitignore", "a.git/x", "..a/b"):
        box.patch(f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n")
        assert box.get(path) == b"x\n"


def test_links_do_not_lead_out_or_into_git(box: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"x\n")
    box.put(".git/config", b"x\n")
    box.link("out", str(outside))
    box.link("dir", ".git")
    box.link("file", ".git/config")
    box.link("up", "../outside/f")
    for path in ("out/f", "dir/config", "file", "up"):
        text = f"*** Begin Patch\n*** Update File: {path}\n@@\n-x\n+y\n*** End Patch\n"
        assert box.fail_patch(text).code == ErrorCode.OUTSIDE_WORKSPACE
    assert box.fail_patch("*** Begin Patch\n*** Add File: out/new\n+y\n*** End Patch\n").code == (
        ErrorCode.OUTSIDE_WORKSPACE
    )
    assert sorted(os.listdir(outside)) == ["f"]
    assert ((outside / "f").read_bytes(), box.get(".git/config")) == (b"x\n", b"x\n")


def test_add_does_not_write_through_a_dangling_link(box: Any) -> None:
    box.link("ln", "elsewhere")
    error = box.fail_patch("*** Begin Patch\n*** Add File: ln\n+x\n*** End Patch\n", overwrite=True)
    assert (error.code, box.tree()) == (ErrorCode.EXISTS, {b"ln": "-> elsewhere"})


def test_blanks_around_a_name_are_taken_off_unless_such_a_file_exists(box: Any) -> None:
    box.put("trail ", b"1\n")
    box.put("plain", b"1\n")
    text = "*** Begin Patch\n*** Update File: {}\n@@\n-1\n+2\n*** End Patch\n"
    assert box.patch(text.format("trail "))["notices"] == []
    assert len(box.patch(text.format("plain "))["notices"]) == 1
    assert box.tree() == {b"trail ": b"2\n", b"plain": b"2\n"}


def test_names_that_are_not_utf8(box: Any) -> None:
    box.put(b"b\xff", b"1\n")
    box.patch(b"*** Begin Patch\n*** Update File: b\xff\n@@\n-1\n+2\n*** End Patch\n")
    box.patch(b'--- "a/b\\377"\n+++ "b/b\\377"\n@@ -1 +1 @@\n-2\n+3\n')
    assert box.tree() == {b"b\xff": b"3\n"}


def test_a_failure_while_writing_rolls_everything_back(box: Any) -> None:
    # A directory that appears where a file is to go makes the last step fail after the others were done.
    box.put("a", b"1\n", 0o755)
    box.put("b", b"1\n")
    os.link(box.path("b"), box.path("b-twin"))
    before = box.tree()
    inode = os.stat(box.path("a")).st_ino
    name = "n" * 256  # found out only when it is created
    text = (
        "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Delete File: b\n"
        f"*** Add File: fresh/x\n+x\n*** Add File: fresh/{name}\n+x\n*** End Patch\n"
    )
    error = box.fail_patch(text)
    assert (error.code, box.tree()) == (ErrorCode.INVALID_ARGUMENT, before)
    found = os.stat(box.path("a"))
    assert (found.st_ino, stat.S_IMODE(found.st_mode)) == (inode, 0o755)


def test_a_failure_in_the_middle_of_the_swap_rolls_back(box: Any) -> None:
    from corral_toolbox.files.patch.commit import commit_files
    from corral_toolbox.files.patch.model import Action, Section
    from corral_toolbox.files.patch.stage import Stage

    box.put("a", b"1\n")
    box.put("gone", b"1\n")
    stage = Stage(box.env, overwrite=False)
    stage.add(Section(Action.ADD, b"new", 1, content=b"n\n"))
    stage.add(Section(Action.UPDATE, b"a", 1, is_executable=True))
    stage.add(Section(Action.DELETE, b"gone", 1))
    stage.add(Section(Action.ADD, b"late", 1, content=b"n\n"))
    files = list(stage.files.values())

    class Late(list):  # type: ignore[type-arg]
        """Gives the files three times, as commit_files asks; before the last swap somebody takes the name."""

        rounds = 0

        def __iter__(self) -> Any:
            self.rounds += 1
            for file in files:
                if self.rounds == 3 and file is files[-1]:
                    box.put("late", b"theirs\n")
                yield file

    from corral_protocol.error import WireError

    with pytest.raises(WireError) as caught:
        commit_files(Late(files))
    stage.close()
    assert caught.value.code == ErrorCode.EXISTS
    assert box.tree() == {b"a": b"1\n", b"gone": b"1\n", b"late": b"theirs\n"}


def test_a_file_that_changes_between_reading_and_writing_is_a_conflict(box: Any) -> None:
    from corral_protocol.error import WireError
    from corral_toolbox.files.patch.commit import commit_files
    from corral_toolbox.files.patch.model import Action, Section
    from corral_toolbox.files.patch.stage import Stage

    box.put("a", b"1\n")
    stage = Stage(box.env, overwrite=False)
    stage.add(Section(Action.UPDATE, b"a", 1, is_executable=True))
    box.put("a", b"theirs\n")
    with pytest.raises(WireError) as caught:
        commit_files(list(stage.files.values()))
    stage.close()
    assert (caught.value.code, box.tree()) == (ErrorCode.PATCH_CONFLICT, {b"a": b"theirs\n"})


def test_no_temporary_file_stays_after_success(box: Any) -> None:
    box.put("a", b"1\n")
    box.put("b", b"1\n")
    box.patch("*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Delete File: b\n*** End Patch\n")
    assert box.tree() == {b"a": b"2\n"}
