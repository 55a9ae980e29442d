"""Names: moving, deleting, listing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral_protocol.error import ErrorCode
from corral_protocol.name import encode_name
from corral_toolbox.files import FileEnv


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory on another file system."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def test_moves_and_makes_parents(box: Any) -> None:
    box.put("a.txt", b"a\n", 0o755)
    reply = box.call("file.move", source="a.txt", target="d/b.txt")
    assert (box.tree(), reply["action"]) == ({b"d": "dir", b"d/b.txt": b"a\n"}, "moved")
    assert box.code("file.move", source="d/b.txt", target="e/x", make_parents=False) == ErrorCode.NOT_FOUND


def test_an_existing_target_is_refused_unless_overwrite(box: Any) -> None:
    box.put("a.txt", b"a\n")
    box.put("b.txt", b"old\n")
    assert box.code("file.move", source="a.txt", target="b.txt") == ErrorCode.EXISTS
    assert box.tree() == {b"a.txt": b"a\n", b"b.txt": b"old\n"}
    box.call("file.move", source="a.txt", target="b.txt", overwrite=True)
    assert box.tree() == {b"b.txt": b"a\n"}


def test_directories_are_neither_entered_nor_overwritten_silently(box: Any) -> None:
    box.put("a", b"a\n")
    box.put("d/x", b"x\n")
    os.mkdir(box.path("empty"))
    error = box.fail("file.move", source="a", target="d")
    assert (error.code, "d/a" in str(error.data["hint"])) == (ErrorCode.EXISTS, True)
    assert box.code("file.move", source="a", target="d", overwrite=True) == ErrorCode.EXISTS
    assert box.code("file.move", source="d", target="a") == ErrorCode.EXISTS
    assert box.code("file.move", source="d", target="a", overwrite=True) == ErrorCode.EXISTS
    assert box.code("file.move", source="empty", target="d", overwrite=True) == ErrorCode.NOT_EMPTY
    assert box.code("file.move", source="d", target="d/sub") == ErrorCode.INVALID_ARGUMENT
    box.call("file.move", source="d", target="empty", overwrite=True)
    assert box.tree() == {b"a": b"a\n", b"empty": "dir", b"empty/x": b"x\n"}
    box.call("file.move", source="empty", target="new/place")
    assert box.tree() == {b"a": b"a\n", b"new": "dir", b"new/place": "dir", b"new/place/x": b"x\n"}


def test_moving_onto_itself_and_case_only(box: Any) -> None:
    box.put("a.txt", b"a\n")
    assert box.code("file.move", source="a.txt", target="./a.txt", overwrite=True) == ErrorCode.NO_CHANGE
    box.call("file.move", source="a.txt", target="A.txt")
    assert box.tree() == {b"A.txt": b"a\n"}


def test_two_names_of_one_file(box: Any) -> None:
    box.put("a", b"a\n")
    os.link(box.path("a"), box.path("b"))
    assert box.code("file.move", source="a", target="b") == ErrorCode.EXISTS
    box.call("file.move", source="a", target="b", overwrite=True)
    assert box.tree() == {b"b": b"a\n"}


def test_a_link_is_moved_itself(box: Any) -> None:
    box.put("real", b"a\n")
    box.link("l", "real")
    box.link("t", "real")
    assert box.code("file.move", source="real", target="t") == ErrorCode.EXISTS
    box.call("file.move", source="l", target="d/m")
    assert box.tree() == {b"real": b"a\n", b"d": "dir", b"d/m": "-> real", b"t": "-> real"}


def test_between_file_systems(box: Any, elsewhere: Path) -> None:
    box.env = FileEnv(box.root, [(box.root, True), (os.fsencode(elsewhere), True)])
    box.put("f", b"a\n", 0o751)
    box.link("l", "f")
    os.mkdir(box.path("d"))
    box.call("file.move", source="f", target=f"{elsewhere}/sub/f")
    box.call("file.move", source="l", target=f"{elsewhere}/l")
    assert (elsewhere / "sub/f").read_bytes() == b"a\n"
    assert (os.stat(elsewhere / "sub/f").st_mode & 0o777, os.readlink(elsewhere / "l")) == (0o751, "f")
    assert box.code("file.move", source="d", target=f"{elsewhere}/d") == ErrorCode.UNSUPPORTED
    assert box.tree() == {b"d": "dir"}


def test_delete_never_follows_links(box: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    box.put("real/f", b"x")
    box.link("l", "real")
    box.link("real/out", str(outside))
    box.call("file.delete", path="l")
    assert box.code("file.delete", path="real") == ErrorCode.NOT_EMPTY
    reply = box.call("file.delete", path="real", recursive=True)
    assert (box.tree(), (outside / "precious").read_bytes()) == ({}, b"x")
    assert (reply["action"], reply["notices"]) == ("deleted", ["deleted a directory with 2 entries"])
    assert box.code("file.delete", path="real") == ErrorCode.NOT_FOUND


def test_delete_of_an_empty_directory_and_a_very_deep_one(box: Any) -> None:
    os.mkdir(box.path("empty"))
    box.call("file.delete", path="empty")
    os.makedirs(box.path("/".join(["d"] * 300)))
    assert box.code("file.delete", path="d", recursive=True) == ErrorCode.TOO_LARGE
    os.makedirs(box.path("/".join(["e"] * 200)))
    box.call("file.delete", path="e", recursive=True)
    assert not box.exists("e")


def test_lists_sorted_by_bytes_to_a_depth(box: Any) -> None:
    box.put("b/c/deep", b"")
    box.put("b/x", b"12")
    box.put("B", b"", 0o600)
    box.put("é", b"")
    box.put(".hidden", b"")
    box.link("link", "/etc")
    assert [entry["path"] for entry in box.call("file.list")["entries"]] == [".hidden", "B", "b", "link", "é"]
    reply = box.call("file.list", depth=2, include_hidden=False)
    assert [(entry["path"], entry["kind"]) for entry in reply["entries"]] == [
        ("B", "file"),
        ("b", "dir"),
        ("b/c", "dir"),
        ("b/x", "file"),
        ("link", "symlink"),
        ("é", "file"),
    ]
    assert reply["entries"][0] == {"path": "B", "kind": "file", "size": 0, "mode": 0o600, "target": ""}
    assert reply["entries"][4]["target"] == "/etc"
    assert (reply["path"], reply["total"], reply["truncated"]) == (box.root.decode(), 6, False)
    assert box.code("file.list", path="B") == ErrorCode.NOT_A_DIRECTORY
    assert box.code("file.list", path="nope") == ErrorCode.NOT_FOUND


def test_listing_has_limits_and_says_so(box: Any) -> None:
    for number in range(50):
        box.put(f"{number:03d}", b"")
    reply = box.call("file.list", limit=10)
    assert [entry["path"] for entry in reply["entries"]] == [f"{number:03d}" for number in range(10)]
    assert (reply["truncated"], reply["total"]) == (True, 50)


def test_a_reply_stays_below_one_frame(box: Any) -> None:
    import json

    for number in range(3000):
        box.put(("é" * 120 + f"{number}").encode(), b"")
    reply = box.call("file.list", limit=5000)
    assert (len(json.dumps(reply)) < 1 << 20, reply["truncated"], reply["total"]) == (True, True, 3000)


def test_names_that_are_not_utf8_travel(box: Any) -> None:
    box.put(b"a\xff", b"")
    box.link("l", b"t\xff")
    entries = box.call("file.list")["entries"]
    assert [(entry["path"], entry["target"]) for entry in entries] == [
        (encode_name(b"a\xff"), ""),
        ("l", encode_name(b"t\xff")),
    ]
