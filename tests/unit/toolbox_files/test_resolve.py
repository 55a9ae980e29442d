"""Where paths may lead, and that links are judged by where they end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from corral_protocol.error import ErrorCode, WireError
from corral_protocol.name import encode_name
from corral_toolbox.files import FileEnv
from corral_toolbox.files.resolve import resolve


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "/",
        "{root}/../etc/passwd",
        "{root}/./a/../../etc/passwd",
        "{root}foo/x",
        "//etc/passwd",
        "a/../../x",
        "..",
    ],
)
def test_lexical_escapes_are_refused(box: Any, path: str) -> None:
    os.mkdir(box.path("a"))
    for method, more in (
        ("file.read", {}),
        ("file.write", {"content_b64": ""}),
        ("file.list", {}),
        ("file.delete", {}),
    ):
        error = box.fail(method, path=path.format(root=box.root.decode()), **more)
        assert error.code == ErrorCode.OUTSIDE_WORKSPACE


@pytest.mark.parametrize(
    ("target", "below"),
    [
        ("/etc", "passwd"),
        ("/", "etc/passwd"),
        ("../outside", "secret"),
        ("{root}/../outside", "secret"),
        ("d/../../outside", "secret"),
        ("/proc/self/fd", "0"),
        ("{root}/chain", "secret"),
        ("/proc/self/cwd", "x"),
    ],
)
def test_links_that_lead_out_are_refused(box: Any, tmp_path: Path, target: str, below: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"s\n")
    os.mkdir(box.path("d"))
    box.link("chain", "../outside")
    box.link("out", target.format(root=box.root.decode()))
    path = f"out/{below}"
    assert box.code("file.read", path=path) == ErrorCode.OUTSIDE_WORKSPACE
    assert box.fail_write("out/new.txt", b"x").code == ErrorCode.OUTSIDE_WORKSPACE
    assert box.fail_write("out/new/deep.txt", b"x").code == ErrorCode.OUTSIDE_WORKSPACE
    assert box.code("file.delete", path=path) == ErrorCode.OUTSIDE_WORKSPACE
    assert box.code("file.move", source=path, target="got") == ErrorCode.OUTSIDE_WORKSPACE
    assert box.code("file.list", path="out") == ErrorCode.OUTSIDE_WORKSPACE
    assert os.listdir(tmp_path / "outside") == ["secret"]


def test_a_last_link_that_leads_out_is_refused_for_new_files_too(box: Any, tmp_path: Path) -> None:
    box.link("p", str(tmp_path / "not-there"))
    assert box.fail_write("p", b"x").code == ErrorCode.OUTSIDE_WORKSPACE
    assert not (tmp_path / "not-there").exists()


def test_links_that_stay_inside_work(box: Any) -> None:
    box.put("a/b/f", b"x\n")
    box.link("rel", "a/b/../b/f")
    box.link("abs", box.path("a/b"))
    box.link("a/b/up", "../..")
    box.link("dot", ".")
    for path in ("rel", "abs/f", "a/b/up/a/b/f", "dot/dot/rel", "a/./b//f", "a/b/up/../" + "workspace/rel"):
        assert box.read(path)["path"] == os.fsdecode(box.path("a/b/f"))


def test_dotdot_after_a_link_goes_where_the_link_is(box: Any) -> None:
    box.put("a/b/f", b"inner\n")
    box.put("a/x", b"next to b\n")
    box.put("x", b"at the top\n")
    box.link("l", "a/b")
    assert box.read("l/../x")["text"] == "     1\tnext to b\n"


def test_a_dangling_link_inside_creates_its_target(box: Any) -> None:
    box.link("l", "made/later")
    reply = box.write("l", b"x")
    assert box.tree() == {b"l": "-> made/later", b"made": "dir", b"made/later": b"x"}
    assert reply["path"] == os.fsdecode(box.path("made/later"))


def test_loops_end(box: Any) -> None:
    box.link("a", "b")
    box.link("b", "a")
    box.link("self", "self/x")
    for path in ("a", "a/x", "self"):
        assert box.code("file.read", path=path) == ErrorCode.INVALID_ARGUMENT


def test_links_full_of_dotdots_end_soon(box: Any) -> None:
    os.makedirs(box.path("/".join(["d"] * 60)))
    box.link("l", "/".join(["d/.."] * 600 + ["d"] * 60 + [".."] * 59))
    for number in range(30):
        box.link(f"l{number}", "/".join([f"l{number - 1}" if number else "l", *(["d/.."] * 600)]))
    assert box.code("file.read", path="l29/f") == ErrorCode.INVALID_ARGUMENT


def test_a_file_in_the_middle_is_not_a_directory(box: Any) -> None:
    box.put("f", b"x")
    assert box.code("file.read", path="f/x") == ErrorCode.NOT_A_DIRECTORY
    assert box.code("file.read", path="f/") == ErrorCode.NOT_A_DIRECTORY
    assert box.fail_write("f/x", b"").code == ErrorCode.NOT_A_DIRECTORY


def test_several_roots_and_rights(box: Any, tmp_path: Path) -> None:
    other, fixed = tmp_path / "other", tmp_path / "fixed"
    other.mkdir()
    fixed.mkdir()
    (fixed / "f").write_bytes(b"x\n")
    box.env = FileEnv(box.root, [(box.root, True), (os.fsencode(other), True), (os.fsencode(fixed), False)])
    box.link("to-fixed", str(fixed))
    assert box.write(str(other / "n"), b"x")["action"] == "created"
    assert box.write("../other/m", b"x")["action"] == "created"
    assert box.read("to-fixed/f")["path"] == str(fixed / "f")
    assert box.fail_write("to-fixed/n", b"x").code == ErrorCode.READ_ONLY
    assert box.fail_edit("to-fixed/f", "x", "y").code == ErrorCode.READ_ONLY
    assert box.code("file.delete", path="to-fixed/f") == ErrorCode.READ_ONLY
    assert box.code("file.move", source="to-fixed/f", target="g") == ErrorCode.READ_ONLY
    text = "*** Begin Patch\n*** Add File: to-other/n\n+x\n*** End Patch\n"
    box.link("to-other", str(other))
    assert box.fail_patch(text).code == ErrorCode.OUTSIDE_WORKSPACE


def test_the_root_itself_is_neither_written_nor_deleted(box: Any) -> None:
    box.put("keep", b"x")
    os.mkdir(box.path("d"))
    for path in (".", box.root.decode(), "d/.."):
        assert box.fail_write(path, b"").code == ErrorCode.IS_A_DIRECTORY
        assert box.code("file.delete", path=path, recursive=True) == ErrorCode.INVALID_ARGUMENT
        assert box.code("file.move", source=path, target="x") == ErrorCode.INVALID_ARGUMENT
    assert box.tree() == {b"keep": b"x", b"d": "dir"}


def test_no_descriptor_leaks(box: Any) -> None:
    box.put("a/f", b"x\n")
    box.link("out", "/etc")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("a/f", "a/missing", "out/passwd", "a/f/x", "a/../a/f", "..", "a"):
        for method in ("file.read", "file.delete", "file.list"):
            try:
                box.call(method, path=path)
            except WireError:
                pass
    for text in (
        "*** Begin Patch\n*** Add File: n/n\n+x\n*** End Patch\n",
        "*** Begin Patch\n*** Delete File: q\n*** End Patch",
    ):
        try:
            box.patch(text)
        except WireError:
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_odd_names_are_ordinary(box: Any) -> None:
    names = [b"-rf", b"a\nb", b'q"u.txt', b" lead", b"trail ", b"x b/y", b"it's", b"a\\b", b"$(id)", b"*"]
    names += ["é".encode(), b"e\xcc\x81", b"\xff\xfe", b"~", b"a\x1b[31m"]
    for name in names:
        box.put(name, b"mine\n")
    listing = box.call("file.list", depth=2)
    files = [entry["path"] for entry in listing["entries"] if entry["kind"] == "file"]
    assert sorted(files) == sorted(encode_name(name) for name in names)
    for path in files:
        assert box.call("file.read", path=path)["text"] == "     1\tmine\n"
        assert box.call("file.edit", path=path, edits=[{"old": "mine", "new": "yours"}])["replaced"] == 1
        assert box.call("file.delete", path=path)["action"] == "deleted"
    assert box.tree() == {b"x b": "dir"}


def test_messages_never_hold_raw_control_characters(box: Any) -> None:
    error = box.fail("file.read", path="a\x1b]0;x\x07\n\u202e")
    assert error.message.startswith("a\\x1b]0;x\\x07\\x0a\\u{202e}") or "\\x1b" in error.message
    assert not set("\x1b\x07\n\u202e") & set(error.message)


def test_resolving_opens_only_what_is_needed(box: Any) -> None:
    box.put("a/b/f", b"x")
    with resolve(box.env, b"a/b/f") as place:
        assert (place.path, place.name) == (box.path("a/b/f"), b"f")
        assert os.readlink(f"/proc/self/fd/{place.parent_fd}") == os.fsdecode(box.path("a/b"))
