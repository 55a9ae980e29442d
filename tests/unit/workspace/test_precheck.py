from __future__ import annotations

import os
from pathlib import Path

import pytest

from corral.errors import WorkspaceError
from corral.sandbox.workspace.kernel.mount_table import Mount, MountTable
from corral.sandbox.workspace.precheck import check_workspace, find_obstacle, find_table_warning

PLAIN = MountTable((Mount(b"/", "ext4", (b"rw",)),))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in ("upper", "work"):
        (tmp_path / "run" / name).mkdir(parents=True)
    return tmp_path / "run"


def refuse(workspace: Path, run: Path, *, force: bool = False) -> tuple[str, str | None]:
    with pytest.raises(WorkspaceError) as caught:
        check_workspace(workspace, run, force=force)
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2
    return caught.value.message, caught.value.hint


def test_says_what_is_wrong_with_a_workspace(tmp_path: Path, run: Path, home: Path) -> None:
    file = tmp_path / "f"
    file.touch()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert refuse(tmp_path / "nope\n", run)[0] == f"workspace {str(tmp_path) + '/nope' + chr(10)!r} does not exist"
    assert refuse(file, run) == (
        f"workspace {str(file)!r} is not a directory",
        "name the directory that holds the file",
    )
    assert refuse(file / "x", run)[0] == f"workspace {str(file / 'x')!r} cannot be used: Not a directory"
    assert refuse(Path("/nul\0"), run)[0] == "workspace '/nul\\x00' cannot be used: a path cannot hold a NUL character"
    assert refuse(loop, run)[0].startswith(f"workspace {str(loop)!r} ")
    assert refuse(Path("/"), run)[0] == "workspace '/' is the whole file system"
    assert refuse(home, run) == (
        f"workspace {str(home)!r} is your home directory",
        "name a project directory, or force it with --force",
    )


def test_force_allows_home_but_never_its_own_data(home: Path, tmp_path: Path, run: Path) -> None:
    assert check_workspace(home, run, force=True) == os.fsencode(home.resolve())
    assert "contains corral's own data directory" in refuse(tmp_path, run, force=True)[0]
    assert "contains corral's own data directory" in refuse(Path("/"), run, force=True)[0]
    assert "inside the run's own directory" in refuse(run / "upper", run, force=True)[0]


def test_links_to_a_workspace_are_resolved(tmp_path: Path, run: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert check_workspace(tmp_path / "link", run, force=False) == os.fsencode((tmp_path / "real").resolve())


def reason(run: Path, *mounts: Mount, root: bytes = b"/w") -> str | None:
    table = MountTable((*PLAIN.mounts, *mounts))
    obstacle = find_obstacle(root, run / "upper", run / "work", table)
    return obstacle.reason if obstacle else None


def test_plain_directories_have_no_obstacle(run: Path) -> None:
    assert reason(run) is None
    assert reason(run, Mount(b"/w", "nfs4", ())) is None  # a lower layer may lie anywhere


def test_submounts_are_named(run: Path) -> None:
    mounts = [Mount(b"/w/m%d\n" % i, "tmpfs", ()) for i in range(4)]
    assert reason(run, *mounts) == (
        "other file systems are mounted inside the workspace: '/w/m0\\n', '/w/m1\\n', '/w/m2\\n', ..."
    )
    assert reason(run, Mount(b"/w2", "tmpfs", ())) is None


@pytest.mark.parametrize("kind", ["overlay", "nfs", "nfs4", "fuse.sshfs", "cifs", "9p", "vfat"])
def test_changes_need_a_local_file_system(run: Path, kind: str) -> None:
    found = reason(run, Mount(os.fsencode(run.resolve()), kind, ()))
    assert found == f"corral's data directory lies on {kind}, which cannot hold a box's changes"


def test_overlay_on_overlay_is_seen(run: Path) -> None:
    top = Mount(b"/w", "overlay", (b"lowerdir=/layers/a:/layers/b", b"upperdir=/u"))
    assert reason(run, top) is None
    assert reason(run, Mount(b"/layers", "overlay", ()), top) == "the workspace lies on an overlay on an overlay"


def test_long_mount_tables_are_told() -> None:
    assert find_table_warning(PLAIN) is None
    long = MountTable(PLAIN.mounts * 3000)
    assert find_table_warning(long) == "this host has 3000 mounts, which slows the start of every container"
