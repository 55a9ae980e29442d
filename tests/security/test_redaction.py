"""Canaries in everything a run has to do with: none may reach a model, the record, a screen or a program's JSON."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import corral
from corral.schema.events import Event
from corral.schema.policy import ApprovalAnswer, ApprovalRequest
from corral.store.run_dir import find_runs_root, list_runs

pytestmark = pytest.mark.docker

PROGRAM = [sys.executable, "-c", "from corral.cli.start import main; main()"]
DECLARED = "canary-declared+Zk83/fLs03"
GIVEN = "canary-given-plain-words"
HOST = "canaryhost-a1b2c3d4e5"
KEY = "ghp_" + "a1B2" * 9
CARD = "4111 1111 1111 1111"
CANARIES = (DECLARED, GIVEN, HOST, KEY, CARD)
# In the argv, in files, in names, in both outputs, at the end of a line that does not end, in Base64.
SCRIPT = f"""
printf '%s\\n' "$0" "$DB_PASSWORD"; env >&2; base64 -w 20 < .notes
mkdir "{GIVEN}"; cp .notes "{GIVEN}/{KEY}"; cat .notes; printf '%s' "{DECLARED}"
"""


def spellings(canary: str) -> list[bytes]:
    plain = [canary.encode(), json.dumps(canary)[1:-1].encode()]
    if canary in (KEY, CARD):
        return plain  # known by their looks, and so only where they look so
    return plain + [base64.b64encode(b"-" * before + canary.encode())[4:-4] for before in range(3)]


def leaks(*texts: bytes) -> list[tuple[str, bytes]]:
    """Also what only lines hide."""
    joined = [text.replace(b"\n", b"").replace(b"\\n", b"") for text in texts]
    return [
        (canary, form)
        for canary in CANARIES
        for form in spellings(canary)
        for text in (*texts, *joined)
        if form in text
    ]


@pytest.fixture
def workspace(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / ".notes").write_text("".join(f"{canary}\n" for canary in CANARIES))
    config = tmp_path / "config.toml"
    config.write_text('[secrets.registry]\nenv = "REGISTRY"\nhosts = ["example.org"]\n')
    monkeypatch.setenv("CORRAL_CONFIG", str(config))
    monkeypatch.setenv("REGISTRY", DECLARED)
    monkeypatch.setenv("HOST_API_TOKEN", HOST)
    return folder


def read_run() -> list[bytes]:
    """What a run keeps for others to read."""
    run = find_runs_root() / list_runs()[0]
    return [(run / name).read_bytes() for name in ("record.jsonl", "meta.json")]


def exec_argv(workspace: Path, image: str, *options: str) -> list[str]:
    given = ["-C", str(workspace), "--image", image, "-e", f"DB_PASSWORD={GIVEN}", *options]
    return [*PROGRAM, "exec", *given, "--", "bash", "-c", SCRIPT, f"{DECLARED} {KEY}"]


def test_no_secret_is_printed_or_recorded(workspace: Path, sandbox_image: str) -> None:
    done = subprocess.run(exec_argv(workspace, sandbox_image), capture_output=True, timeout=120)
    summary = done.stderr[done.stderr.rindex(b"corral") :]
    assert (done.returncode, b"[secret:DB_PASSWORD#1~" in summary) == (0, True), summary
    # A pipe is a program's: it gets the bytes as they are.
    assert KEY.encode() in done.stdout
    shown = [summary, *read_run()]
    for name in ("show", "processes"):
        shown.append(subprocess.run([*PROGRAM, "log", name, "last"], capture_output=True, timeout=60).stdout)
    shown.append(subprocess.run([*PROGRAM, "log", "show", "--json", "last"], capture_output=True, timeout=60).stdout)
    shown.append(subprocess.run([*PROGRAM, "runs"], capture_output=True, timeout=60).stdout)
    assert all(shown)
    assert leaks(*shown) == []


def test_json_holds_no_secret(workspace: Path, sandbox_image: str) -> None:
    done = subprocess.run(exec_argv(workspace, sandbox_image, "--json"), capture_output=True, timeout=120)
    told = json.loads(done.stdout)
    assert (done.returncode, told["changes"]["added"]) == (0, len(CANARIES))
    assert "[secret:registry#1~" in told["stdout"]["head"]
    assert leaks(done.stdout, done.stderr) == []
    assert {one["kind"] for one in told["changes"]["findings"]} >= {"secret", "personal"}
    # The patch is what it is: whoever applies it is asked.
    assert KEY.encode() in Path(told["patch"]).read_bytes()


def test_a_terminal_shows_no_secret(workspace: Path, sandbox_image: str) -> None:
    ours, theirs = os.openpty()
    argv = exec_argv(workspace, sandbox_image)
    process = subprocess.Popen(argv, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # how a pseudo-terminal says that the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(60) == 0
    assert b"[secret:registry#1~" in shown and b"[personal:card#" in shown
    assert leaks(shown.replace(b"\r\n", b"\n")) == []


def test_a_model_and_its_record_get_no_secret(workspace: Path, sandbox_image: str, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    calls = [
        {"name": "shell", "arguments": {"command": f"cat .notes; base64 -w 20 .notes; echo '{DECLARED}' > '{KEY}'"}},
        {"name": "read_file", "arguments": {"path": ".notes"}},
        {"name": "list_files", "arguments": {}},
        {"name": "diff", "arguments": {}},
        {"name": "read_file", "arguments": {"path": f"no/{DECLARED}"}},
    ]
    # The script goes on only where the model sees the placeholder.
    last = {"expect": {"contains": ["[secret:registry#1~", "[personal:card#1~"]}, "calls": [
        {"name": "finish", "arguments": {"summary": f"used {KEY}"}}]}  # fmt: skip
    script.write_text(json.dumps({"replies": [{"text": f"see {HOST}", "calls": [one]} for one in calls] + [last]}))
    argv = [*PROGRAM, "run", "-C", str(workspace), "--image", sandbox_image, "--model", f"scripted:{script}"]
    done = subprocess.run([*argv, f"log in with {DECLARED}"], capture_output=True, timeout=180)
    assert done.returncode == 0, done.stderr
    record, meta = read_run()
    # Nobody told this run of that one, and it looks like words.
    assert {canary for canary, _ in leaks(done.stdout, done.stderr, record, meta)} <= {GIVEN}
    answered = [json.loads(line)["payload"] for line in record.splitlines() if b'"kind":"tool.finished"' in line]
    assert [one["tool"] for one in answered if one["success"]] == ["shell", "read_file", "list_files", "diff", "finish"]


async def test_a_program_gets_the_bytes_and_its_record_none(workspace: Path, sandbox_image: str) -> None:
    events: list[Event] = []
    asked: list[ApprovalRequest] = []

    class Yes:
        async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
            asked.append(request)
            return ApprovalAnswer(approved=True, digest=request.digest)

    given: dict[str, Any] = {"image": sandbox_image, "env": {"DB_PASSWORD": GIVEN}, "preset": "on-request"}
    async with corral.Sandbox(workspace, approver=Yes(), on_event=events.append, **given) as box:
        result = await box.shell(f"cat .notes; echo {KEY} $DB_PASSWORD | tee made")
        record = box.record_path
    assert GIVEN in result.text and KEY in result.text
    told = [event.model_dump_json().encode() for event in events] + [one.model_dump_json().encode() for one in asked]
    assert len(asked) == 1
    assert leaks(record.read_bytes(), *told) == []
