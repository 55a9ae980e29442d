"""The index of an untrusted repository: searched first, parsed when many ask, the same answers either way."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from corral.patch.collect import tracked
from corral.patch.collect.tracked import TrackedPaths

NAMES = ["a", "b/a", "b/c/a.txt", "b.txt", "bb/x", "x" * 200 + "/" + "y" * 200, "sub"]
ASKED = [*NAMES, "b", "b/c", "c/a.txt", "a.txt", "x", "x" * 200, "s", "ub", "", "bb", "b/"]
DIRECTORIES = ["b", "b/c", "bb", "c", "a", "x" * 200, "xx", "sub", ""]


def _git(root: Path, *arguments: str, stdin: str = "") -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, input=stdin, text=True, capture_output=True)


def _repository(root: Path, *, version: int, extended: bool = False) -> Path:
    _git(root, "init", "-q")
    empty = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=root, input="", capture_output=True, text=True, check=True
    ).stdout.strip()
    rows = [f"{160000 if name == 'sub' else 100644} {'1' * 40 if name == 'sub' else empty}\t{name}" for name in NAMES]
    _git(root, "update-index", "--index-version", str(version), "--add", "--index-info", stdin="\n".join(rows) + "\n")
    if extended:
        _git(root, "update-index", "--skip-worktree", "b/a")
    _git(root, "update-index", "--index-version", str(version))
    return root


def _answers(paths: TrackedPaths) -> tuple[list[bool], list[bool], list[bool]]:
    return (
        [paths.has(name.encode()) for name in ASKED],
        [paths.has_below(name.encode()) for name in DIRECTORIES],
        [paths.is_submodule(name.encode()) for name in ASKED],
    )


@pytest.mark.parametrize(("version", "extended"), [(2, False), (3, True), (4, False)])
def test_searching_and_parsing_answer_alike(tmp_path: Path, version: int, *, extended: bool) -> None:
    root = _repository(tmp_path, version=version, extended=extended)
    parsed = TrackedPaths(root)
    for _ in range(tracked.MAX_SEARCHES + 1):
        parsed.has(b"a")
    found = _answers(TrackedPaths(root))
    assert found == _answers(parsed)
    assert found == (
        [name in NAMES for name in ASKED],
        [any(one.startswith(f"{name}/") for one in NAMES) for name in DIRECTORIES],
        [name == "sub" for name in ASKED],
    )


def test_a_name_inside_another_name_is_not_tracked(tmp_path: Path) -> None:
    """The two bytes before it read as flags of just its length: only the rest of the entry tells."""
    inner = "n" * 150 + "/" + "m" * 152
    assert struct.unpack(">H", b"a/")[0] & 0xFFF == len(inner)
    _git(tmp_path, "init", "-q")
    (tmp_path / "a" / inner).parent.mkdir(parents=True)
    (tmp_path / "a" / inner).write_text("")
    _git(tmp_path, "add", "-A")
    paths = TrackedPaths(tmp_path)
    assert (paths.has(inner.encode()), paths.has(b"a/" + inner.encode())) == (False, True)


def test_a_broken_index_tracks_nothing(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(b"DIRC\0\0\0\2\0\0\0\1" + b"a\0" * 40)
    assert _answers(TrackedPaths(tmp_path)) == ([False] * len(ASKED), [False] * len(DIRECTORIES), [False] * len(ASKED))
