from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.errors import RecordError, WorkspaceError
from corral.sandbox.spec import WorkspaceMode
from corral.sandbox.workspace.baseline import Baseline, append_entry, load_baseline, load_entries, write_baseline
from corral.sandbox.workspace.tree.pack import Packed, TreePack, measure
from corral.sandbox.workspace.tree.walk import MAX_DEPTH, TreeWalk


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    root = tmp_path / "w"
    root.mkdir()
    descriptor = os.open(root, os.O_RDONLY)
    yield root, descriptor
    os.close(descriptor)


def pack(descriptor: int, masks: dict[bytes, bytes | None] | None = None) -> tuple[TreePack, bytes, list[Packed]]:
    entries: list[Packed] = []
    packing = TreePack(descriptor, masks or {}, 1 << 30, 1000, entries.append)
    return packing, b"".join(packing), entries


def unpack(data: bytes) -> dict[bytes, tuple[bytes, int, bytes]]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for info in archive:
            file = archive.extractfile(info) if info.isreg() else None
            body = file.read() if file else os.fsencode(info.linkname)
            found[os.fsencode(info.name)] = (info.type, info.mode, body)
    return found


def test_any_name_and_content_survives(tree: tuple[Path, int]) -> None:
    root, descriptor = tree
    names = [b"a b", b"\xff\xfe", b"new\nline", b"-rf", b"l" * 200, "é".encode()]
    for name in names:
        (root / os.fsdecode(name)).write_bytes(name * 1000)
    (root / "deep" / ("d" * 150)).mkdir(parents=True)
    (root / "deep" / ("d" * 150) / "f").write_bytes(b"")
    (root / "run").write_bytes(b"x")
    (root / "run").chmod(0o4755)
    (root / "link").symlink_to("/etc/" + "x" * 300)
    _, data, entries = pack(descriptor)
    expected = {name: (tarfile.REGTYPE, 0o644, name * 1000) for name in names} | {
        b"deep": (tarfile.DIRTYPE, 0o755, b""),
        b"deep/" + b"d" * 150: (tarfile.DIRTYPE, 0o755, b""),
        b"deep/" + b"d" * 150 + b"/f": (tarfile.REGTYPE, 0o644, b""),
        b"run": (tarfile.REGTYPE, 0o755, b"x"),
        b"link": (tarfile.SYMTYPE, 0o777, b"/etc/" + b"x" * 300),
    }
    assert unpack(data) == expected
    assert len(data) % 512 == 0
    by_path = {entry.path: entry for entry in entries}
    assert by_path.keys() == expected.keys()
    assert by_path[b"a b"].sha256 == hashlib.sha256(b"a b" * 1000).hexdigest()
    assert by_path[b"link"].target == b"/etc/" + b"x" * 300


def test_what_is_no_file_is_left_out_and_told_without_hanging(tree: tuple[Path, int]) -> None:
    root, descriptor = tree
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "sock"))
    (root / "file").write_text("x")
    packing, data, _ = pack(descriptor)
    assert packing.skipped == [(b"fifo", "a FIFO"), (b"sock", "a socket")]
    assert list(unpack(data)) == [b"file"]


def test_masks_are_sent_instead(tree: tuple[Path, int]) -> None:
    root, descriptor = tree
    (root / "hidden" / "deep").mkdir(parents=True)
    (root / "hidden" / "deep" / "x").write_text("hunter2")
    (root / "hidden2").write_text("plain")
    (root / ".env").write_text("hunter2")
    _, data, entries = pack(descriptor, {b".env": b"# masked\n", b"hidden": None})
    assert b"hunter2" not in data
    assert {name: body for name, (_, _, body) in unpack(data).items()} == {
        b".env": b"# masked\n",
        b"hidden": b"",
        b"hidden2": b"plain",
    }
    assert [entry.path for entry in entries if entry.is_masked] == [b".env"]


def test_a_file_that_shrinks_meanwhile_breaks_nothing(tree: tuple[Path, int]) -> None:
    root, descriptor = tree
    (root / "a").write_bytes(b"x" * (1 << 20))
    (root / "b").write_bytes(b"rest")
    packing = TreePack(descriptor, {}, 1 << 30, 1000, lambda entry: None)
    chunks = []
    for chunk in packing:
        chunks.append(chunk)
        if len(chunks) == 2:
            os.truncate(root / "a", 300 << 10)
    sent = unpack(b"".join(chunks))
    assert sent[b"b"][2] == b"rest"
    assert len(sent[b"a"][2]) == 1 << 20
    assert packing.skipped == [(b"a", "it shrank while it was read: sent with zeros at its end")]


@pytest.mark.parametrize(("max_bytes", "max_entries"), [(10, 100), (1000, 2)])
def test_limits_end_the_stream(tree: tuple[Path, int], max_bytes: int, max_entries: int) -> None:
    root, descriptor = tree
    for name in "abc":
        (root / name).write_bytes(b"12345")
    with pytest.raises(WorkspaceError, match="too large to copy"):
        list(TreePack(descriptor, {}, max_bytes, max_entries, lambda entry: None))


def test_deep_trees_are_cut_and_told(tree: tuple[Path, int]) -> None:
    root, descriptor = tree
    current = root
    for _ in range(MAX_DEPTH + 20):
        current = current / "d"
        current.mkdir()
    walk = TreeWalk(descriptor)
    assert len(list(walk)) == MAX_DEPTH
    assert walk.problems == [(b"/".join([b"d"] * MAX_DEPTH), f"more than {MAX_DEPTH} directories deep")]


def test_two_walks_over_one_descriptor_do_not_meet(tree: tuple[Path, int]) -> None:
    root, descriptor = tree
    for name in "abc":
        (root / name).touch()
    first, second = iter(TreeWalk(descriptor)), iter(TreeWalk(descriptor))
    assert [(one.path, two.path) for one, two in zip(first, second, strict=True)] == [
        (b"a", b"a"),
        (b"b", b"b"),
        (b"c", b"c"),
    ]


def test_measure_counts_whole_pages(tree: tuple[Path, int]) -> None:
    root, descriptor = tree
    (root / "a").write_bytes(b"x")
    (root / "b").write_bytes(b"x" * 4097)
    found = measure(descriptor)
    assert (found.bytes, found.entries) == (3 * 4096, 2)


def test_baseline_comes_back_as_written(tmp_path: Path) -> None:
    head = Baseline(WorkspaceMode.COPY, b"/w/\xff", 123)
    entries = [
        Packed(b"\xff", "file", 0o644, 1, 5, "ab", b"", is_masked=True),
        Packed(b"l", "symlink", 0o777, 1, 5, "", b"\xfe"),
        Packed(b"d", "dir", 0o755, 0, 5),
    ]
    with write_baseline(tmp_path / "b", head) as file:
        for entry in entries:
            append_entry(file, entry)
    assert load_baseline(tmp_path / "b") == head
    assert list(load_entries(tmp_path / "b")) == entries


@pytest.mark.parametrize("text", ["", "[]\n", "{}\n", '{"version": 2}\n', "{", '{"version": 1, "mode": "x"}\n'])
def test_broken_baseline_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "b").write_text(text)
    with pytest.raises(RecordError, match="baseline"):
        load_baseline(tmp_path / "b")
