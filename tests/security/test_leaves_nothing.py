"""Whatever ends corral, nothing of it stays on the machine but the run's own directory."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import docker
import pytest
from tests.support.leftovers import wait_for_nothing

from corral.record import verify_record

pytestmark = pytest.mark.docker

_COMMAND = "echo made > made; sleep 0.2; (sleep 300 &) ; setsid sleep 300 & echo ready"


class Cli:
    """`corral exec` as a process of its own, with a home and a temporary directory of its own."""

    def __init__(self, place: Path, image: str) -> None:
        self.workspace, self.temporary, self.data = place / "work", place / "tmp", place / "data"
        for folder in (self.workspace, self.temporary, self.data):
            folder.mkdir()
        (self.workspace / "file").write_text("text\n")
        self._image = image

    def start(self, *command: str, options: tuple[str, ...] = (), **streams: object) -> subprocess.Popen[bytes]:
        environment = os.environ | {"TMPDIR": str(self.temporary), "XDG_DATA_HOME": str(self.data)}
        arguments = [sys.executable, "-m", "corral.cli", "exec", "--image", self._image, "-C", str(self.workspace)]
        # A test run in the background ignores SIGINT, and its children would inherit that.
        heed = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        settings = (
            heed | {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | streams
        )
        return subprocess.Popen(
            [*arguments, *options, "--", *command], env=environment, start_new_session=True, **settings
        )  # type: ignore[call-overload,no-any-return]

    def records(self) -> list[Path]:
        return sorted(self.data.glob("corral/runs/*/record.jsonl"))


@pytest.fixture
def cli(tmp_path: Path, image: str) -> Cli:
    return Cli(tmp_path, image)


def _time_of_one(cli: Cli) -> float:
    begun = time.monotonic()
    assert cli.start("sh", "-c", _COMMAND).wait(60) == 0
    return time.monotonic() - begun


def test_normal_end_leaves_nothing(cli: Cli, docker_engine: docker.DockerClient) -> None:
    process = cli.start("sh", "-c", _COMMAND)
    assert process.wait(60) == 0
    assert wait_for_nothing(docker_engine, process.pid, cli.temporary) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signal_at_any_moment_leaves_nothing(
    number: signal.Signals,
    cli: Cli,
    docker_engine: docker.DockerClient,
    chance: random.Random,
    rounds: Callable[[int], int],
) -> None:
    whole = _time_of_one(cli)
    count = rounds(50) if number in (signal.SIGINT, signal.SIGKILL) else rounds(10)
    for _ in range(count):
        process = cli.start("sh", "-c", _COMMAND + "; sleep 60")
        moment = chance.uniform(0.0, whole * 1.2)
        time.sleep(moment)
        process.send_signal(number)
        process.wait(60)
        left = wait_for_nothing(docker_engine, process.pid, cli.temporary)
        assert left == [], f"{number.name} after {moment:.3f} s left {left}"
    for record in cli.records():
        assert record.stat().st_size == 0 or verify_record(record).ok


def test_interrupt_ends_with_130_and_a_whole_record(cli: Cli, docker_engine: docker.DockerClient) -> None:
    process = cli.start("sh", "-c", "echo made > made; echo ready; sleep 60", stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stdout.close()
    (record,) = cli.records()
    report = verify_record(record)
    assert (report.ok, report.finished) == (True, True)
    assert b"+made" in (record.parent / "patch.diff").read_bytes()
    assert wait_for_nothing(docker_engine, process.pid, cli.temporary) == []


_CONNECT = """
import os, socket, time
http, socks = (os.environ[name].rpartition(":")[2] for name in ("HTTP_PROXY", "CORRAL_SOCKS_PROXY"))
server = socket.create_server(("127.0.0.1", 8000))
held = [socket.create_connection(("127.0.0.1", int(port))) for port in (http, socks) for _ in range(30)]
for sock in held[::2]:
    sock.sendall(b"GET http://nobody.invalid/ HTTP/1.1\\r\\n")  # half a head, and to SOCKS nonsense
for sock in held[1:30:2]:
    sock.sendall(b"GET http://nobody.invalid/ HTTP/1.1\\r\\n\\r\\n")
print("ready", flush=True)
taken = server.accept()[0]
taken.sendall(b"hello")
time.sleep(60)
"""


def test_interrupt_with_open_connections_leaves_nothing(cli: Cli, docker_engine: docker.DockerClient) -> None:
    """Requests that are half said, names that are being looked up, a connection into the box: none holds up the end."""
    options = ("--allow", "nobody.invalid", "--forward", "8000:0")
    process = cli.start("python3", "-c", _CONNECT, options=options, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    port = int(process.stderr.readline().rpartition(b":")[2])
    assert process.stdout.readline() == b"ready\n"
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        assert sock.recv(100) == b"hello"
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        print(f"ended after {time.monotonic() - begun:.1f} s")
        assert sock.recv(100) == b""
    for stream in (process.stdout, process.stderr):
        stream.close()
    (record,) = cli.records()
    report = verify_record(record)
    assert (report.ok, report.finished) == (True, True)
    events = [json.loads(line) for line in record.read_text().splitlines()]
    attempts, ends = (
        {one["payload"]["connection"] for one in events if one["kind"] == kind and one["source"] == "orchestrator"}
        for kind in ("connection.attempted", "connection.ended")
    )
    assert len(attempts) == 16 and attempts == ends
    assert wait_for_nothing(docker_engine, process.pid, cli.temporary) == []


def test_docker_kill_leaves_nothing_and_says_so(cli: Cli, docker_engine: docker.DockerClient) -> None:
    process = cli.start("sh", "-c", "echo ready; sleep 60", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    (container,) = docker_engine.containers.list(filters={"label": f"corral.owner.pid={process.pid}"})
    container.kill()
    assert process.wait(30) == 125
    assert b"corral:" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert wait_for_nothing(docker_engine, process.pid, cli.temporary) == []


def test_reader_that_stops_reading_holds_nothing_up(cli: Cli, docker_engine: docker.DockerClient) -> None:
    process = cli.start("sh", "-c", "yes", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    time.sleep(1.0)  # the pipe is full, corral waits for its reader
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stdout.close()
    assert wait_for_nothing(docker_engine, process.pid, cli.temporary) == []


def test_reader_that_goes_away_ends_the_command(cli: Cli, docker_engine: docker.DockerClient) -> None:
    process = cli.start("sh", "-c", "yes", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(30) in (141, 128 + signal.SIGPIPE)
    assert wait_for_nothing(docker_engine, process.pid, cli.temporary) == []
