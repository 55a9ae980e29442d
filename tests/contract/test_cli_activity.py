"""What ran in the box, and whom it tried to reach, as people and programs are told by the real command."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.support.command import corral

from corral.record import verify_record
from corral.store.run_dir import find_runs_root, list_runs

pytestmark = pytest.mark.docker
TELLS_ENDS = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)

SCRIPT = """
/bin/true $'\\e]0;owned\\a'
sh -c '/bin/echo deep; :'
python3 -c 'import socket; socket.socket().connect_ex(("192.0.2.1", 443))'
exit 3
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\n")
    return tmp_path


def test_exec_ends_with_the_tree_and_the_log_shows_it_again(repo: Path, sandbox_image: str) -> None:
    ran = corral("exec", "-C", str(repo), "--image", sandbox_image, "--", "bash", "-c", SCRIPT)
    assert ran.code == 3
    start = next(place for place, line in enumerate(ran.err) if "processes started" in line)
    lines = [line.strip() for line in ran.err[start:]]
    first, *others = [line.split(" ", 1) for line in lines[1:6]]
    assert lines[0] == "5 processes started"
    assert (int(first[0]) > 1, first[1].startswith("bash -c"), first[1].endswith("[exit 3]")) == (True, True, True)
    assert [words.partition(" ")[0] for _, words in others] == ["/bin/true", "sh", "/bin/echo", "python3"]
    assert lines[6:8] == ["1 connection tried", "connect tcp 192.0.2.1:443 attempted"]
    assert "\x1b]" not in "\n".join(ran.err)
    run = list_runs()[0]
    again = corral("log", "processes", run)
    shown = [line.strip() for line in again.out.decode().splitlines()]
    assert (again.code, len(shown), shown[0], shown[6:]) == (0, 8, lines[0], lines[6:8])
    how = [re.search(r" \[(exit \w+) after [0-9.]+ s\]$", line) for line in shown[1:6]]
    assert [found and found[1] for found in how] == ["exit 3", *["exit 0" if TELLS_ENDS else "exit unknown"] * 4]
    assert verify_record(find_runs_root() / run / "record.jsonl").ok


def test_json_of_both_carries_the_same(repo: Path, sandbox_image: str) -> None:
    ran = corral("exec", "-C", str(repo), "--image", sandbox_image, "--json", "--", "bash", "-c", SCRIPT)
    told = ran.json()["activity"]
    assert isinstance(told, dict)
    assert {name: told[name] for name in ("processes_started", "connections_tried", "only_counted")} == {
        "processes_started": 5,
        "connections_tried": 1,
        "only_counted": 0,
    }
    assert [(one["depth"], one["ended"]) for one in told["processes"]] == [
        (0, "exit 3"),
        *[(depth, "exit 0" if TELLS_ENDS else "exit unknown") for depth in (1, 1, 2, 1)],
    ]
    assert json.loads(corral("log", "processes", list_runs()[0], "--json").out) == told
