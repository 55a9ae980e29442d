"""What commands and runs used, as results, record and summary of the real thing tell it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.command import corral as command

import corral
from corral.record import load_record
from corral.schema.events import RunFinished, ToolFinished
from corral.store.run_dir import find_runs_root, list_runs

pytestmark = pytest.mark.docker

BURN = "python3 -c 'import time\nwhile time.process_time() < 0.4: pass'"
WRITE = "head -c 3000000 /dev/zero > big"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


def test_a_command_is_accounted_for_in_json_record_and_summary(repo: Path, sandbox_image: str) -> None:
    options = ("exec", "-C", str(repo), "--image", sandbox_image)
    told: dict[str, Any] = command(*options, "--json", "--", "bash", "-c", f"{BURN}; {WRITE}").json()
    used, run = told["resources"]["command"], told["resources"]["run"]
    assert 0.4 <= used["user_s"] + used["system_s"] < 20
    assert (used["programs"], used["programs_peak"]) == (3, 2)
    assert used["max_rss_bytes"] > 5 << 20
    assert (used["written_bytes"] >= 3_000_000, run["box"]["written_bytes"]) == (True, used["written_bytes"])
    assert run["box"]["programs"] == 3
    assert run["box"]["user_s"] + run["box"]["system_s"] >= 0.4
    assert run["box"]["memory_peak_bytes"] >= used["max_rss_bytes"]
    assert run["orchestrator"]["max_rss_bytes"] > 10 << 20
    assert run["wall_s"] > 0.4
    record = load_record(find_runs_root() / list_runs()[0] / "record.jsonl")
    by_kind = {type(event.payload): event.payload for event in record.events}
    finished, ended = by_kind[ToolFinished], by_kind[RunFinished]
    assert isinstance(finished, ToolFinished)
    assert isinstance(ended, RunFinished)
    assert finished.resources is not None
    assert ended.resources is not None
    assert (finished.resources.model_dump(), ended.resources.model_dump()) == (used, run)
    summary = command(*options, "--", "bash", "-c", WRITE).err
    (line,) = [one for one in summary if "used " in one]
    assert "of cpu (" in line
    assert "2 processes, 2.9 MiB written, corral itself" in line


async def test_a_program_can_ask_at_any_time(repo: Path, sandbox_image: str) -> None:
    async with corral.Sandbox(repo, image=sandbox_image) as box:
        result = await box.shell(f"{WRITE}; /bin/true; :")
        assert (result.resources.programs, result.resources.written_bytes >= 3_000_000) == (3, True)
        first = await box.resources()
        await box.exec(["true"])
        second = await box.resources()
        assert first.box is not None
        assert second.box is not None
        assert (first.box.programs, second.box.programs) == (3, 4)
        assert first.box.tasks_peak in range(5, 20) or first.box.tasks_peak == 0
        assert second.wall_s > first.wall_s
    last = await box.resources()
    assert last.box is not None
    assert (last.box.programs, last.wall_s >= second.wall_s) == (4, True)
