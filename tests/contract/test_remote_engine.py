"""Engines reached over TLS and SSH, all on loopback: the same as on this machine, but that the workspace is copied."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from tests.contract.boxes import find_leftovers, make_spec, output
from tests.security.test_leaves_nothing import Cli
from tests.support.command import Ran, corral
from tests.support.leftovers import wait_for_nothing
from tests.support.remote_engine import SshServer, TlsEngine, serve_ssh

from corral.errors import SandboxError
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.engine import Engine
from corral.sandbox.gc import collect_garbage
from corral.sandbox.image import build_image
from corral.sandbox.spec import WorkspaceMode

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, docker_engine: docker.DockerClient, sandbox_image: str
) -> Iterator[TlsEngine]:
    with TlsEngine(tmp_path_factory.mktemp("remote") / "engine") as own:
        own.copy_image(docker_engine, sandbox_image)
        yield own


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with serve_ssh(tmp_path_factory.mktemp("sshd") / "s") as server:
        yield server


@pytest.fixture(params=["tls", "ssh"])
def way(request: pytest.FixtureRequest, engine: TlsEngine, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment leads to the engine; its address."""
    if request.param == "tls":
        told, address = engine.environment, engine.address
    else:
        server: SshServer = request.getfixturevalue("ssh")
        address = server.address(f"{engine.place}/socket")
        told = {**server.environment, "DOCKER_HOST": address}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    return address


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "file").write_text("one\n")
    return folder


def run_in(workspace: Path, image: str, command: str, *options: str) -> Ran:
    return corral("exec", "-C", str(workspace), "--image", image, *options, "--", "sh", "-c", command)


def test_a_command_and_its_changes(way: str, engine: TlsEngine, workspace: Path, sandbox_image: str) -> None:
    command = "echo two >> file; head -c 3000000 /dev/zero | tr '\\0' x; exit 7"
    ran = run_in(workspace, sandbox_image, command, "--json")
    answer = ran.json()
    box = answer["box"]
    assert isinstance(box, dict)
    assert (ran.code, answer["stdout"]["total_bytes"]) == (7, 3000000)  # type: ignore[index]
    reason = f"the engine is reached at {way!r}, and not by a socket of this machine"
    assert (box["mode"], box["mode_reason"], box["warnings"]) == ("copy", reason, [])
    assert (workspace / "file").read_text() == "one\n"
    assert corral("apply", str(answer["run"])).code == 0
    assert (workspace / "file").read_text() == "one\ntwo\n"
    client = engine.client()
    assert (find_leftovers(client, str(answer["run"])), client.api.containers(all=True)) == ([], [])
    client.close()


def test_a_kill_of_the_orchestrator_leaves_nothing(
    way: str, engine: TlsEngine, tmp_path: Path, sandbox_image: str
) -> None:
    cli = Cli(tmp_path, sandbox_image)
    process = cli.start("sh", "-c", "echo ready; setsid sleep 300", stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    client = engine.client()
    assert wait_for_nothing(client, process.pid, cli.temporary) == []
    client.close()


@pytest.mark.slow
def test_hosts_are_reached_from_here_through_the_channel(way: str, workspace: Path, sandbox_image: str) -> None:
    ran = run_in(workspace, sandbox_image, "curl -s http://a.test/x", "--network", "none")
    assert (ran.code, ran.out) == (0, b"corral: this host is not on the run's list\n")
    assert "  refused a.test:80" in ran.err


@pytest.mark.slow
def test_the_doctor_knows_the_way(way: str, sandbox_image: str) -> None:
    looked = corral("doctor")
    engine_line = next(line for line in looked.out.decode().splitlines() if "API" in line)
    assert way in engine_line and "engine disk" not in looked.out.decode()
    assert corral("gc").code == 0


async def test_causes_are_told_apart_from_afar(way: str, workspace: Path, tmp_path: Path, sandbox_image: str) -> None:
    async with DockerSandbox(make_spec(workspace, tmp_path, sandbox_image)) as box:
        assert output((await box.shell("cat file")).stdout) == b"one\n"
        engine = Engine()
        await engine.call("kill", lambda client: client.kill(box.info.box_id))
        with pytest.raises(SandboxError) as caught:
            await box.shell("sleep 60")
    assert caught.value.message == "the box was killed from outside (signal 9)"


@pytest.mark.slow
async def test_overlay_is_tried_when_it_is_asked_for(
    engine: TlsEngine, workspace: Path, tmp_path: Path, sandbox_image: str
) -> None:
    """This engine is on this machine, and proves it."""
    spec = make_spec(workspace, tmp_path, sandbox_image, mode=WorkspaceMode.OVERLAY)
    async with DockerSandbox(spec, engine=Engine(engine.environment)) as box:
        assert (box.info.mode, output((await box.shell("cat file")).stdout)) == (WorkspaceMode.OVERLAY, b"one\n")


@pytest.mark.slow
def test_an_image_is_built_over_there(
    way: str, engine: TlsEngine, docker_engine: docker.DockerClient, sandbox_image: str
) -> None:
    base = docker_engine.images.get(sandbox_image).labels["corral.image.base"]
    engine.copy_image(docker_engine, base)
    report = build_image(base=base, rebuild=True)
    client = engine.client()
    try:
        assert (report.built, client.images.get(report.tag).id) == (True, report.image_id)
    finally:
        client.close()


def test_ends_no_ssh_process_behind(
    ssh: SshServer, engine: TlsEngine, workspace: Path, sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ssh.environment["PATH"])
    monkeypatch.setenv("DOCKER_HOST", ssh.address(f"{engine.place}/socket"))
    assert run_in(workspace, sandbox_image, "true").code == 0
    deadline = time.monotonic() + 20
    while ssh.sessions() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ssh.sessions() == []


def test_a_key_that_is_not_let_in(ssh: SshServer, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ssh.home / "config"
    before = config.read_text()
    config.write_text(before.replace("/client\n", "/stranger\n"))
    monkeypatch.setenv("PATH", ssh.environment["PATH"])
    monkeypatch.setenv("DOCKER_HOST", ssh.address())
    try:
        ran = run_in(workspace, "x", "true")
    finally:
        config.write_text(before)
    told = f"corral: the container engine at {ssh.address()!r} cannot be used: ssh was refused: no key of yours is"
    assert ran.code == 125 and ran.err[0].startswith(told)


@pytest.mark.slow
def test_collects_garbage_from_afar(way: str, engine: TlsEngine, sandbox_image: str) -> None:
    client = engine.client()
    made = client.api.create_container(
        sandbox_image, labels={"corral": "1", "corral.owner.pid": "1", "corral.owner.start": "1"}
    )
    try:
        report = collect_garbage(Engine())
        assert (report.containers, report.problems) == ([made["Id"]], [])
    finally:
        client.close()
