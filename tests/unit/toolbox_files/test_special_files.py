"""FIFOs, sockets and devices: refused in milliseconds, whatever is asked of them."""

from __future__ import annotations

import os
import stat
import time
from typing import Any

import pytest

from corral_protocol.error import ErrorCode, WireError
from corral_toolbox.files import FileEnv


@pytest.mark.parametrize(("name", "kind"), [("pipe", "fifo"), ("sock", "socket"), ("fifo-link", "fifo")])
def test_refuses_special_files_at_once(special: Any, name: str, kind: str) -> None:
    calls = [
        ("file.read", {}),
        ("file.edit", {"edits": [{"old": "a", "new": "b"}]}),
        ("file.write", {"content_b64": ""}),
        ("file.write", {"content_b64": "", "if_sha256": "0" * 64}),
    ]
    started = time.monotonic()
    for method, more in calls:
        error = special.fail(method, path=name, **more)
        assert (error.code, f"not_a_regular_file ({kind})" in error.message) == (ErrorCode.NOT_A_REGULAR_FILE, True)
    assert time.monotonic() - started < 5


def test_refuses_devices_inside_a_root(special: Any) -> None:
    special.env = FileEnv(special.root, [(special.root, True), (b"/dev", False)])
    for name in ("random", "/dev/zero", "/dev/null"):
        error = special.fail("file.read", path=name)
        assert (error.code, "(device)" in error.message) == (ErrorCode.NOT_A_REGULAR_FILE, True)


def test_proc_files_are_bounded_by_what_is_read(box: Any) -> None:
    box.env = FileEnv(box.root, [(box.root, True), (b"/proc/self", False)])
    reply = box.read("/proc/self/maps", max_bytes=1000)
    assert (reply["kind"], reply["size"], len(reply["text"]) <= 1000, reply["truncated"]) == ("text", 0, True, True)


def test_special_files_are_listed_scanned_moved_and_deleted(special: Any) -> None:
    entries = special.call("file.list")["entries"]
    assert {entry["path"]: entry["kind"] for entry in entries} == {
        "fifo-link": "symlink",
        "pipe": "fifo",
        "random": "symlink",
        "sock": "socket",
    }
    assert special.call("file.move", source="pipe", target="pipe2")["action"] == "moved"
    for name in ("pipe2", "sock", "random", "fifo-link"):
        special.call("file.delete", path=name)
    assert (special.tree(), os.path.exists("/dev/urandom")) == ({}, True)


def test_a_fifo_swapped_in_after_the_look_does_not_block(box: Any) -> None:
    from corral_toolbox.files.resolve import open_regular, resolve

    box.put("f", b"x")
    with resolve(box.env, b"f") as place:
        os.unlink(box.path("f"))
        os.mkfifo(box.path("f"))
        started = time.monotonic()
        with pytest.raises(WireError) as caught:
            open_regular(place)
        assert (caught.value.code, time.monotonic() - started < 5) == (ErrorCode.NOT_A_REGULAR_FILE, True)
        os.unlink(box.path("f"))
        box.link("f", "/etc/passwd")
        with pytest.raises(OSError, match="symbolic links"):
            open_regular(place)
    assert stat.S_ISLNK(os.lstat(box.path("f")).st_mode)
