"""tree.put and tree.scan: a whole tree in and out, on ground that nobody trusts."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from corral_protocol.error import ErrorCode, WireError
from corral_protocol.name import encode_name
from corral_toolbox.files import dispatch

MTIME = 1_700_000_000


def make_tar(*members: tuple[str, dict[str, Any], bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as archive:
        for name, fields, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(data), MTIME, 0o644
            for key, value in fields.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def put(box: Any, data: bytes, max_bytes: int = 1 << 20, max_entries: int = 100) -> dict[str, object]:
    params = {"stream": 1, "max_bytes": max_bytes, "max_entries": max_entries}
    return dispatch("tree.put", params, box.env, reader=io.BytesIO(data))


def fail_put(box: Any, data: bytes, **limits: int) -> ErrorCode:
    with pytest.raises(WireError) as caught:
        put(box, data, **limits)
    return caught.value.code


def scan(box: Any, **params: object) -> list[dict[str, Any]]:
    sink = io.BytesIO()
    reply = dispatch("tree.scan", {"stream": 1, **params}, box.env, writer=sink)
    lines = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert reply == {"entries": len(lines)}
    return lines


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_puts_files_directories_and_links(box: Any, form: int) -> None:
    long = "d/" + "n" * 150 + "/" + "é" * 100
    reply = put(
        box,
        make_tar(
            ("./", {"type": tarfile.DIRTYPE}, b""),
            ("./d", {"type": tarfile.DIRTYPE, "mode": 0o555}, b""),
            ("d/run", {"mode": 0o4755}, b"#!"),
            ("d/empty", {}, b""),
            (long, {}, b"long"),
            ("l", {"type": tarfile.SYMTYPE, "linkname": "../../etc"}, b""),
            ("hard", {"type": tarfile.LNKTYPE, "linkname": "d/run"}, b""),
            (os.fsdecode(b"b\xff"), {}, b"x"),
            form=form,
        ),
    )
    assert box.tree() == {
        b"d": "dir",
        b"d/run": b"#!",
        b"d/empty": b"",
        b"d/" + b"n" * 150: "dir",
        os.fsencode(long): b"long",
        b"l": "-> ../../etc",
        b"hard": b"#!",
        b"b\xff": b"x",
    }
    assert reply == {"entries": 8, "bytes": 7}
    assert [stat.S_IMODE(os.stat(box.path(name)).st_mode) for name in ("d", "d/run")] == [0o555, 0o755]
    assert (os.stat(box.path("d/run")).st_mtime, os.stat(box.path("d")).st_mtime) == (MTIME, MTIME)
    os.chmod(box.path("d"), 0o755)


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", {}, b"x")],
        [("/abs/evil", {}, b"x")],
        [("a/../../evil", {}, b"x")],
        [("l", {"type": tarfile.SYMTYPE, "linkname": ".."}, b""), ("l/evil", {}, b"x")],
        [("l", {"type": tarfile.SYMTYPE, "linkname": "d"}, b""), ("l/evil", {"type": tarfile.DIRTYPE}, b"")],
        [("h", {"type": tarfile.LNKTYPE, "linkname": "../evil-source"}, b"")],
        [("h", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}, b"")],
    ],
)
def test_nothing_is_created_outside(box: Any, tmp_path: Path, members: list[Any]) -> None:
    (tmp_path / "evil-source").write_bytes(b"s")
    assert fail_put(box, make_tar(*members)) == ErrorCode.OUTSIDE_WORKSPACE
    assert sorted(os.listdir(tmp_path)) == ["evil-source", "workspace"]
    assert not any(b"evil" in name for name in box.tree())


def test_a_link_that_waits_in_the_workspace_is_not_followed(box: Any, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "victim").write_bytes(b"keep")
    box.link("d", tmp_path / "outside")
    box.link("f", tmp_path / "victim")
    assert fail_put(box, make_tar(("d/x", {}, b"x"))) == ErrorCode.OUTSIDE_WORKSPACE
    put(box, make_tar(("f", {}, b"new")))
    assert (os.listdir(tmp_path / "outside"), (tmp_path / "victim").read_bytes(), box.get("f")) == ([], b"keep", b"new")


def test_limits_hold(box: Any) -> None:
    data = make_tar(*((f"f{number}", {}, b"x" * 100) for number in range(20)))
    assert fail_put(box, data, max_entries=10) == ErrorCode.TOO_LARGE
    assert fail_put(box, data, max_bytes=1000) == ErrorCode.TOO_LARGE
    assert len(box.tree()) == 10


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_devices_are_refused(box: Any, kind: bytes) -> None:
    assert (fail_put(box, make_tar(("x", {"type": kind}, b""))), box.tree()) == (ErrorCode.INVALID_ARGUMENT, {})


def test_broken_streams_are_refused(box: Any) -> None:
    data = make_tar(("f", {}, b"x" * 5000))
    assert fail_put(box, data[:2000]) == ErrorCode.INVALID_ARGUMENT
    assert fail_put(box, b"not a tar archive" * 100) == ErrorCode.INVALID_ARGUMENT
    assert fail_put(box, data + bytes(4 << 20)) == ErrorCode.INVALID_ARGUMENT


def test_scan_tells_everything_and_follows_nothing(special: Any) -> None:
    special.put("d/f", b"data", 0o755)
    special.put(b"d/b\xff", b"")
    special.link("out", "/etc")
    entries = {entry["path"]: entry for entry in scan(special)}
    assert {path: (entry["kind"], entry["target"], entry["error"]) for path, entry in entries.items()} == {
        "d": ("dir", "", ""),
        "d/f": ("file", "", ""),
        encode_name(b"d/b\xff"): ("file", "", ""),
        "fifo-link": ("symlink", "pipe", ""),
        "out": ("symlink", "/etc", ""),
        "pipe": ("fifo", "", ""),
        "random": ("symlink", "/dev/urandom", ""),
        "sock": ("socket", "", ""),
    }
    found = os.stat(special.path("d/f"))
    assert entries["d/f"] == {
        "path": "d/f",
        "kind": "file",
        "mode": found.st_mode,
        "size": 4,
        "mtime_ns": found.st_mtime_ns,
        "sha256": hashlib.sha256(b"data").hexdigest(),
        "target": "",
        "error": "",
    }
    assert [entry["sha256"] for entry in scan(special, path="d", hash_files=False)] == ["", ""]


def test_scan_tells_what_is_too_deep(box: Any) -> None:
    os.makedirs(box.path("/".join(["d"] * 300)))
    entries = scan(box)
    assert (len(entries), [entry["error"] for entry in entries if entry["error"]]) == (256, ["too_large"])
    import shutil

    shutil.rmtree(box.path("d"))


def test_scan_gives_what_put_took(box: Any) -> None:
    put(
        box,
        make_tar(
            ("a/b", {}, b"1"), ("a/c", {"mode": 0o755}, b"22"), ("l", {"type": tarfile.SYMTYPE, "linkname": "a"}, b"")
        ),
    )
    assert [(entry["path"], entry["size"], entry["target"]) for entry in scan(box) if entry["kind"] != "dir"] == [
        ("a/b", 1, ""),
        ("a/c", 2, ""),
        ("l", 1, "a"),
    ]
