"""`corral exec` through the real command: exit codes, streams, environment, patch, readers that stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import docker
import pytest

from corral.record import verify_record
from corral.sandbox.labels import RUN
from corral.store.run_dir import find_runs_root, list_runs, load_meta

pytestmark = pytest.mark.docker

PROGRAM = [sys.executable, "-c", "from corral.cli.start import main; main()", "exec"]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


class Corral:
    """The command as a shell starts it."""

    def __init__(self, repo: Path, image: str) -> None:
        self.repo, self.image = repo, image

    def argv(self, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        given = {"-C": str(self.repo), "--image": self.image}
        defaults = [word for pair in given.items() if pair[0] not in options for word in pair]
        return [*PROGRAM, *defaults, *options, "--", *command]

    def __call__(
        self, *command: str, options: tuple[str, ...] = (), stdin: bytes = b"", **more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        argv = self.argv(*command, options=options)
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=120, **more)


@pytest.fixture
def corral(repo: Path, sandbox_image: str) -> Corral:
    return Corral(repo, sandbox_image)


def last_run() -> str:
    return list_runs()[0]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -TERM $$"], 128 + 15),
        (["sh", "-c", "kill -SEGV $$"], 128 + 11),
        (["/no/such/program"], 127),
        (["no-such-program"], 127),
        (["/workspace/a.txt"], 126),
        (["/workspace"], 126),
    ],
)
def test_the_exit_code_is_the_commands(corral: Corral, command: list[str], code: int) -> None:
    assert corral(*command, options=("-q",)).returncode == code
    record = find_runs_root() / last_run() / "record.jsonl"
    assert verify_record(record).ok
    assert json.loads(record.read_text().splitlines()[-1])["payload"]["exit_code"] == code


def test_a_time_limit_is_124_and_ends_children_too(corral: Corral) -> None:
    began = time.monotonic()
    done = corral("sh", "-c", "sleep 300 & sleep 300", options=("--timeout", "1"))
    assert (done.returncode, b"time limit reached" in done.stderr) == (124, True)
    assert time.monotonic() - began < 20


def test_output_is_the_same_to_the_byte(corral: Corral) -> None:
    raw = bytes(range(256)) * 4000
    done = corral("cat", stdin=raw, options=("-q",))
    assert (done.stdout == raw, done.stderr, done.returncode) == (True, b"", 0)


def test_both_streams_stay_apart(corral: Corral) -> None:
    done = corral("sh", "-c", "echo out; echo err >&2", options=("-q",))
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


def test_a_closed_input_is_at_its_end(corral: Corral) -> None:
    argv = corral.argv("sh", "-c", "cat; echo end", options=("-q",))
    done = subprocess.run(["bash", "-c", '"$@" <&-', "-", *argv], capture_output=True, timeout=120)
    assert (done.stdout, done.returncode) == (b"end\n", 0)


def test_input_nobody_reads_hinders_nobody(corral: Corral) -> None:
    done = corral("true", stdin=b"x" * (8 << 20), options=("-q",))
    assert done.returncode == 0


def test_variables_are_given_passed_on_and_not_recorded(corral: Corral, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_TEST_TOKEN", "t0ken-value")
    monkeypatch.setenv("CORRAL_TEST_OTHER", "never")
    done = corral("env", options=("-q", "-e", "A=1 2", "-e", "CORRAL_TEST_TOKEN"))
    lines = done.stdout.decode().splitlines()
    assert {"A=1 2", "CORRAL_TEST_TOKEN=t0ken-value"} <= set(lines)
    assert [line for line in lines if "CORRAL_TEST_OTHER" in line] == []
    assert "t0ken-value" not in (find_runs_root() / last_run() / "record.jsonl").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-e", "CORRAL_NOT_SET"), "'CORRAL_NOT_SET' is not set here"),
        (("-e", "1=2"), "'1' is not a variable's name"),
        (("--timeout", "0"), "--timeout 0.0 is no number of seconds above 0"),
        (("--mode", "magic"), "there is no workspace mode 'magic'"),
        (("-C", "/no/such/directory"), "/no/such/directory"),
    ],
)
def test_a_mistake_is_exit_code_2(corral: Corral, options: tuple[str, ...], words: str) -> None:
    done = corral("true", options=options)
    assert (done.returncode, words in done.stderr.decode()) == (2, True), done.stderr
    for run_id in list_runs():
        assert words in load_meta(run_id).outcome


def test_an_image_that_is_not_there_is_125(corral: Corral) -> None:
    done = corral("true", options=("--image", "no-such-image:1"))
    assert done.returncode == 125 and b"no-such-image" in done.stderr
    assert "no-such-image" in load_meta(last_run()).outcome


def test_the_summary_says_what_changed_and_quiet_does_not(corral: Corral) -> None:
    done = corral("sh", "-c", "echo two >> a.txt; rm -f none; touch new")
    text = done.stderr.decode()
    assert "2 files changed, +1 -0" in text and "M a.txt" in text and "A new" in text
    assert f"corral apply {last_run()}" in text
    assert corral("true", options=("-q",)).stderr == b""
    assert (corral.repo / "a.txt").read_text() == "one\n"


def test_the_patch_goes_to_a_file(corral: Corral, tmp_path: Path) -> None:
    target = tmp_path / "out.diff"
    assert corral("sh", "-c", "echo two >> a.txt", options=("--patch", str(target))).returncode == 0
    assert target.read_text().splitlines()[-1] == "+two"
    assert corral("true", options=("--patch", str(target))).returncode == 0
    assert target.read_bytes() == b""


def test_a_patch_that_cannot_be_written_there_is_kept(corral: Corral, tmp_path: Path) -> None:
    done = corral("touch", "new", options=("--patch", str(tmp_path / "no" / "out.diff")))
    assert done.returncode == 2
    kept = find_runs_root() / last_run() / "patch.diff"
    assert f"the run kept it as {kept}" in done.stderr.decode() and kept.stat().st_size > 0


def test_json_is_one_object_and_nothing_else(corral: Corral) -> None:
    done = corral("sh", "-c", "printf 'a\\033[2J\\377'; echo e >&2; touch new; exit 4", options=("--json",))
    told = json.loads(done.stdout)
    assert done.stdout.isascii() and done.stdout.count(b"\n") == 1
    assert (done.returncode, told["exit_code"], told["status"], told["error"]) == (4, 4, "exited", None)
    assert told["stdout"] == {"head": "a\x1b[2J\ufffd", "tail": "", "total_bytes": 6}
    assert told["stderr"]["head"] == "e\n"
    assert [file["path"] for file in told["changes"]["files"]] == ["new"]
    assert Path(told["patch"]).is_file() and told["run"] == last_run()


def test_json_of_a_failure_has_the_error(corral: Corral) -> None:
    done = corral("true", options=("--json", "--image", "no-such-image:1"))
    told = json.loads(done.stdout)
    assert (told["exit_code"], told["error"]["code"], told["box"], told["status"]) == (125, "image", None, None)


def test_a_reader_that_stops_ends_the_command(corral: Corral, docker_engine: docker.DockerClient) -> None:
    argv = corral.argv("yes", options=("-q",))
    done = subprocess.run(
        ["bash", "-c", '"$@" | head -n 1; echo "${PIPESTATUS[0]}"', "-", *argv], capture_output=True, timeout=120
    )
    assert done.stdout == b"y\n141\n"
    assert left_behind(docker_engine) == []


def test_a_reader_that_sleeps_only_slows_the_command(corral: Corral) -> None:
    argv = corral.argv("sh", "-c", "head -c 3000000 /dev/zero; echo done >&2", options=("-q",))
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stdout is not None and process.stderr is not None
    time.sleep(3)
    assert process.poll() is None
    assert len(process.stdout.read()) == 3_000_000
    assert (process.stderr.read(), process.wait(60)) == (b"done\n", 0)
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_in_order(
    corral: Corral, docker_engine: docker.DockerClient, number: signal.Signals
) -> None:
    argv = corral.argv("sh", "-c", "touch new; echo ready; sleep 300")
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"cancelled by the user" in errors and b"A new" in errors and b"the patch is incomplete" in errors
    assert load_meta(last_run()).outcome == "cancelled by the user"
    assert left_behind(docker_engine) == []


def test_what_a_killed_corral_left_is_listed_as_killed(corral: Corral, docker_engine: docker.DockerClient) -> None:
    argv = corral.argv("sh", "-c", "echo ready; sleep 300", options=("-q",))
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    listed = [sys.executable, "-c", "from corral.cli.start import main; main()", "runs", "--json"]
    before = json.loads(subprocess.run(listed, capture_output=True, timeout=60).stdout)
    process.kill()
    process.wait()
    process.stdout.close()
    after = json.loads(subprocess.run(listed, capture_output=True, timeout=60).stdout)
    assert (before["outcome"], after["outcome"]) == ("running", "killed")
    deadline = time.monotonic() + 30
    while left_behind(docker_engine) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left_behind(docker_engine) == []


def left_behind(engine: docker.DockerClient) -> list[str]:
    marks = {"label": f"{RUN}={last_run()}"}
    return [one.name for one in engine.containers.list(all=True, filters=marks)] + [
        one.name for one in engine.volumes.list(filters=marks)
    ]


def test_a_terminal_gets_escaped_text(corral: Corral) -> None:
    ours, theirs = os.openpty()
    argv = corral.argv("printf", "a\\033]0;title\\007\\033[31mred\\n", options=("-q",))
    # Colours pass only where the terminal has them, and a CI's may have none.
    env = {**os.environ, "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(argv, stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=env)
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
    assert shown.replace(b"\r\n", b"\n") == b"a\\x1b]0;title\\x07\x1b[31mred\n\x1b[0m"


def test_a_reader_that_stops_ends_an_agents_run_too(corral: Corral, docker_engine: docker.DockerClient) -> None:
    script = corral.repo.parent / "s.json"
    calls = [{"calls": [{"name": "shell", "arguments": {"command": f"sleep {number}"}}]} for number in range(1, 30)]
    script.write_text(json.dumps({"replies": calls}))
    argv = [*PROGRAM[:-1], "run", "-C", str(corral.repo), "--image", corral.image, "--model", f"scripted:{script}", "x"]
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", '"$@" | head -n 1 > /dev/null; echo "${PIPESTATUS[0]}"', "-", *argv],
        capture_output=True,
        timeout=120,
    )
    assert done.stdout == b"141\n" and time.monotonic() - began < 60
    assert load_meta(last_run()).outcome == "cancelled"
    assert left_behind(docker_engine) == []
