"""A search that remembers finds what one that knows nothing finds, whatever was done to the tree in between."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.sandbox.workspace.mask.search import SearchMemo, SecretSearch

PLACES = ("", "a", "a/b", "c", ".git", ".git/modules/m")
NAMES = (".env", "id_rsa", "plain.txt", "config", "secrets.json", "b")
CONTENTS = ("plain\n", "[remote]\n url = https://me:pw@host/x\n", "-----BEGIN RSA PRIVATE KEY-----\n")
SETTLED_S = 0.03
"""Some ticks of the file systems that tests run on."""

edit = st.tuples(
    st.sampled_from(("write", "remove", "directory", "link", "swap")),
    st.sampled_from(PLACES),
    st.sampled_from(NAMES),
    st.sampled_from(CONTENTS),
)


def apply(root: Path, what: str, place: str, name: str, content: str) -> None:
    target = root / place / name
    if not target.parent.is_dir() or any(one.is_symlink() for one in target.parents):
        return
    if what == "swap" and place:
        shutil.rmtree(target.parent)
        target.parent.symlink_to(root)
    elif what == "remove" or target.is_dir() or target.is_symlink():
        shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink(missing_ok=True)
    elif what == "directory" and not target.exists():
        target.mkdir()
    elif what == "link" and not target.exists():
        target.symlink_to("plain.txt")
    elif what == "write":
        target.write_text(content)


def look(root: Path, memo: SearchMemo | None) -> tuple[list[tuple[str, str, object]], int]:
    """What is found, and how many directories were read for it."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        search = SecretSearch(descriptor, None, memo=memo)
        return [(one.path, one.reason, one.content) for one in search.run()], search.listed
    finally:
        os.close(descriptor)


def settle() -> None:
    time.sleep(SETTLED_S + 0.015)


@settings(max_examples=40, deadline=None)
@given(st.lists(edit, max_size=8), st.lists(st.lists(edit, max_size=4), min_size=1, max_size=3))
def test_a_memo_changes_no_answer(
    first: list[tuple[str, str, str, str]], rounds: list[list[tuple[str, str, str, str]]]
) -> None:
    memo = SearchMemo(settled_ns=int(SETTLED_S * 1e9))
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "tree"
        for folder in PLACES:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for one in first:
            apply(root, *one)
        settle()
        assert look(root, memo)[0] == look(root, None)[0]
        assert look(root, memo)[1] == 0
        for edits in rounds:
            for one in edits:
                apply(root, *one)
            settle()
            assert look(root, memo)[0] == look(root, None)[0]


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    for folder in PLACES:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    memo = SearchMemo(settled_ns=int(SETTLED_S * 1e9))
    settle()
    assert look(tmp_path, memo) == ([], 7)  # .git/modules, too
    (tmp_path / "a/b/.env").write_text("x")
    settle()
    found, read = look(tmp_path, memo)
    assert ([path for path, _, _ in found], read) == (["a/b/.env"], 1)
    assert look(tmp_path, memo)[1] == 0


def test_a_directory_that_has_just_changed_is_not_remembered(tmp_path: Path) -> None:
    memo = SearchMemo(settled_ns=3_600_000_000_000)
    assert [look(tmp_path, memo)[1] for _ in range(2)] == [1, 1]
