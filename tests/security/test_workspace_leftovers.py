"""What lies in the world-writable directory for temporary files is believed only from its owner."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from corral.sandbox.workspace import find_stale_link_dirs, remove_stale_locks
from corral.sandbox.workspace.owner import choose_owner


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a directory of another user: needs root")
def test_ignores_link_dir_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    trap = Path(tempfile.mkdtemp(prefix="corral-", dir="/tmp"))
    try:
        (trap / "owner.json").write_text(json.dumps({"corral.owner.pid": "1", "corral.owner.start": "0"}))
        assert trap in [stale.path for stale in find_stale_link_dirs()]
        os.chown(trap, 54321, 54321)
        assert trap not in [stale.path for stale in find_stale_link_dirs()]
        alias = trap.with_name(trap.name + "-link")
        alias.symlink_to(tmp_path)
        assert alias not in [stale.path for stale in find_stale_link_dirs()]
        alias.unlink()
    finally:
        shutil.rmtree(trap)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's boxes have ids of their own: needs root")
def test_removes_the_lock_of_a_killed_owner_and_no_other(tmp_path: Path) -> None:
    alive = choose_owner(tmp_path.stat(), None)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(choose_owner(tmp_path.stat(), None).uid).encode())
        signal.pause()
    killed = os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)
    assert not {str(alive.uid), killed} & names(remove_stale_locks(dry_run=True))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        # Somebody else's janitor may be faster; gone it is in any case.
        planned = names(remove_stale_locks(dry_run=True))
        remove_stale_locks()
        assert str(alive.uid) not in planned
        assert killed not in names(remove_stale_locks(dry_run=True))
        assert (Path("/run/corral/ids") / str(alive.uid)).exists()
    finally:
        alive.release()
    assert not {str(alive.uid), killed} & set(os.listdir("/run/corral/ids"))


def names(paths: list[str]) -> set[str]:
    return {Path(path).name for path in paths}
