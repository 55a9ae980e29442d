"""Temporary directories of killed processes are found by their names, and nobody else's."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from corral.sandbox.scratch import find_stale_scratch, is_scratch, make_scratch
from corral.sandbox.workspace import find_stale_link_dirs


@pytest.fixture
def left() -> Path:
    """What a process leaves that is killed while it uses one."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        scratch = make_scratch("test")
        (Path(scratch.name) / "file").touch()
        os.write(writer, scratch.name.encode())
        signal.pause()
    name = os.read(reader, 1000).decode()
    os.close(reader)
    os.close(writer)
    assert Path(name) not in find_stale_scratch()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return Path(name)


def test_finds_what_a_killed_process_left(left: Path) -> None:
    try:
        assert is_scratch(left.name)
        assert left in find_stale_scratch()
    finally:
        shutil.rmtree(left)
    assert left not in find_stale_scratch()


def test_leaves_what_a_living_process_uses() -> None:
    with make_scratch("test") as name:
        os.utime(name, (0, 0))
        assert Path(name) not in find_stale_scratch()
        assert Path(name) not in [links.path for links in find_stale_link_dirs()]


def test_ignores_links_and_other_namespaces(left: Path, tmp_path: Path) -> None:
    alias = left.with_name(left.name[:-1] + "~")
    elsewhere = left.with_name(left.name.replace("corral-test-", "corral-test-1"))
    try:
        alias.symlink_to(tmp_path)
        elsewhere.mkdir()
        assert is_scratch(alias.name) and is_scratch(elsewhere.name)
        assert not {alias, elsewhere} & set(find_stale_scratch())
    finally:
        shutil.rmtree(left)
        alias.unlink()
        elsewhere.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a directory of another user: needs root")
def test_ignores_what_another_user_made(left: Path) -> None:
    try:
        os.chown(left, 54321, 54321)
        assert left not in find_stale_scratch()
    finally:
        shutil.rmtree(left)
