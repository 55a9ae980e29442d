"""file.write, file.store, file.fetch: exact bytes, or the old ones stay."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import resource
import stat
from typing import Any

import pytest

from corral_protocol.error import ErrorCode, WireError
from corral_toolbox.files import dispatch
from corral_toolbox.files.error_map import translate_os_error


def store(box: Any, data: bytes, size: int | None = None, **params: object) -> dict[str, object]:
    stream = io.BytesIO(data)
    full = {"stream": 1, "size": len(data) if size is None else size, **params}
    return dispatch("file.store", full, box.env, reader=stream)


def test_writes_exact_bytes_and_makes_parents(box: Any) -> None:
    reply = box.write("a/b/m.txt", b"x")
    assert reply == {
        "path": os.fsdecode(box.path("a/b/m.txt")),
        "action": "created",
        "size": 1,
        "sha256": hashlib.sha256(b"x").hexdigest(),
        "replaced": 0,
        "diff": reply["diff"],
        "notices": [],
    }
    assert reply["diff"].endswith("@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file\n")
    assert box.tree() == {b"a": "dir", b"a/b": "dir", b"a/b/m.txt": b"x"}
    assert [stat.S_IMODE(os.stat(box.path(name)).st_mode) for name in ("a", "a/b", "a/b/m.txt")] == [
        0o755,
        0o755,
        0o644,
    ]
    assert box.fail_write("c/d", b"x", make_parents=False).code == ErrorCode.NOT_FOUND


def test_mode_is_for_new_files_only(box: Any) -> None:
    box.write("run", b"1", mode=0o755)
    box.write("run", b"2", mode=0o600)
    assert stat.S_IMODE(os.stat(box.path("run")).st_mode) == 0o755
    assert box.fail_write("suid", b"", mode=0o4755).code == ErrorCode.INVALID_ARGUMENT


def test_overwriting_must_be_allowed(box: Any) -> None:
    box.put("f", b"old\n")
    assert (box.fail_write("f", b"new", overwrite=False).code, box.get("f")) == (ErrorCode.EXISTS, b"old\n")
    assert box.write("f", b"new\n")["action"] == "modified"
    assert box.write("f", b"new\n")["action"] == "unchanged"


def test_a_changed_file_is_a_conflict(box: Any) -> None:
    box.put("f", b"old\n")
    seen = hashlib.sha256(b"old\n").hexdigest()
    assert box.write("f", b"new\n", if_sha256=seen)["action"] == "modified"
    error = box.fail_write("f", b"mine\n", if_sha256=seen)
    assert (error.code, error.data["sha256"]) == (ErrorCode.PATCH_CONFLICT, hashlib.sha256(b"new\n").hexdigest())
    assert (box.get("f"), box.fail_write("none", b"", if_sha256=seen).code) == (b"new\n", ErrorCode.PATCH_CONFLICT)


def test_writing_to_directories_is_refused(box: Any) -> None:
    os.mkdir(box.path("d"))
    assert box.fail_write("d", b"").code == ErrorCode.IS_A_DIRECTORY
    assert box.fail_write("new/", b"").code == ErrorCode.IS_A_DIRECTORY
    assert box.fail_write("n" * 256, b"").code == ErrorCode.INVALID_ARGUMENT
    assert box.tree() == {b"d": "dir"}


def test_a_full_disk_leaves_the_old_bytes_and_no_temporary_file(box: Any) -> None:
    box.put("f", b"old\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        codes = [
            box.fail_write("f", b"x" * 5000).code,
            box.fail_write("g", b"x" * 5000).code,
            box.fail_edit("f", "old", "x" * 5000).code,
            box.fail_patch("*** Begin Patch\n*** Add File: new/h\n+" + "x" * 5000 + "\n*** End Patch\n").code,
        ]
        with pytest.raises(WireError) as caught:
            store(box, b"x" * 5000, path="f")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [*codes, caught.value.code] == [ErrorCode.NO_SPACE] * 5
    assert box.tree() == {b"f": b"old\n"}


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, ErrorCode.NO_SPACE),
        (errno.EDQUOT, ErrorCode.NO_SPACE),
        (errno.EFBIG, ErrorCode.NO_SPACE),
        (errno.EACCES, ErrorCode.PERMISSION_DENIED),
        (errno.EPERM, ErrorCode.PERMISSION_DENIED),
        (errno.EROFS, ErrorCode.READ_ONLY),
        (errno.EIO, ErrorCode.IO_ERROR),
        (9999, ErrorCode.IO_ERROR),
    ],
)
def test_every_errno_has_a_code(number: int, code: ErrorCode) -> None:
    error = translate_os_error(OSError(number, "x"), b"/workspace/f")
    assert (error.code, error.data["path"]) == (code, "/workspace/f")


def test_store_takes_exactly_what_was_announced(box: Any) -> None:
    data = os.urandom(700_000)
    reply = store(box, data, path="d/f", mode=0o755)
    assert (reply["action"], reply["size"], reply["sha256"]) == ("created", len(data), hashlib.sha256(data).hexdigest())
    assert (box.get("d/f"), stat.S_IMODE(os.stat(box.path("d/f")).st_mode)) == (data, 0o755)
    for size in (len(data) - 1, len(data) + 1, 0):
        with pytest.raises(WireError) as caught:
            store(box, data, size, path="d/f")
        assert (caught.value.code, box.tree()) == (ErrorCode.INVALID_ARGUMENT, {b"d": "dir", b"d/f": data})
    assert store(box, b"", path="empty")["size"] == 0


def test_fetch_gives_the_raw_bytes(box: Any) -> None:
    data = os.urandom(700_000)
    box.put("f", data, 0o640)
    for offset, limit, expected in (
        (0, -1, data),
        (5, -1, data[5:]),
        (699_990, 100, data[-10:]),
        (10**9, -1, b""),
        (0, 0, b""),
    ):
        sink = io.BytesIO()
        reply = dispatch(
            "file.fetch", {"path": "f", "stream": 1, "offset": offset, "limit": limit}, box.env, writer=sink
        )
        assert sink.getvalue() == expected
        assert reply == {
            "path": os.fsdecode(box.path("f")),
            "size": len(data),
            "sent": len(expected),
            "mode": 0o640,
        }


def test_streams_are_required_and_methods_known(box: Any) -> None:
    assert box.code("file.store", path="f", size=0) == ErrorCode.INVALID_ARGUMENT
    assert box.code("file.fetch", path="f") == ErrorCode.INVALID_ARGUMENT
    assert box.code("file.chmod", path="f") == ErrorCode.UNKNOWN_METHOD
    assert box.code("exec", path="f") == ErrorCode.UNKNOWN_METHOD


def test_a_file_that_grows_under_the_pen_is_a_conflict(box: Any) -> None:
    box.put("f", b"old\n")

    class Slow(io.BytesIO):
        """While the host still sends, somebody in the box writes to the file."""

        def read(self, size: int | None = -1, /) -> bytes:
            box.put("f", b"theirs\n")
            return super().read(size)

    with pytest.raises(WireError) as caught:
        dispatch("file.store", {"path": "f", "stream": 1, "size": 3}, box.env, reader=Slow(b"new"))
    assert (caught.value.code, box.tree()) == (ErrorCode.PATCH_CONFLICT, {b"f": b"theirs\n"})
