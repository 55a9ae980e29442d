from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from corral.sandbox.labels import labels
from corral.sandbox.workspace.kernel.link_dir import LinkDir, find_stale_link_dirs


def test_names_are_plain_and_private_and_go(tmp_path: Path) -> None:
    odd = tmp_path / "a,b:c\\d"
    odd.mkdir()
    links = LinkDir.create(labels("r", "workspace"), odd, odd)
    try:
        assert str(links.path).startswith("/tmp/corral-")
        assert stat.S_IMODE(links.path.stat().st_mode) == 0o700
        assert links.upper.resolve() == odd
        assert links.path not in [stale.path for stale in find_stale_link_dirs()]
        (links.path / "owner.json").write_text(json.dumps(labels("r", "workspace") | {"corral.owner.start": "1"}))
        assert links.path in [stale.path for stale in find_stale_link_dirs()]
    finally:
        links.remove()
    links.remove()
    assert not links.path.exists()
    assert odd.exists()


def test_a_directory_with_other_things_in_it_is_not_ours(tmp_path: Path) -> None:
    links = LinkDir.create({}, tmp_path, tmp_path)
    try:
        (links.path / "owner.json").write_text("")
        os.utime(links.path, (1, 1))
        assert links.path in [stale.path for stale in find_stale_link_dirs()]
        (links.path / "owner.json").rename(links.path / "thesis.txt")
        os.utime(links.path, (1, 1))
        assert links.path not in [stale.path for stale in find_stale_link_dirs()]
        (links.path / "thesis.txt").unlink()
    finally:
        links.remove()
