"""`corral demo` as a person runs it: it holds, it says when something did not, it leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest
from tests.support.model_server import ModelServer, call

pytestmark = pytest.mark.docker

ARGV = [sys.executable, "-c", "from corral.cli.start import main; main()", "demo"]
FIX = {
    "path": "durations.py",
    "old_string": "    match = _PART.match(text.strip())\n    if match is None:\n"
    '        raise ValueError(f"not a duration: {text!r}")\n    return int(match[1]) * UNITS[match[2]]\n',
    "new_string": '    text = text.strip()\n    if not re.fullmatch(f"(?:{_PART.pattern})+", text):\n'
    '        raise ValueError(f"not a duration: {text!r}")\n'
    "    return sum(int(count) * UNITS[unit] for count, unit in _PART.findall(text))\n",
}


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    place = tmp_path / "tmp"
    place.mkdir()
    return place


def environment(scratch: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "CORRAL_"))}
    return clean | {"TMPDIR": str(scratch)} | more


def demo(scratch: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*ARGV, *arguments], env=environment(scratch, **env), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert list(scratch.iterdir()) == []
    return done


def containers_of(pid: int) -> list[str]:
    client = docker.from_env()
    try:
        marks = {"label": f"corral.owner.pid={pid}"}
        return [raw["Id"] for raw in client.api.containers(all=True, filters=marks)]
    finally:
        client.close()


def test_every_step_holds_without_a_key(sandbox_image: str, scratch: Path) -> None:
    done = demo(scratch, "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr, report["ok"], report["scripted"]) == (0, "", True, True)
    assert [(step["step"], step["held"]) for step in report["steps"]] == [
        ("tests_fail", True),
        ("agent_fixes", True),
        ("patch_applies", True),
        ("tests_pass", True),
        ("record_intact", True),
    ]
    assert (
        (Path(report["run_dir"]) / "patch.diff").read_bytes().startswith(b"diff --git a/durations.py b/durations.py\n")
    )


def test_a_person_is_told_what_is_scripted_and_where_it_is_kept(sandbox_image: str, scratch: Path) -> None:
    done = demo(scratch)
    assert done.stdout == "every step held: red, fixed, patched, green, on record\n"
    for text in (
        "the model is scripted",
        "FAILED (failures=2)",
        "\n    +    text = text.strip()\n",
        "corral log show 20",
    ):
        assert text in done.stderr


def test_a_configured_model_is_used_with_a_cost_limit(sandbox_image: str, scratch: Path) -> None:
    answers = [call("edit_file", FIX), call("finish", {"summary": "fixed"})]
    with ModelServer(answers) as server:
        done = demo(scratch, OPENAI_BASE_URL=server.base_url, CORRAL_MODEL="test-model")
    assert (done.returncode, done.stdout) == (0, "every step held: red, fixed, patched, green, on record\n")
    assert "the model is test-model; it may cost at most $0.50" in done.stderr
    assert "scripted" not in done.stderr
    assert "$0.50 left" in server.received[0].body["messages"][-1]["content"]


def test_a_model_that_does_not_fix_it_is_no_success(sandbox_image: str, scratch: Path) -> None:
    with ModelServer([call("finish", {"summary": "nothing to do"})]) as server:
        done = demo(scratch, "--json", OPENAI_BASE_URL=server.base_url, CORRAL_MODEL="test-model")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (1, False)
    last = report["steps"][-1]
    assert (last["step"], last["held"], last["detail"]) == ("agent_fixes", False, "not_verified after 3 steps")


def test_every_attack_is_held(sandbox_image: str, scratch: Path) -> None:
    done = demo(scratch, "--attack", "--json")
    report = json.loads(done.stdout)
    assert [one for one in report["attempts"] if not one["held"]] == []
    assert (done.returncode, report["ok"], len(report["attempts"])) == (0, True, 30)
    kept = Path(report["run_dir"])
    assert [path.name for path in kept.parent.iterdir()] == [report["run"]]


def test_an_attack_that_gets_through_is_not_held(sandbox_image: str, scratch: Path, tmp_path: Path) -> None:
    """With the masking of secret files switched off, two attempts really succeed."""
    config = tmp_path / "config.toml"
    config.write_text("mask = []\n")
    done = demo(scratch, "--attack", CORRAL_CONFIG=str(config))
    failed = [line.split("  ")[1] for line in done.stdout.splitlines() if line.startswith("NOT HELD")]
    assert failed == ["read the secret in .env", "read the credentials in .git/config"]
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "2 of 30 attempts did NOT hold")


@pytest.mark.parametrize("arguments", [[], ["--attack"]])
def test_an_interrupt_ends_it_clean(sandbox_image: str, scratch: Path, arguments: list[str]) -> None:
    with subprocess.Popen(
        [*ARGV, *arguments], env=environment(scratch), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        limit = time.monotonic() + 60
        while not containers_of(process.pid) and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told.splitlines()[-1]) == (130, "corral: interrupted")
    assert "Traceback" not in told
    assert list(scratch.iterdir()) == []
    assert containers_of(process.pid) == []
