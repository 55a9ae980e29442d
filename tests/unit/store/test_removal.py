from __future__ import annotations

import os
from pathlib import Path

from corral.store.removal import remove_tree


def test_removes_what_a_box_can_leave(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "link").symlink_to(outside)
    (top / "a" / "link").symlink_to("../../outside")
    os.mkfifo(top / "a" / "fifo")
    (top / "a" / "b" / ".corral-gone-1").mkdir()
    (top / "a" / "b" / "file\n").touch()
    (top / "a" / "b").chmod(0)
    (top / "a").chmod(0o500)
    top.chmod(0o500)
    remove_tree(top)
    remove_tree(top)
    assert os.listdir(tmp_path) == ["outside"]
    assert (outside / "kept").read_text() == "x"


def test_depth_does_not_matter(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    current = os.open(top, os.O_RDONLY)
    for _ in range(3000):  # longer than any path can be
        os.mkdir("d" * 10, dir_fd=current)
        below = os.open("d" * 10, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    remove_tree(top)
    assert not top.exists()
