"""Set-up layers on disk: what is copied, who may remove one, names that are no names."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from corral.errors import ConfigError
from corral.store.layer import LayerFacts, find_layer, hold_layer, keep_layer, list_layers, remove_layer
from corral.store.layer_tree import TreeLimits, copy_changes

FACTS = LayerFacts("run1", "/w", "/workspace", "corral-sandbox", "sha256:1", "npm ci", ("package.json",))
OWNER = (os.geteuid(), os.getegid())
LIMITS = TreeLimits(max_bytes=1 << 20)


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    folder = tmp_path / "upper"
    (folder / "deps").mkdir(parents=True)
    (folder / "deps/lib").write_text("lib\n")
    return folder


def keep(
    root: Path, upper: Path, name: str = "deps", *, skip: tuple[bytes, ...] = (), max_bytes: int = 1 << 20
) -> Path:
    return keep_layer(root, name, upper, FACTS, skip=skip, owner=OWNER, max_bytes=max_bytes).tree


def test_what_is_kept_is_found_again(tmp_path: Path, upper: Path) -> None:
    tree = keep(tmp_path / "layers", upper)
    found = find_layer(tmp_path / "layers", "deps")
    assert (found.tree, found.facts, list_layers(tmp_path / "layers")) == (tree, FACTS, [found])
    assert (tree / "deps/lib").read_text() == "lib\n"


def test_a_layer_has_whiteouts_links_and_times_and_nothing_else_special(tmp_path: Path, upper: Path) -> None:
    (upper / "soft").symlink_to("/etc/passwd")
    os.link(upper / "deps/lib", upper / "hard")
    os.mkfifo(upper / "fifo")
    os.mknod(upper / "gone", stat.S_IFCHR, 0)
    (upper / "closed").mkdir()
    os.setxattr(upper / "closed", "user.overlay.opaque", b"y")
    os.setxattr(upper / "deps", "user.overlay.origin", b"x")
    os.chmod(upper / "closed", 0o500)
    os.utime(upper / "deps/lib", ns=(1, 2))
    (upper / ".git").mkdir()
    (upper / "deps/.git").mkdir()
    tree = keep(tmp_path / "layers", upper, skip=(b"masked",))
    found = {path.relative_to(tree).as_posix(): path.lstat() for path in tree.rglob("*")}
    assert set(found) == {"soft", "hard", "gone", "closed", "deps", "deps/lib", "deps/.git"}
    gone = found["gone"]
    assert (stat.S_ISCHR(gone.st_mode), gone.st_rdev) == (True, 0)
    assert (found["hard"].st_ino, found["deps/lib"].st_mtime_ns) == (found["deps/lib"].st_ino, 2)
    assert os.readlink(tree / "soft") == "/etc/passwd"
    assert (os.listxattr(tree / "closed"), os.listxattr(tree / "deps")) == (["user.overlay.opaque"], [])


def test_a_layer_has_no_set_id_bit(tmp_path: Path, upper: Path) -> None:
    (upper / "deps/lib").chmod(0o6755)
    (upper / "deps").chmod(0o3777)
    tree = keep(tmp_path / "layers", upper)
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in (tree / "deps", tree / "deps/lib")}
    assert modes == {0o777, 0o755}


def test_masked_paths_are_left_out(tmp_path: Path, upper: Path) -> None:
    (upper / ".env").write_text("placeholder")
    (upper / "deps/key").write_text("placeholder")
    tree = keep(tmp_path / "layers", upper, skip=(b".env", b"deps/key"))
    assert sorted(path.name for path in tree.rglob("*")) == ["deps", "lib"]


@pytest.mark.parametrize("limits", [TreeLimits(3), TreeLimits(99, max_entries=1), TreeLimits(99, max_depth=0)])
def test_beyond_a_limit_nothing_is_kept(tmp_path: Path, upper: Path, limits: TreeLimits) -> None:
    with pytest.raises(ConfigError):
        copy_changes(upper, tmp_path / "target", skip=(), owner=OWNER, limits=limits)
    with pytest.raises(ConfigError):
        keep(tmp_path / "layers", upper, max_bytes=3)
    assert (list_layers(tmp_path / "layers"), list((tmp_path / "layers/deps").iterdir())) == ([], [])


def test_a_new_one_takes_the_place_of_one_that_nobody_uses(tmp_path: Path, upper: Path) -> None:
    root = tmp_path / "layers"
    first = keep(root, upper)
    with hold_layer(find_layer(root, "deps")) as held:
        second = keep(root, upper)
        assert (held, first.exists(), find_layer(root, "deps").tree) == (first, True, second)
        assert remove_layer(root, "deps") is False
    third = keep(root, upper)
    assert (first.exists(), second.exists(), third.exists()) == (False, False, True)
    assert (remove_layer(root, "deps"), root.exists(), list_layers(root)) == (True, True, [])


def test_what_a_killed_keeper_left_goes_with_the_next(tmp_path: Path, upper: Path) -> None:
    left = tmp_path / "layers/deps/.part-abc"
    (left / "tree").mkdir(parents=True)
    keep(tmp_path / "layers", upper)
    assert not left.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "A", ".hidden", "x" * 65, "a\n"])
def test_a_name_never_leads_elsewhere(tmp_path: Path, upper: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        keep(tmp_path / "layers", upper, name)
    with pytest.raises(ConfigError):
        find_layer(tmp_path / "layers", name)
