"""The examples run as they stand, for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from corral.record import verify_record
from corral.store.run_dir import find_run

pytestmark = pytest.mark.docker

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "CORRAL_"))}
    return subprocess.run(
        [sys.executable, str(EXAMPLES / example), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def repo(tmp_path: Path, sandbox_image: str) -> Path:
    folder = tmp_path / "repo"
    shutil.copytree(EXAMPLES / "demo/repo", folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_sandbox_example_runs_the_tests_and_says_what_changed(repo: Path) -> None:
    done = run("sandbox.py", str(repo), "echo one > new; python3 -m unittest")
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAILED (failures=2)" in done.stdout and "exit code 1 in" in done.stdout
    assert "added new +1 -0\n" in done.stdout
    assert not (repo / "new").exists()


def test_sandbox_example_takes_the_demo_when_nothing_is_named(sandbox_image: str) -> None:
    done = run("sandbox.py")
    assert done.returncode == 1 and "nothing changed\n" in done.stdout


def test_sandbox_example_tells_an_error_with_a_hint(tmp_path: Path) -> None:
    done = run("sandbox.py", str(tmp_path / "none"))
    assert (done.returncode, "none" in done.stderr, "hint: " in done.stderr) == (2, True, True)


def test_session_example_replaces_tests_and_keeps_the_patch(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = (repo / "durations.py").read_text()
    count = before.count("seconds")
    done = run("session.py", str(repo), "seconds", "moments", "python3 -c 'import durations'")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"durations.py: {count} replaced\n" in done.stdout
    assert "python3 -c 'import durations': exit code 0, " in done.stdout
    assert "session.diff: durations.py" in done.stdout
    assert "0 bytes from the network, run " in done.stdout
    assert "+" in (tmp_path / "session.diff").read_text()
    assert (repo / "durations.py").read_text() == before


def test_agent_example_mends_the_demo(repo: Path) -> None:
    before = (repo / "durations.py").read_text()
    done = run("agent.py", str(repo))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("model: scripted:")
    assert "finished after 5 steps: " in done.stdout and "+    return sum(" in done.stdout
    assert (repo / "durations.py").read_text() == before
    assert verify_record(find_run("last") / "record.jsonl").ok
