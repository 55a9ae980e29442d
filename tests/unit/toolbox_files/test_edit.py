"""file.edit: literal replacement that leaves every other byte alone."""

from __future__ import annotations

import os
import stat
import time
from typing import Any

import pytest

from corral_protocol.error import ErrorCode


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        pytest.param(
            b"one\r\ntwo\r\nthree\r\n", "one\ntwo", "one\nTWO\nnew", b"one\r\nTWO\r\nnew\r\nthree\r\n", id="C037"
        ),
        pytest.param(b"a\r\nb\nc\rd\r\n", "b", "B", b"a\r\nB\nc\rd\r\n", id="C038"),
        pytest.param(b"a\r\nb\nc\r\n", "a\nb", "x\ny", b"x\r\ny\nc\r\n", id="mixed ends stay in order"),
        pytest.param(b"a\r\nb\r\n", "a\r\nb\r\n", "c\r\n", b"c\r\n", id="CRLF in the call"),
        pytest.param(b"a\nb\n", "a\r\nb", "c\r\nd", b"c\nd\n", id="the file's style wins"),
        pytest.param(b"a\rb\r", "a\nb", "c\nd\ne", b"c\rd\re\r", id="old Macintosh"),
        pytest.param(
            b"const x = 1;\n// caf\xe9 note\n", "x = 1", "x = 2", b"const x = 2;\n// caf\xe9 note\n", id="C040"
        ),
        pytest.param(b"\xd6\xd0\xce\xc4 a\n", "a", "b", b"\xd6\xd0\xce\xc4 b\n", id="C040 GBK"),
        pytest.param(b"\xff\xfeh\0i\0\n\0", "hi", "ho", b"\xff\xfeh\0o\0\n\0", id="C041"),
        pytest.param(
            b"\xfe\xff\0h\0i\0\r\0\n", "hi\n", "é\nx\n", b"\xfe\xff\0\xe9\0\r\0\n\0x\0\r\0\n", id="UTF-16 CRLF"
        ),
        pytest.param(b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n", id="BOM"),
        pytest.param(b"a\nb", "a", "A", b"A\nb", id="C043"),
        pytest.param(b"a\nb", "b", "b\n", b"a\nb\n", id="final newline when asked"),
        pytest.param(
            b"price: PLACEHOLDER\n",
            "PLACEHOLDER",
            "$$100 $& $1 \\1 \\g<0> \\n $' %s {0}",
            b"price: $$100 $& $1 \\1 \\g<0> \\n $' %s {0}\n",
            id="C044",
        ),
        pytest.param(b"aXbb(\na.b*(\n", "a.b*(", "x", b"aXbb(\nx\n", id="C044 pattern"),
        pytest.param(b"a\r\r\nb\r\n", "b", "c", b"a\r\r\nc\r\n", id="CR before CRLF"),
        pytest.param("中文\n".encode(), "中", "国", "国文\n".encode(), id="UTF-8"),
    ],
)
def test_exactly_the_named_bytes_change(box: Any, before: bytes, old: str, new: str, after: bytes) -> None:
    box.put("f", before)
    reply = box.edit("f", old, new)
    assert (box.get("f"), reply["action"], reply["replaced"], reply["size"]) == (after, "modified", 1, len(after))


def test_the_diff_shows_only_what_changed(box: Any) -> None:
    box.put("f", b"one\r\ntwo\r\nthree\r\n")
    diff = box.edit("f", "one\ntwo", "one\nTWO\nnew")["diff"]
    assert diff.split("\n", 2)[2] == "@@ -1,3 +1,4 @@\n one\n-two\n+TWO\n+new\n three\n"
    box.put("f", b"a\nb")
    assert box.edit("f", "b", "c")["diff"].split("\n", 3)[3] == (
        " a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
    )


def test_diffs_are_small_and_safe_to_show(box: Any) -> None:
    box.put("f", b"x\n" * 100_000)
    started = time.monotonic()
    reply = box.edit("f", "x", "\x1b]0;evil\x07", replace_all=True)
    assert (reply["replaced"], len(reply["diff"].encode()) <= 8192, "\x1b" in reply["diff"]) == (100_000, True, False)
    assert time.monotonic() - started < 2


def test_several_edits_are_all_or_nothing(box: Any) -> None:
    box.put("f", b"a\nb\n")
    error = box.fail("file.edit", path="f", edits=[{"old": "a", "new": "A"}, {"old": "zzz", "new": "Z"}])
    assert (error.code, error.data["edit"], "edit 1" in error.message) == (ErrorCode.NO_MATCH, 1, True)
    assert box.get("f") == b"a\nb\n"
    reply = box.call("file.edit", path="f", edits=[{"old": "a", "new": "A"}, {"old": "A\nb", "new": "c"}])
    assert (box.get("f"), reply["replaced"]) == (b"c\n", 2)


@pytest.mark.parametrize("replace_all", [True, False])
def test_an_empty_old_text_is_refused(box: Any, replace_all: bool) -> None:
    box.put("f", b"abc")
    assert box.fail_edit("f", "", "X", replace_all=replace_all).code == ErrorCode.INVALID_ARGUMENT
    assert box.get("f") == b"abc"


def test_same_old_and_new_is_no_change_not_a_miss(box: Any) -> None:
    box.put("f", b"abc")
    error = box.fail_edit("f", "zzz", "zzz")
    assert (error.code, "no change" in error.message) == (ErrorCode.NO_CHANGE, True)


def test_several_matches_are_refused_with_their_lines(box: Any) -> None:
    box.put("f", b"x = 1\ny = 2\nx = 1\n")
    error = box.fail_edit("f", "x = 1", "x = 3")
    assert (error.code, error.data["lines"]) == (ErrorCode.AMBIGUOUS_MATCH, [1, 3])
    assert box.edit("f", "x = 1", "x = 3", replace_all=True)["replaced"] == 2
    assert box.get("f") == b"x = 3\ny = 2\nx = 3\n"


def test_overlapping_matches_are_ambiguous(box: Any) -> None:
    box.put("f", b"aaa")
    assert box.fail_edit("f", "aa", "b").code == ErrorCode.AMBIGUOUS_MATCH


def test_line_ends_do_not_hide_a_second_match(box: Any) -> None:
    box.put("f", b"a\nb\na\r\nb\r\n")
    assert box.fail_edit("f", "a\nb", "c").data["lines"] == [1, 3]


def test_a_miss_shows_the_nearest_regions(box: Any) -> None:
    box.put("f", b"".join(b"def f%d(x):\n    return x + %d\n\n" % (n, n) for n in range(200)))
    error = box.fail_edit("f", "def f77(y):\n    return x + 77", "z")
    assert (error.code, "read the file again" in error.data["hint"]) == (ErrorCode.NO_MATCH, True)
    assert error.data["similar"][0] == {"line": 232, "end_line": 233, "text": "def f77(x):\n    return x + 77"}
    assert len(error.data["similar"]) <= 3


def test_a_miss_in_a_hostile_file_costs_little(box: Any) -> None:
    box.put("f", b"ab" * 1_000_000 + b"\n" + b"ab ab ab ab\n" * 500_000)
    started = time.monotonic()
    error = box.fail_edit("f", "ab ab ab ba\n" * 200, "z")
    assert (error.code, time.monotonic() - started < 2) == (ErrorCode.NO_MATCH, True)


def test_touch_between_read_and_edit_does_no_harm(box: Any) -> None:
    box.put("f", b"x\n")
    box.read("f")
    os.utime(box.path("f"))
    assert box.edit("f", "x", "y")["action"] == "modified"


def test_mode_is_kept_and_nothing_is_left_beside(box: Any) -> None:
    box.put("f", b"x\n", 0o751)
    box.edit("f", "x", "y")
    assert (stat.S_IMODE(os.stat(box.path("f")).st_mode), box.tree()) == (0o751, {b"f": b"y\n"})


def test_editing_through_a_link_keeps_the_link(box: Any) -> None:
    box.put("d/real.txt", b"a\n", 0o600)
    box.link("link.txt", "d/real.txt")
    reply = box.edit("link.txt", "a", "b")
    assert box.tree() == {b"d": "dir", b"d/real.txt": b"b\n", b"link.txt": "-> d/real.txt"}
    assert (reply["path"], stat.S_IMODE(os.stat(box.path("link.txt")).st_mode)) == (
        os.fsdecode(box.path("d/real.txt")),
        0o600,
    )


def test_hard_links_part_and_it_is_told(box: Any) -> None:
    box.put("f", b"a\n")
    os.link(box.path("f"), box.path("g"))
    reply = box.edit("f", "a", "b")
    assert (box.tree(), len(reply["notices"])) == ({b"f": b"b\n", b"g": b"a\n"}, 1)


def test_a_read_only_file_is_not_replaced_behind_its_back(box: Any) -> None:
    box.put("f", b"a\n", 0o444)
    assert (box.fail_edit("f", "a", "b").code, box.get("f")) == (ErrorCode.PERMISSION_DENIED, b"a\n")


def test_binary_files_are_refused(box: Any) -> None:
    box.put("b", b"a\0b")
    assert box.fail_edit("b", "a", "c").code == ErrorCode.BINARY_FILE


def test_text_beyond_ascii_is_not_mixed_into_another_encoding(box: Any) -> None:
    box.put("l", b"caf\xe9 x\n")
    assert (box.fail_edit("l", "x", "é").code, box.get("l")) == (ErrorCode.UNSUPPORTED_ENCODING, b"caf\xe9 x\n")


def test_files_too_large_to_edit_are_refused_at_once(box: Any) -> None:
    with open(box.path("big"), "wb") as file:
        file.write(b"x\n")
        file.truncate(3 << 30)
    assert box.fail_edit("big", "x", "y").code == ErrorCode.TOO_LARGE


@pytest.mark.parametrize(
    "edits", [[], None, "x", [1], [{"old": "a"}], [{"old": "a", "new": 1}], [{"old": "\ud800", "new": "b"}]]
)
def test_bad_edits_are_refused(box: Any, edits: object) -> None:
    box.put("f", b"a\n")
    assert box.code("file.edit", path="f", edits=edits) == ErrorCode.INVALID_ARGUMENT
