from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from corral.sandbox.labels import read_boot_id
from corral.sandbox.workspace.proof import Root, find_mismatch, list_merged, plant_nonce, remove_nonce
from corral_protocol.message import HelloReply, RootEntry
from corral_protocol.name import encode_name


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[tuple[int, int]]:
    for name in ("lower", "upper"):
        (tmp_path / name).mkdir()
    (tmp_path / "lower" / "file").write_text("text")
    (tmp_path / "lower" / "dir").mkdir()
    (tmp_path / "upper" / "dir").mkdir()
    opened = (os.open(tmp_path / "lower", os.O_RDONLY), os.open(tmp_path / "upper", os.O_RDONLY))
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def report(root: Root) -> HelloReply:
    entries = [
        RootEntry(encode_name(name), look.mode, look.size, look.mtime_ns, look.ctime_ns)
        for name, look in sorted(root.items())[:256]
    ]
    return HelloReply(1, "0", read_boot_id(), "3", "/bin/sh", entries)


def test_the_very_directory_is_proven(layers: tuple[int, int]) -> None:
    nonce = plant_nonce(layers[1])
    root = list_merged(*layers)
    assert set(root) == {nonce, b"file", b"dir"}
    assert find_mismatch(report(root), nonce, root, root) is None
    remove_nonce(layers[1], nonce)
    remove_nonce(layers[1], nonce)
    assert set(list_merged(*layers)) == {b"file", b"dir"}


def test_every_difference_is_a_reason(layers: tuple[int, int]) -> None:
    nonce = plant_nonce(layers[1])
    root = list_merged(*layers)
    good = report(root)
    without = {name: look for name, look in root.items() if name != b"file"}
    other = root | {b"file": replace(root[b"file"], size=5)}
    more = root | {b"more": root[b"file"]}
    cases = {
        "the engine runs on another machine or kernel": replace(good, boot_id="x"),
        "the engine does not see the run's directory": report({b"file": root[b"file"]}),
        "the engine sees another workspace: 'file' is missing": report(without),
        "the engine sees another workspace: 'file' differs": report(other),
        "the engine sees another workspace: 'more' differs": report(more),
        "the box reported names that cannot be": replace(good, workspace_root=[RootEntry("\0!", 0, 0, 0)]),
    }
    assert {find_mismatch(hello, nonce, root, root): hello for hello in cases.values()} == cases


def test_a_clone_is_another_directory(layers: tuple[int, int]) -> None:
    """All that can be set is the same: what differs is when it was made."""
    nonce = plant_nonce(layers[1])
    root = list_merged(*layers)
    look = root[b"file"]
    for moment in (look.ctime_ns - 1, look.ctime_ns + 1):
        hello = report(root | {b"file": replace(look, ctime_ns=moment)})
        assert find_mismatch(hello, nonce, root, root) == "the engine sees another workspace: 'file' differs"
        assert find_mismatch(hello, nonce, root, root, is_same_kernel=False) is None
    later = root | {b"file": replace(look, ctime_ns=look.ctime_ns + 9)}
    between = report(root | {b"file": replace(look, ctime_ns=look.ctime_ns + 4)})
    assert find_mismatch(between, nonce, root, later) is None


def test_another_kernel_is_proven_by_the_names_alone(layers: tuple[int, int]) -> None:
    nonce = plant_nonce(layers[1])
    root = list_merged(*layers)
    hello = replace(report(root), boot_id="")
    assert find_mismatch(hello, nonce, root, root) == "the engine runs on another machine or kernel"
    assert find_mismatch(hello, nonce, root, root, is_same_kernel=False) is None
    other = replace(report({b"file": root[b"file"]}), boot_id="")
    reason = "the engine does not see the run's directory"
    assert find_mismatch(other, nonce, root, root, is_same_kernel=False) == reason


def test_edits_of_the_user_during_the_start_are_no_mismatch(layers: tuple[int, int], tmp_path: Path) -> None:
    nonce = plant_nonce(layers[1])
    before = list_merged(*layers)
    (tmp_path / "lower" / "file").write_text("longer text")
    (tmp_path / "lower" / "new").write_text("x")
    now = list_merged(*layers)
    for seen in (before, now, before | {b"new": now[b"new"]}):
        assert find_mismatch(report(seen), nonce, before, now) is None


def test_many_names_are_compared_as_far_as_reported(layers: tuple[int, int], tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / "lower" / f"n{number}").touch()
    nonce = plant_nonce(layers[1])
    root = list_merged(*layers)
    assert find_mismatch(report(root), nonce, root, root) is None
    few = dict(sorted(root.items())[:100])
    assert find_mismatch(report(few), nonce, root, root) == "the engine sees another workspace: it has fewer entries"
