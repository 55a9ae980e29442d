"""Unified diffs, as git writes them and as models write them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corral_protocol.error import ErrorCode


def git(folder: Path, *arguments: str) -> bytes:
    """Run git in a repository of the test's own."""
    alone = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
    }
    return subprocess.run(["git", *arguments], cwd=folder, env=alone, capture_output=True, check=True).stdout


def git_diff(folder: Path, before: dict[str, bytes], after: dict[str, bytes], *options: str) -> bytes:
    """The diff of two trees by git itself."""
    folder.mkdir()
    git(folder, "init", "-q")
    ids = []
    for tree in (before, after):
        git(folder, "read-tree", "--empty")
        for name, data in tree.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            git(folder, "update-index", "--add", name)
        ids.append(git(folder, "write-tree").decode().strip())
    return git(folder, "diff", *options, *ids)


UPDATE = """diff --git a/f.txt b/f.txt
index 1111111..2222222 100644
--- a/f.txt
+++ b/f.txt
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
"""


def test_applies_what_git_writes_for_every_kind_of_change(box: Any, tmp_path: Path) -> None:
    before = {
        "keep": b"1\n",
        "change.txt": b"a\nb\nc\n",
        "gone": b"bye\n",
        "noeol": b"x\ny",
        "empty-gone": b"",
        "crlf": b"a\r\nb\r\n",
        "x b/y": b"odd\n",
        "排.md": b"1\n",
        'q"uote\t.txt': b"1\n",
        "long/moved.txt": b"".join(b"line %d\n" % n for n in range(30)),
    }
    after = {
        "keep": b"1\n",
        "change.txt": b"a\nB\nc\n",
        "noeol": b"x\nY",
        "crlf": b"a\r\nB\r\n",
        "x b/y": b"odder\n",
        "排.md": b"2\n",
        'q"uote\t.txt': b"2\n",
        "other/name.txt": b"".join(b"line %d\n" % n for n in range(30)).replace(b"line 7\n", b"line seven\n"),
        "new/file": b"n\n",
        "empty-new": b"",
        "new-noeol": b"n",
    }
    for name, data in before.items():
        box.put(name, data)
    reply = box.patch(git_diff(tmp_path / "g", before, after, "-M"))
    assert {key: value for key, value in box.tree().items() if value != "dir"} == {
        name.encode(): data for name, data in after.items()
    }
    assert reply["notices"] == []
    assert sorted({file["action"] for file in reply["files"]}) == ["created", "deleted", "modified", "moved"]


def test_a_plain_diff_and_timestamps_are_read(box: Any) -> None:
    box.put("f.txt", b"one\ntwo\nthree\n")
    text = UPDATE.split("\n", 2)[2].replace("--- a/f.txt", "--- a/f.txt\t2026-01-01 10:00:00.0 +0000")
    box.patch("Here is the fix:\n\n" + text)
    assert box.get("f.txt") == b"one\nTWO\nthree\n"


def test_modes_and_renames_without_content(box: Any) -> None:
    box.put("run.sh", b"echo\n")
    box.put("a.bin", b"\0\1\2")
    box.patch(
        "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
        "diff --git a/a.bin b/b.bin\nsimilarity index 100%\nrename from a.bin\nrename to b.bin\n"
    )
    assert box.tree() == {b"run.sh": b"echo\n", b"b.bin": b"\0\1\2"}
    assert os.stat(box.path("run.sh")).st_mode & 0o777 == 0o755


def test_a_new_executable_gets_its_mode(box: Any) -> None:
    box.patch("diff --git a/x b/x\nnew file mode 100755\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+#!/bin/sh\n")
    assert (box.get("x"), os.stat(box.path("x")).st_mode & 0o777) == (b"#!/bin/sh\n", 0o755)


def test_moved_hunks_are_found_and_told(box: Any) -> None:
    box.put("f.txt", b"zero\n" * 5 + b"one\ntwo\nthree\n")
    reply = box.patch(UPDATE)
    assert box.get("f.txt") == b"zero\n" * 5 + b"one\nTWO\nthree\n"
    assert "applied at line 6, the patch said 1" in reply["notices"][0]


def test_a_hunk_that_fits_twice_elsewhere_is_refused_with_both_locations(box: Any) -> None:
    box.put("f.txt", b"zero\none\ntwo\nthree\none\ntwo\nthree\n")
    error = box.fail_patch(UPDATE)
    assert (error.code, error.data["lines"]) == (ErrorCode.AMBIGUOUS_MATCH, [2, 5])


def test_the_stated_line_decides_between_equal_places(box: Any) -> None:
    box.put("f.txt", b"one\ntwo\nthree\none\ntwo\nthree\n")
    box.patch(UPDATE.replace("@@ -1,3 +1,3 @@", "@@ -4,3 +4,3 @@"))
    assert box.get("f.txt") == b"one\ntwo\nthree\none\nTWO\nthree\n"


@pytest.mark.parametrize("header", ["@@ -1,9 +1,9 @@", "@@ -1,2 +1,2 @@", "@@ -1 +1 @@", "@@"])
def test_wrong_counts_lose_no_line(box: Any, header: str) -> None:
    box.put("f.txt", b"one\ntwo\nthree\n")
    reply = box.patch(UPDATE.replace("@@ -1,3 +1,3 @@", header))
    assert box.get("f.txt") == b"one\nTWO\nthree\n"
    assert ("counts" in "".join(reply["notices"])) == (header != "@@")


def test_removed_lines_that_look_like_headers(box: Any) -> None:
    box.put("f.sql", b"-- a comment\n++ odd\nend\n")
    box.patch("--- a/f.sql\n+++ b/f.sql\n@@ -1,3 +1,3 @@\n--- a comment\n-++ odd\n+-- another\n+++ odder\n end\n")
    assert box.get("f.sql") == b"-- another\n++ odder\nend\n"


def test_context_without_its_space_is_an_empty_line(box: Any) -> None:
    box.put("f", b"a\n\nb\n")
    box.patch("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n")
    assert box.get("f") == b"a\n\nc\n"


def test_a_line_without_tag_is_refused_not_dropped(box: Any) -> None:
    box.put("f.txt", b"one\ntwo\nthree\n")
    error = box.fail_patch(UPDATE + "lost line\n")
    assert (error.code, error.data["line"], box.get("f.txt")) == (ErrorCode.PATCH_INVALID, 10, b"one\ntwo\nthree\n")


def test_a_mail_with_signature_is_read(box: Any) -> None:
    box.put("f.txt", b"one\ntwo\nthree\n")
    box.patch("From 123 Mon Sep 17 00:00:00 2001\nSubject: x\n---\n f.txt | 2 +-\n\n" + UPDATE + "-- \n2.39.5\n\n")
    assert box.get("f.txt") == b"one\nTWO\nthree\n"


def test_deleting_a_file_that_has_more_lines_is_a_conflict(box: Any) -> None:
    box.put("f", b"a\nb\n")
    error = box.fail_patch("diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n")
    assert (error.code, box.get("f")) == (ErrorCode.PATCH_CONFLICT, b"a\nb\n")


@pytest.mark.parametrize(
    "text",
    [
        "diff --git a/i.png b/i.png\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKcmZ\n\n",
        "diff --git a/i.png b/i.png\nindex 1..2 100644\nBinary files a/i.png and b/i.png differ\n",
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n",
        "diff --git a/s b/s\nnew file mode 160000\n--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+Subproject commit 1\n",
        "diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n",
    ],
)
def test_what_is_not_supported_is_refused_by_name(box: Any, text: str) -> None:
    error = box.fail_patch(text)
    assert (error.code, bool(error.data["hint"]), box.tree()) == (ErrorCode.UNSUPPORTED, True, {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "@@ -1 +1 @@\n-a\n+b\n",
        "--- a/f\n+++ b/f\n",
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n",
        '--- "a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n',
        "--- /dev/null\n+++ b/n\n@@ -1 +1 @@\n-a\n+b\n",
        "--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n",
    ],
)
def test_malformed_diffs_are_refused(box: Any, text: str) -> None:
    box.put("f", b"a\n")
    assert (box.fail_patch(text).code, box.tree()) == (ErrorCode.PATCH_INVALID, {b"f": b"a\n"})


def test_crlf_patches_of_either_kind_apply_to_crlf_files(box: Any) -> None:
    raw = b"--- a/w\n+++ b/w\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n"
    for text, is_told in (
        (raw, False),
        (raw.replace(b"\r", b""), True),
        (raw.replace(b"\r", b"").replace(b"\n", b"\r\n"), True),
    ):
        box.put("w", b"a\r\nb\r\n")
        assert bool(box.patch(text)["notices"]) == is_told
        assert box.get("w") == b"a\r\nB\r\n"


def test_a_lone_no_newline_mark_must_be_true(box: Any) -> None:
    box.put("f", b"a\nb\n")
    text = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n"
    assert box.fail_patch(text).code == ErrorCode.NO_MATCH
    box.put("f", b"a\nb")
    box.patch(text)
    assert box.get("f") == b"a\nc\n"


def test_creating_over_an_existing_file_is_refused(box: Any) -> None:
    box.put("f", b"a\n")
    error = box.fail_patch("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n")
    assert (error.code, box.get("f")) == (ErrorCode.EXISTS, b"a\n")
