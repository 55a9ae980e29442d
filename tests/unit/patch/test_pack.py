"""Objects written without git are what git itself would have written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from corral.patch.build import build_patch
from corral.patch.collect.selection import Change, ChangeSet
from corral.patch.git import Repository
from corral.patch.pack import MAX_BYTES, MAX_CHANGES, is_small, write_trees
from corral.patch.tree import Kind, Node, bytes_reader

_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def _node(data: bytes, mode: int = 0o644, kind: Kind = Kind.FILE) -> Node:
    return Node(kind, mode, len(data), 0, bytes_reader(data))


def _write(root: bytes, path: bytes, node: Node) -> None:
    place = os.path.join(root, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    data = b"".join(node.read())
    if node.kind is Kind.SYMLINK:
        os.symlink(data, place)
        return
    with open(place, "wb") as file:
        file.write(data)
    os.chmod(place, node.mode)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


FILES = {
    b"a/x": _node(b"in a directory\n"),
    b"a.b": _node(b"sorts before a/\n"),
    b"a0": _node(b"sorts after a/\n"),
    b"a-b": _node(b""),
    b"run.sh": _node(b"#!/bin/sh\n", 0o755),
    b"link": _node(b"a/x", 0o777, Kind.SYMLINK),
    b'odd \xff\n\t"name': _node(b"\0binary\xff" * 1000),
    b"deep/er/and/deeper": _node(b"x"),
}


def test_the_tree_is_the_one_git_writes(tmp_path: Path) -> None:
    for path, node in FILES.items():
        _write(os.fsencode(tmp_path), path, node)
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "-A")
    repository = Repository(tmp_path / "ours")
    changes = [Change(path, None, node) for path, node in FILES.items()]
    assert write_trees(repository.git_dir, changes) == (_EMPTY_TREE, _git(tmp_path, "write-tree"))


def test_git_finds_nothing_wrong_with_the_objects(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    changes = [Change(path, node, _node(b"new\n")) for path, node in FILES.items()]
    before, after = write_trees(repository.git_dir, changes)
    assert write_trees(repository.git_dir, changes) == (before, after)
    with repository.start("fsck", "--strict", "--no-dangling", before, after) as git:
        assert git.stdout.read() == b""


def test_small_and_large_change_sets_give_the_same_patch(tmp_path: Path) -> None:
    """One file more than fits the quick way: the same file then has the same part in the patch."""
    few = tuple(Change(b"f%03d" % n, _node(b"old\n" * n), _node(b"old\n" * n + b"new\n")) for n in range(MAX_CHANGES))
    many = (*few, Change(b"g", None, _node(b"one more\n")))
    assert (is_small(few), is_small(many)) == (True, False)
    first = build_patch(ChangeSet(few, (), 0), tmp_path / "few")
    second = build_patch(ChangeSet(many, (), 0), tmp_path / "many")
    assert (tmp_path / "many").read_bytes().startswith((tmp_path / "few").read_bytes())
    assert second.files[: len(few)] == first.files


def test_much_content_is_not_small() -> None:
    assert not is_small((Change(b"a", _node(b"x" * MAX_BYTES), _node(b"y")),))


def test_a_kept_repository_serves_one_export_after_the_other(tmp_path: Path) -> None:
    """Small and large ones: each finds it empty, and leaves what a later three-way apply needs."""
    few = (Change(b"a", _node(b"old\n"), _node(b"new\n")),)
    many = tuple(Change(b"f%03d" % n, None, _node(b"new %d\n" % n)) for n in range(MAX_CHANGES + 1))
    kept, packs = tmp_path / "kept", tmp_path / "kept/git/objects/pack"
    for changes in (many, few, few, many, many, few):
        patch = build_patch(ChangeSet(changes, (), 0), tmp_path / "patch", keep=kept)
        alone = build_patch(ChangeSet(changes, (), 0), tmp_path / "alone")
        assert (patch, (tmp_path / "patch").read_bytes()) == (alone, (tmp_path / "alone").read_bytes())
        assert sorted(path.suffix for path in packs.iterdir()) == [".idx", ".pack"]
        for file in patch.files:
            assert _git(kept, "--git-dir", "git", "cat-file", "-t", str(file.new_blob)) == "blob"


def test_an_object_of_any_size_is_read_back(tmp_path: Path) -> None:
    """The head of an object holds its size in pieces of four and seven bits."""
    contents = [b"x" * size for size in (0, 1, 15, 16, 17, 2047, 2048, 2049, 70_000, MAX_BYTES // 2)]
    repository = Repository(tmp_path)
    changes = [Change(b"%d" % place, None, _node(content)) for place, content in enumerate(contents)]
    _, after = write_trees(repository.git_dir, changes)
    for place, content in enumerate(contents):
        with repository.start("cat-file", "blob", f"{after}:{place}") as git:
            assert git.stdout.read() == content
