"""The engine dies or restarts in the middle of a run: told as such, the changes kept, nothing left once it is back."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from tests.security.test_leaves_nothing import Cli
from tests.support.leftovers import find_leftovers
from tests.support.own_engine import OwnEngine

from corral.record import load_state, read_events, verify_record
from corral.sandbox.engine import Engine
from corral.sandbox.gc import collect_garbage
from corral.schema.events import Event, EventKind

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, docker_engine: docker.DockerClient, sandbox_image: str
) -> Iterator[OwnEngine]:
    with OwnEngine(tmp_path_factory.mktemp("engine")) as own:
        own.copy_image(docker_engine, sandbox_image)
        yield own


def _start(cli: Cli, monkeypatch: pytest.MonkeyPatch, engine: OwnEngine) -> subprocess.Popen[bytes]:
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    command = ("sh", "-c", "echo made > made; echo ready; sleep 120")
    process = cli.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_engine_that_ends_is_told_and_its_restart_leaves_nothing(
    number: signal.Signals, engine: OwnEngine, tmp_path: Path, sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(tmp_path, sandbox_image)
    process = _start(cli, monkeypatch, engine)
    begun = time.monotonic()
    engine.stop(number)
    _, words = process.communicate(timeout=90)
    assert process.returncode == 125, words
    assert b"engine" in words
    assert time.monotonic() - begun < 80
    (record,) = cli.records()
    finished = load_state(record).finished
    assert finished is not None
    assert finished.stop_reason == "box_lost"
    report = verify_record(record)
    assert (report.ok, report.finished) == (True, True)
    failed = [
        one.payload for one in read_events(record) if isinstance(one, Event) and one.kind is EventKind.ERROR_RAISED
    ]
    # An engine that ends in order ends its containers first, and says so.
    reason = "the container engine is gone, and the box with it"
    reasons = {reason, "the box was killed from outside (signal 15)"} if number == signal.SIGTERM else {reason}
    assert {one.error.message for one in failed} <= reasons and failed  # type: ignore[attr-defined]
    assert b"+made" in record.with_name("patch.diff").read_bytes()
    engine.start()
    client = engine.client()
    try:
        assert _collect(cli, client, process.pid) == []
    finally:
        client.close()


def _collect(cli: Cli, client: docker.DockerClient, pid: int) -> list[str]:
    """`corral gc` after the restart, until nothing of the run is left."""
    deadline = time.monotonic() + 60
    while True:
        report = collect_garbage(Engine())
        left = find_leftovers(client, pid, cli.temporary)
        if not left or time.monotonic() > deadline:
            return left + report.problems
        time.sleep(0.5)
