"""Whole runs in real boxes: each folder here is one, see scenario.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.scenarios.scenario import ScenarioRun, apply_result, describe, read_tree

from corral import app
from corral.config import load_settings

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("*/scenario.json"))


@pytest.mark.docker
@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
async def test_scenario(folder: Path, sandbox_image: str, tmp_path: Path) -> None:
    run = ScenarioRun(folder, tmp_path / "workspace", sandbox_image)
    wanted = json.loads((folder / "expected/run.json").read_text(encoding="utf-8"))
    patch = folder / "expected/patch.diff"

    done = await run.run()

    assert describe(done, run, wanted) == wanted
    if wanted.get("exact_patch", True):
        assert read_if_there(done.patch_file) == read_if_there(patch)
    assert apply_result(run, done) == wanted.get("conflicts", [])
    tree = folder / "expected/tree.json"
    assert read_tree(run.workspace) == json.loads(tree.read_text(encoding="utf-8"))
    assert read_tree(run.workspace / ".git") == run.git
    await app.remove_run(done.run_id, load_settings().runs_dir())


def read_if_there(path: Path | None) -> bytes:
    return path.read_bytes() if path is not None and path.exists() else b""


def test_there_are_scenarios() -> None:
    assert len(FOLDERS) >= 15
