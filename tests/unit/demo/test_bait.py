from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from corral.demo import copied_example
from corral.demo.bait import digest_tree, laid_out


async def test_bait_is_there_while_it_is_needed_and_gone_afterwards(tmp_path: Path) -> None:
    workspace = tmp_path / "repo"
    workspace.mkdir()
    before = dict(os.environ)
    async with laid_out(workspace) as bait:
        targets = json.loads((workspace / "targets.json").read_text())
        found = (
            os.environ["CORRAL_DEMO_SECRET"],
            Path(targets["key"]).read_text(),
            (workspace / ".env").read_text().strip().removeprefix("API_TOKEN="),
        )
        assert found == tuple(bait.secrets[name].decode() for name in ("environment", "keys", "env_file"))
        assert bait.secrets["git_credentials"] in (workspace / ".git/config").read_bytes()
        assert len(set(bait.secrets.values())) == 4
        _, writer = await asyncio.open_connection("127.0.0.1", targets["port"])
        writer.close()
        await asyncio.sleep(0.05)
        assert bait.connections == 1
    assert dict(os.environ) == before


def test_the_digest_of_a_tree_sees_every_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "link").symlink_to("a")
    seen = [digest_tree(tmp_path)]
    for change in (
        lambda: (tmp_path / "a").write_text("2"),
        lambda: (tmp_path / "a").chmod(0o600),
        lambda: (tmp_path / "d").mkdir(),
        lambda: (tmp_path / "link").unlink(),
        lambda: (tmp_path / "link").symlink_to("b"),
    ):
        change()
        now = digest_tree(tmp_path)
        assert now not in seen
        seen.append(now)


def test_the_copy_of_an_example_is_whole_and_goes() -> None:
    with copied_example("hostile") as workspace:
        assert (workspace / "tests/bomb.py").is_file()
        (workspace / "more").write_text("x")
    assert not workspace.exists()
