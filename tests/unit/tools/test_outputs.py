from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from corral.errors import ToolError
from corral.tools import OutputStore


def keep(store: OutputStore, call_id: str, data: bytes, stderr: bytes = b"") -> str:
    output = store.open(call_id)
    output.stdout(memoryview(data))
    output.stderr(memoryview(stderr))
    output.close()
    return output.path


def read(store: OutputStore, path: str, offset: int | None = None, limit: int | None = None) -> str:
    return store.read(path, offset=offset, limit=limit, max_bytes=32 << 10).text


def test_both_streams_are_kept_and_read_back(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "outputs")
    assert keep(store, "call_1", b"a\nb\n", b"oops\n") == "/outputs/call_1"
    assert read(store, "/outputs/call_1") == "     1\ta\n     2\tb\n"
    assert read(store, "/outputs/call_1.stdout") == read(store, "/outputs/call_1")
    assert read(store, "/outputs/call_1.stderr") == "     1\toops\n"
    assert store.names() == [("/outputs/call_1", 4), ("/outputs/call_1.stderr", 5)]


def test_kept_files_are_the_owners_only(tmp_path: Path) -> None:
    keep(OutputStore(tmp_path / "outputs"), "c", b"x")
    modes = [stat.S_IMODE(os.stat(tmp_path / "outputs" / name).st_mode) for name in ("", "c.stdout")]
    assert modes == [0o700, 0o600]


def test_silence_makes_no_file(tmp_path: Path) -> None:
    keep(OutputStore(tmp_path / "outputs"), "c", b"")
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    "call_id", ["../../x", "/etc/passwd", "a/b", "", ".", "..", "x" * 300, "a\0b", "a\nb", "\ud800", "é"]
)
def test_a_call_id_never_becomes_a_path(tmp_path: Path, call_id: str) -> None:
    store = OutputStore(tmp_path / "outputs")
    path = keep(store, call_id, b"x\n")
    assert read(store, path) == "     1\tx\n"
    assert [entry.parent.name for entry in tmp_path.rglob("*.stdout")] == ["outputs"]


def test_a_call_id_used_twice_loses_nothing(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "outputs")
    first, second = keep(store, "c", b"one\n"), keep(store, "c", b"two\n")
    third = keep(OutputStore(tmp_path / "outputs"), "c", b"three\n")
    assert [read(store, path) for path in (first, second, third)] == [
        "     1\tone\n",
        "     1\ttwo\n",
        "     1\tthree\n",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/outputs/../secret",
        "/outputs/..",
        "/outputs/",
        "/outputs/a/b",
        "/outputs/c.patch",
        "/outputs/\0",
        "/outputs/link",
        "x",
    ],
)
def test_outputs_cannot_be_left(tmp_path: Path, path: str) -> None:
    store = OutputStore(tmp_path / "outputs")
    keep(store, "c", b"x")
    (tmp_path / "secret.stdout").write_text("secret")
    (tmp_path / "outputs" / "link.stdout").symlink_to(tmp_path / "secret.stdout")
    with pytest.raises(ToolError) as caught:
        read(store, path)
    assert caught.value.code == "not_found"


def test_pages_go_on_where_the_last_ended(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "outputs")
    path = keep(store, "c", b"".join(b"line %d\n" % number for number in range(1, 101)))
    page = store.read(path, offset=None, limit=None, max_bytes=150)
    assert (page.first_line, page.last_line, page.more) == (1, 10, True)
    assert read(store, path, offset=11, limit=1) == "    11\tline 11\n"
    assert read(store, path, offset=-1) == "   100\tline 100\n"
    assert read(store, path, offset=500) == ""


def test_a_long_line_is_cut_with_its_length_told(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "outputs")
    path = keep(store, "c", b"x" * 500_000 + b"\nend\n")
    first, second = read(store, path).splitlines()
    assert (len(first), first.endswith("[…+498000 bytes]"), second) == (7 + 2000 + 17, True, "     2\tend")


def test_control_characters_are_visible(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "outputs")
    assert read(store, keep(store, "c", b"\x1b[31m\xff\r\n")) == "     1\t\\x1b[31m\ufffd\\x0d\n"


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    output = OutputStore(tmp_path / "outputs").open("c")
    block = memoryview(bytes(1 << 20))
    for _ in range(66):
        output.stdout(block)
    output.close()
    assert ((tmp_path / "outputs" / "c.stdout").stat().st_size, output.kept("stdout")) == (64 << 20, 64 << 20)


def test_a_place_that_cannot_be_written_does_not_fail_the_call(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file in its place")
    output = OutputStore(tmp_path / "outputs").open("c")
    output.stdout(memoryview(b"x"))
    output.close()
    assert output.problem == "File exists"
