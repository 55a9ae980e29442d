"""The scripts a newcomer meets first: they parse, explain themselves, and refuse what they cannot do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = ("setup", ".ci/run")


def run_setup(folder: Path, *arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    """./setup in a folder that has nothing but it."""
    shutil.copy2(ROOT / "setup", folder)
    return subprocess.run(
        [folder / "setup", *arguments],
        env={"PATH": path, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_executable_bash(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    assert subprocess.run(["bash", "-n", ROOT / name], capture_output=True, check=False).stderr == b""


def test_setup_explains_itself(tmp_path: Path) -> None:
    done = run_setup(tmp_path, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert [job for job in ("demo", "test", "install", "stop") if f"./setup {job}" not in done.stdout] == []


def test_setup_refuses_an_unknown_word_and_does_nothing(tmp_path: Path) -> None:
    done = run_setup(tmp_path, "demoo")
    assert done.returncode == 2
    assert not (tmp_path / ".venv").exists()


def test_setup_stops_no_engine_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / ".cache").mkdir()
    # The right process id with another start time is another process.
    (tmp_path / ".cache" / "engine").write_text(f"{os.getpid()} 1\n")
    assert run_setup(tmp_path, "stop").stdout == "setup: the engine had ended before\n"
    assert run_setup(tmp_path, "stop").stdout == "setup: no engine of ours is running\n"
