"""What lies in the world-writable directory for temporary files is believed only from its owner."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from corral.sandbox.workspace import find_stale_link_dirs


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
