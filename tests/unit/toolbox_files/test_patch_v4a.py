"""`*** Begin Patch`: what it changes, what it refuses, and how it says so."""

from __future__ import annotations

import os
from typing import Any

import pytest

from corral_protocol.error import ErrorCode


def v4a(body: str) -> str:
    return f"*** Begin Patch\n{body}*** End Patch\n"


def test_adds_updates_moves_and_deletes_in_one_patch(box: Any) -> None:
    box.put("a.py", b"one\ntwo\nthree\n", 0o755)
    box.put("old.txt", b"x\ny\n")
    box.put("gone.txt", b"bye\n")
    reply = box.patch(
        v4a(
            "*** Add File: new/deep.txt\n+hello\n+\n"
            "*** Update File: a.py\n@@\n one\n-two\n+TWO\n three\n"
            "*** Update File: old.txt\n*** Move to: moved/new.txt\n@@\n-x\n+X\n y\n"
            "*** Delete File: gone.txt\n"
        )
    )
    assert box.tree() == {
        b"new": "dir",
        b"new/deep.txt": b"hello\n\n",
        b"a.py": b"one\nTWO\nthree\n",
        b"moved": "dir",
        b"moved/new.txt": b"X\ny\n",
    }
    assert os.stat(box.path("a.py")).st_mode & 0o777 == 0o755
    root = box.root.decode()
    assert [(file["path"], file["action"]) for file in reply["files"]] == [
        (f"{root}/new/deep.txt", "created"),
        (f"{root}/a.py", "modified"),
        (f"{root}/moved/new.txt", "moved"),
        (f"{root}/gone.txt", "deleted"),
    ]
    assert reply["notices"] == []


def test_add_on_an_existing_path_is_refused(box: Any) -> None:
    box.put("existing.txt", b"old\n")
    error = box.fail_patch(v4a("*** Add File: existing.txt\n+new\n"))
    assert (error.code, "exists; use Update" in error.message) == (ErrorCode.EXISTS, True)
    assert box.tree() == {b"existing.txt": b"old\n"}
    box.patch(v4a("*** Add File: existing.txt\n+new\n"), overwrite=True)
    assert box.tree() == {b"existing.txt": b"new\n"}


def test_move_onto_an_existing_file_is_refused(box: Any) -> None:
    box.put("a", b"a\n")
    box.put("b", b"b\n")
    error = box.fail_patch(v4a("*** Update File: a\n*** Move to: b\n@@\n-a\n+A\n"))
    assert (error.code, box.tree()) == (ErrorCode.EXISTS, {b"a": b"a\n", b"b": b"b\n"})


def test_delete_then_add_replaces_a_file(box: Any) -> None:
    box.put("a", b"a\n")
    box.patch(v4a("*** Delete File: a\n*** Add File: a\n+b\n"))
    assert box.tree() == {b"a": b"b\n"}


def test_two_sections_of_one_file_build_on_each_other(box: Any) -> None:
    box.put("a", b"1\n2\n")
    box.patch(v4a("*** Update File: a\n@@\n-1\n+one\n*** Update File: a\n@@\n one\n-2\n+two\n"))
    assert box.tree() == {b"a": b"one\ntwo\n"}


def test_a_failure_in_the_last_section_leaves_everything(box: Any) -> None:
    box.put("a", b"1\n")
    before = box.tree()
    error = box.fail_patch(v4a("*** Add File: n/new\n+x\n*** Update File: a\n@@\n-1\n+2\n*** Delete File: missing\n"))
    assert (error.code, box.tree()) == (ErrorCode.NOT_FOUND, before)


def test_dry_run_tells_but_touches_nothing(box: Any) -> None:
    box.put("a", b"1\n")
    reply = box.patch(v4a("*** Update File: a\n@@\n-1\n+2\n*** Add File: d/n\n+x\n"), dry_run=True)
    assert reply["dry_run"] is True
    assert [file["action"] for file in reply["files"]] == ["modified", "created"]
    assert "-1\n+2\n" in reply["files"][0]["diff"]
    assert box.tree() == {b"a": b"1\n"}


def test_an_ambiguous_chunk_is_refused_with_both_locations(box: Any) -> None:
    box.put("a.py", b"def a():\n    x = 1\n    y = 2\n    return x\n\ndef b():\n    x = 1\n    y = 2\n    return x\n")
    error = box.fail_patch(v4a("*** Update File: a.py\n@@\n     x = 1\n-    y = 2\n+    y = 3\n     return x\n"))
    assert (error.code, error.data["lines"]) == (ErrorCode.AMBIGUOUS_MATCH, [2, 7])
    # Also when it fits only with tolerance.
    error = box.fail_patch(v4a("*** Update File: a.py\n@@\n   x = 1\n-   y = 2\n+    y = 3\n   return x\n"))
    assert (error.code, error.data["lines"]) == (ErrorCode.AMBIGUOUS_MATCH, [2, 7])


def test_an_anchor_tells_which_of_two_blocks(box: Any) -> None:
    box.put("a.py", b"def a():\n    x = 1\n    return x\n\ndef b():\n    x = 1\n    return x\n")
    box.patch(v4a("*** Update File: a.py\n@@ def b():\n-    x = 1\n+    x = 2\n     return x\n"))
    assert box.get("a.py") == b"def a():\n    x = 1\n    return x\n\ndef b():\n    x = 2\n    return x\n"


def test_stacked_anchors_narrow_step_by_step(box: Any) -> None:
    box.put("a.py", b"class A:\n  def f():\n    pass\nclass B:\n  def f():\n    pass\n")
    box.patch(v4a("*** Update File: a.py\n@@ class B:\n@@   def f():\n-    pass\n+    return 1\n"))
    assert box.get("a.py") == b"class A:\n  def f():\n    pass\nclass B:\n  def f():\n    return 1\n"


def test_a_repeated_anchor_that_leads_to_two_places_is_ambiguous(box: Any) -> None:
    box.put("a.py", b"  def f():\n    pass\n  def f():\n    pass\n")
    error = box.fail_patch(v4a("*** Update File: a.py\n@@   def f():\n-    pass\n+    return 1\n"))
    assert (error.code, error.data["lines"]) == (ErrorCode.AMBIGUOUS_MATCH, [2, 4])


def test_tolerant_match_keeps_the_files_own_context_and_says_so(box: Any) -> None:
    box.put("a.py", b"    alpha  \n    beta\n    gamma\n")
    reply = box.patch(v4a("*** Update File: a.py\n@@\n   alpha\n-  beta\n+    BETA\n   gamma\n"))
    assert box.get("a.py") == b"    alpha  \n    BETA\n    gamma\n"
    assert len(reply["notices"]) == 1
    assert "indentation" in reply["notices"][0]


def test_typographic_lookalikes_are_found_and_told(box: Any) -> None:
    box.put("a.md", "it’s — “fine”\nend\n".encode())
    reply = box.patch(v4a('*** Update File: a.md\n@@\n it\'s - "fine"\n-end\n+END\n'))
    assert box.get("a.md") == "it’s — “fine”\nEND\n".encode()
    assert "dashes, quotes" in reply["notices"][0]


def test_new_lines_go_right_after_their_anchor(box: Any) -> None:
    box.put("a.py", b"import os\n\ndef f():\n    pass\n")
    box.patch(v4a("*** Update File: a.py\n@@ import os\n+import sys\n"))
    assert box.get("a.py") == b"import os\nimport sys\n\ndef f():\n    pass\n"


@pytest.mark.parametrize("anchor", ["@@\n", ""])
def test_new_lines_without_an_anchor_are_refused(box: Any, anchor: str) -> None:
    box.put("a.py", b"import os\n")
    error = box.fail_patch(v4a(f"*** Update File: a.py\n{anchor}+import sys\n"))
    assert (error.code, box.get("a.py")) == (ErrorCode.PATCH_INVALID, b"import os\n")


def test_end_of_file_appends_and_picks_the_last_of_two(box: Any) -> None:
    box.put("a", b"x\ny\nx\n")
    box.patch(v4a("*** Update File: a\n@@\n+z\n*** End of File\n"))
    assert box.get("a") == b"x\ny\nx\nz\n"
    box.put("a", b"x\ny\nx\n")
    box.patch(v4a("*** Update File: a\n@@\n-x\n+X\n*** End of File\n"))
    assert box.get("a") == b"x\ny\nX\n"


def test_missing_final_newline_stays_unless_the_last_line_changes(box: Any) -> None:
    box.put("a", b"1\n2")
    box.patch(v4a("*** Update File: a\n@@\n-1\n+one\n 2\n"))
    assert box.get("a") == b"one\n2"
    box.patch(v4a("*** Update File: a\n@@\n one\n-2\n+two\n"))
    assert box.get("a") == b"one\ntwo\n"


def test_crlf_files_keep_their_line_ends(box: Any) -> None:
    box.put("w.txt", b"a\r\nb\r\nc\r\n")
    box.patch(v4a("*** Update File: w.txt\n@@\n a\n-b\n+B\n+new\n c\n"))
    assert box.get("w.txt") == b"a\r\nB\r\nnew\r\nc\r\n"


def test_utf16_and_latin1_files_keep_their_bytes(box: Any) -> None:
    box.put("u.txt", b"\xff\xfe" + "hi\nyou\n".encode("utf-16-le"))
    box.put("l.txt", b"caf\xe9\nx = 1\n")
    box.patch(v4a("*** Update File: u.txt\n@@\n hi\n-you\n+all\n*** Update File: l.txt\n@@\n-x = 1\n+x = 2\n"))
    assert box.tree() == {
        b"u.txt": b"\xff\xfe" + "hi\nall\n".encode("utf-16-le"),
        b"l.txt": b"caf\xe9\nx = 2\n",
    }


def test_a_miss_shows_the_similar_lines(box: Any) -> None:
    box.put("a.py", b"def first(x):\n    return x + 1\n\ndef second(y):\n    return y + 2\n")
    error = box.fail_patch(v4a("*** Update File: a.py\n@@\n def second(z):\n-    return z + 2\n+    return 3\n"))
    assert (error.code, error.data["similar"][0]["line"]) == (ErrorCode.NO_MATCH, 4)
    assert "read the file again" in error.data["hint"]


def test_chunks_out_of_order_say_where_the_lines_stand(box: Any) -> None:
    box.put("a", b"1\n2\n3\n4\n")
    error = box.fail_patch(v4a("*** Update File: a\n@@\n-3\n+three\n@@\n-1\n+one\n"))
    assert (error.code, error.data["lines"], box.get("a")) == (ErrorCode.NO_MATCH, [1], b"1\n2\n3\n4\n")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("*** Update File: a\n@@\nno tag\n", 4),
        ("*** Update File: a\n@@\n", 4),
        ("*** Update File: a\n", 2),
        ("*** Rename File: a\n", 2),
        ("*** Add File: n\nno plus\n", 3),
        ("*** Add File: \n+x\n", 2),
        ("", 2),
    ],
)
def test_malformed_patches_name_their_line(box: Any, body: str, line: int) -> None:
    box.put("a", b"1\n")
    error = box.fail_patch(v4a(body))
    assert (error.code, error.data["line"]) == (ErrorCode.PATCH_INVALID, line)


def test_a_patch_cut_off_is_refused(box: Any) -> None:
    box.put("a", b"1\n")
    error = box.fail_patch("*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n")
    assert (error.code, box.get("a")) == (ErrorCode.PATCH_INVALID, b"1\n")


@pytest.mark.parametrize(
    "wrapped",
    [
        "apply_patch <<'EOF'\n{}EOF\n",
        '<<"EOF"\n{}EOF',
        "```\n{}```\n",
        "\n\n{}\n\n",
    ],
)
def test_wrappers_of_models_are_taken_off(box: Any, wrapped: str) -> None:
    box.put("a", b"1\n")
    box.patch(wrapped.format(v4a("*** Update File: a\n@@\n-1\n+2\n")))
    assert box.get("a") == b"2\n"


def test_a_change_of_directory_in_the_wrapper_is_refused(box: Any) -> None:
    error = box.fail_patch("cd sub && apply_patch <<'EOF'\n" + v4a("*** Add File: a\n+1\n") + "EOF\n")
    assert (error.code, box.tree()) == (ErrorCode.PATCH_INVALID, {})


def test_updating_through_a_link_keeps_the_link(box: Any) -> None:
    box.put("real", b"1\n")
    box.link("link", "real")
    box.patch(v4a("*** Update File: link\n@@\n-1\n+2\n"))
    assert box.tree() == {b"real": b"2\n", b"link": "-> real"}
    box.patch(v4a("*** Delete File: link\n"))
    assert box.tree() == {b"real": b"2\n"}


def test_directories_and_special_files_are_refused(special: Any) -> None:
    os.mkdir(special.path("d"))
    assert special.fail_patch(v4a("*** Delete File: d\n")).code == ErrorCode.IS_A_DIRECTORY
    assert special.fail_patch(v4a("*** Update File: pipe\n@@\n-1\n+2\n")).code == ErrorCode.NOT_A_REGULAR_FILE
    assert special.fail_patch(v4a("*** Update File: random\n@@\n-1\n+2\n")).code == ErrorCode.OUTSIDE_WORKSPACE


def test_a_patch_without_effect_says_no_change(box: Any) -> None:
    box.put("a", b"1\n")
    assert box.fail_patch(v4a("*** Update File: a\n@@\n-1\n+1\n")).code == ErrorCode.NO_CHANGE


def test_hostile_repetition_is_searched_in_linear_time(box: Any) -> None:
    box.put("a", b"x\n" * 500_000)
    body = "".join(" x\n" for _ in range(5000))
    error = box.fail_patch(v4a(f"*** Update File: a\n@@\n{body}-y\n+z\n"))
    assert error.code == ErrorCode.NO_MATCH
