"""The network's flags through the real command: what the box finds, what is told at the end, what the record says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.command import Ran, corral

from corral.store.run_dir import find_runs_root, list_runs

pytestmark = pytest.mark.docker

REFUSED = b"corral: this host is not on the run's list\n"
SECRET = "s3cr3t-t0ken-value"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


def execute(repo: Path, image: str, *options: str, command: str = "true", env: dict[str, str] | None = None) -> Ran:
    return corral("exec", "-C", str(repo), "--image", image, *options, "--", "sh", "-c", command, env=env)


def read_record() -> list[dict[str, object]]:
    """The events, without what the box claims about its processes."""
    lines = (find_runs_root() / list_runs()[0] / "record.jsonl").read_text().splitlines()
    claims = ("process.started", "connection.attempted")
    events = [one for one in map(json.loads, lines) if not (one["source"] == "box" and one["kind"] in claims)]
    return [{"kind": event["kind"], **event["payload"]} for event in events]


def pick(events: list[dict[str, object]], *names: str) -> list[tuple[object, ...]]:
    return [
        tuple(event.get(name) for name in names)
        for event in events
        if event["kind"].startswith(("network.", "connection."))
    ]  # type: ignore[attr-defined]


def test_without_a_flag_there_is_no_proxy(repo: Path, image: str) -> None:
    ran = execute(repo, image, command="env | grep -ci proxy; curl -sS http://example.org/ 2>&1 | head -c 40")
    assert ran.out.startswith(b"0\ncurl: (6) Could not resolve host")
    assert not any(line.lstrip().startswith(("reached", "refused")) for line in ran.err)
    assert pick(read_record(), "kind") == []


def test_what_is_not_listed_is_refused_told_and_recorded(repo: Path, image: str) -> None:
    ran = execute(repo, image, "--network", "none", command="curl -s http://a.test/x; curl -s http://a.test/y")
    assert (ran.code, ran.out) == (0, 2 * REFUSED)
    assert "  refused a.test:80 x2" in ran.err
    events = read_record()
    assert pick(events, "kind", "host", "method", "allowed", "rules") == [
        ("network.changed", None, None, None, None),
        ("connection.attempted", "a.test", "GET", False, ["network/not-listed"]),
        ("connection.attempted", "a.test", "GET", False, ["network/not-listed"]),
    ]
    assert events[-1]["box"]["network"] == "tunnel"  # type: ignore[index]


def test_a_list_is_in_the_record_and_in_json(repo: Path, image: str) -> None:
    ran = execute(
        repo, image, "--json", "--network", "python", "--allow", "*.a.test:1", command="curl -s http://b.test/"
    )
    told = ran.json()
    assert told["network"] == {"reached": [], "refused": [["b.test:80", 1]], "bytes_in": 0, "bytes_out": 0}
    ((profiles, hosts),) = [found for found in pick(read_record(), "profiles", "hosts") if found[0] is not None]
    assert profiles == ["python"] and "*.a.test:1" in hosts and len(hosts) == 3  # type: ignore[operator,arg-type]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--allow", "10.0.0.1:80"], "'10.0.0.1:80' cannot be allowed: it is private"),
        (["--allow", "http://a.test"], "'http://a.test' is no host to allow: not a port"),
        (["--network", "pyton"], "there is no network profile 'pyton'"),
        (["--secret", "token"], "there is no secret 'token'"),
        (["--forward", "99999"], "--forward '99999' names no port"),
    ],
)
def test_a_mistake_is_said_before_there_is_a_run(repo: Path, image: str, options: list[str], problem: str) -> None:
    ran = execute(repo, image, *options)
    assert ran.code == 2 and problem in ran.err[0] and "hint: " in ran.err[1]
    assert list_runs() == []


def test_a_secret_is_a_placeholder_in_the_box_and_nowhere_in_the_run(repo: Path, image: str, home: Path) -> None:
    settings = home / "settings.toml"
    settings.write_text('[secrets.forge]\nenv = "FORGE_TOKEN"\nhosts = ["api.test"]\nvariable = "TOKEN"\n')
    env = {"CORRAL_CONFIG": str(settings), "FORGE_TOKEN": SECRET}
    ran = execute(repo, image, "--secret", "forge", command="echo $TOKEN $FORGE_TOKEN; env > seen", env=env)
    assert ran.code == 0 and len(ran.out.strip()) == len(SECRET) and ran.out.startswith(b"corral")
    files = [path for path in find_runs_root().rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert pick(read_record(), "hosts", "secrets") == [(["api.test:443"], ["forge"])]


def test_a_set_up_goes_before_the_agent_with_a_network_of_its_own(repo: Path, image: str) -> None:
    script = repo.parent / "script.json"
    look = {"name": "shell", "arguments": {"command": "cat got; curl -s http://a.test/"}}
    end = {"name": "finish", "arguments": {"summary": "seen"}}
    script.write_text(json.dumps({"model": "scripted", "replies": [{"calls": [look]}, {"calls": [end]}]}))
    ran = corral(
        *("run", "-C", str(repo), "--image", image, "--model", f"scripted:{script}"),
        *("--setup", "echo made > got; curl -s http://a.test/", "--setup-network", "go", "look"),
    )
    assert ran.code == 0, ran.err
    events = read_record()
    kinds = [event["kind"] for event in events]
    assert kinds.index("tool.started") < kinds.index("model.called")
    changes = [(event["phase"], len(event["hosts"])) for event in events if event["kind"] == "network.changed"]  # type: ignore[arg-type]
    assert changes == [("setup", 2), ("agent", 0)]
    tried = [(event["phase"], event["allowed"]) for event in events if event["kind"] == "connection.attempted"]
    assert tried == [("setup", False), ("agent", False)]
    shown = next(event for event in events if event["kind"] == "tool.finished" and event["tool"] == "shell")
    assert "made" in str(shown["output"]) and "not on the run's list" in str(shown["output"])


def test_a_set_up_that_fails_ends_the_run(repo: Path, image: str) -> None:
    script = repo.parent / "script.json"
    script.write_text(json.dumps({"model": "scripted", "replies": [{"text": "never asked"}]}))
    ran = corral(
        *("run", "-C", str(repo), "--image", image, "--model", f"scripted:{script}"),
        *("--setup", "echo no such package >&2; exit 4", "look"),
    )
    assert ran.code == 3
    assert any("the set-up failed: exit 4" in line for line in ran.err)
    assert any("no such package" in line for line in ran.err)
    assert "model.called" not in [event["kind"] for event in read_record()]
