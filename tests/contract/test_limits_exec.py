"""What happens to a box that takes too much, by the real command: told by name with the limit, the changes kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.command import Ran, corral

from corral.record import load_state

pytestmark = pytest.mark.docker

WRITE_BYTES = "for i in $(seq 20); do head -c 50000000 /dev/zero > big$i || exit 9; done; sleep 60"
WRITE_FILES = "for i in $(seq 30); do mkdir d$i; (cd d$i; seq 100 | xargs touch); done; sleep 60"
MEMORY = "x = []\nwhile True: x.append(bytearray(10 << 20))\n"
FORKS = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError:
        break
"""


@pytest.fixture
def limited(tmp_path: Path, home: Path, sandbox_image: str) -> Path:
    """A workspace, and settings with small limits."""
    settings = home / "xdg_config_home/corral/config.toml"
    settings.parent.mkdir(parents=True)
    lines = [
        'memory = "256 MiB"',
        "pids = 64",
        'workspace_size = "100 MiB"',
        "workspace_inodes = 2000",
        'file_size = "60 MiB"',
    ]
    settings.write_text(f'image = "{sandbox_image}"\n[limits]\n' + "\n".join(lines) + "\n")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "memory.py").write_text(MEMORY)
    (workspace / "forks.py").write_text(FORKS)
    return workspace


def run_in(workspace: Path, command: str, *options: str) -> Ran:
    return corral("exec", *options, "-C", str(workspace), "--", "sh", "-c", command)


def touched(ran: Ran) -> list[str]:
    return [line.strip() for line in ran.err if "limits touched" in line]


@pytest.mark.parametrize(
    ("command", "limit", "setting"),
    [
        (WRITE_BYTES, 100 << 20, "workspace_size"),
        (WRITE_FILES, 2000, "workspace_inodes"),
    ],
)
def test_a_box_that_writes_too_much_ends(limited: Path, command: str, limit: int, setting: str) -> None:
    ran = run_in(limited, f"echo kept > kept; {command}")
    assert ran.code == 125
    error = next(number for number, line in enumerate(ran.err) if line.startswith("corral: the box's changes passed"))
    assert ran.err[error].endswith(f", limit {limit}")
    assert ran.err[error + 1] == f"  hint: its changes until then are kept; limits.{setting} in the settings raises it"
    answer = run_in(limited, f"echo kept > kept; {command}", "--json").json()
    assert (answer["cause"], answer["exit_code"]) == ("disk_full", 125)
    assert answer["limits_touched"] == ["disk (100.0 MiB, 2000 files, 512.0 MiB to stay free)"]
    assert "kept" in {one["path"] for one in answer["changes"]["files"]}  # type: ignore[index]
    assert os.listdir(limited).count("kept") == 0


def test_a_file_that_grows_too_large(limited: Path) -> None:
    ran = run_in(limited, "exec dd if=/dev/zero of=big bs=1M count=80 status=none")
    assert (ran.code, touched(ran)) == (128 + 25, ["limits touched: file size 60.0 MiB"])


def test_a_command_that_runs_out_of_memory(limited: Path) -> None:
    ran = run_in(limited, "exec python3 memory.py")
    assert (ran.code, touched(ran)) == (137, ["limits touched: memory 256.0 MiB (1 killed)"])
    assert run_in(limited, "exec python3 memory.py", "--json").json()["cause"] == "oom"


def test_a_child_that_runs_out_of_memory_leaves_the_rest_alive(limited: Path) -> None:
    ran = run_in(limited, "python3 memory.py; echo $? > after")
    assert (ran.code, touched(ran)) == (0, ["limits touched: memory 256.0 MiB (1 killed)"])
    assert "    A after  +1 -0" in ran.err


def test_a_fork_bomb_is_refused_and_the_box_answers(limited: Path) -> None:
    ran = run_in(limited, "python3 forks.py; exec ls")
    assert (ran.code, ran.out) == (0, b"forks.py\nmemory.py\n")
    assert [line.split(" (")[0] for line in touched(ran)] == ["limits touched: processes 64"]
    assert run_in(limited, "python3 forks.py", "--json").json()["cause"] == "pids_exhausted"


def test_a_run_of_an_agent_names_the_limits_it_ran_into(limited: Path, tmp_path: Path) -> None:
    calls = [
        {"name": "shell", "arguments": {"command": "python3 memory.py; python3 forks.py; true"}},
        {"name": "finish", "arguments": {"summary": "tried"}},
    ]
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"calls": [call]} for call in calls]}))
    ran = corral("run", "-C", str(limited), "--model", f"scripted:{script}", "--json", "try the limits")
    result = ran.json()
    names = [one.split(" (")[0] for one in result["limits_touched"]]  # type: ignore[attr-defined]
    assert (ran.code, names) == (0, ["memory 256.0 MiB", "processes 64"])
    assert [line.split(" (")[0] for line in touched(ran)] == ["limits touched: memory 256.0 MiB"]
    finished = load_state(Path(str(result["run_dir"])) / "record.jsonl").finished
    assert finished is not None
    assert list(finished.limits_touched) == result["limits_touched"]


def test_a_time_limit(limited: Path) -> None:
    ran = run_in(limited, "echo kept > kept; sleep 60", "--timeout", "1")
    assert (ran.code, touched(ran)) == (124, [])
    assert any(line.startswith("corral time limit reached in ") for line in ran.err)
    assert "    A kept  +1 -0" in ran.err
