"""What lies over or around the toolbox's files, as a table of mounts tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral_toolbox.ground import find_fault

PARENT = "/usr/share"  # a directory of root's on every machine


def write_mounts(tmp_path: Path, *points: str) -> str:
    table = tmp_path / "mountinfo"
    lines = [f"{n} 1 0:{n} / {point} rw,relatime - tmpfs tmpfs rw\n" for n, point in enumerate(points)]
    table.write_text("".join(lines))
    return str(table)


@pytest.mark.parametrize(
    ("points", "fault"),
    [
        (("/", "/proc", f"{PARENT}/corral"), ""),
        (("/", f"{PARENT}/corrals/x"), ""),
        ((f"{PARENT}/corral/lib",), f"a link of this image leads into {PARENT}/corral"),
        ((f"{PARENT}/corral/a\\040b", f"{PARENT}/corral"), f"a link of this image leads into {PARENT}/corral"),
    ],
)
def test_nothing_is_mounted_below_the_toolbox(tmp_path: Path, points: tuple[str, ...], fault: str) -> None:
    assert find_fault(f"{PARENT}/corral", write_mounts(tmp_path, *points)) == fault


def test_the_toolbox_is_not_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(PARENT)
    place = f"{tmp_path}/link/corral"
    assert find_fault(place, write_mounts(tmp_path)) == f"{place} is a link in this image"


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_nobody_else_can_write_beside_the_toolbox(tmp_path: Path, mode: int) -> None:
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt").chmod(mode)
    place = str(tmp_path.resolve() / "opt/corral")
    assert find_fault(place, write_mounts(tmp_path)) == f"{tmp_path.resolve()}/opt is not root's in this image"
