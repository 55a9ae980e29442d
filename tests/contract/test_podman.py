"""Podman's Docker-compatible socket: it answers, makes no box, and that is told."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from tests.support.command import corral

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a podman with a place of its own needs root"),
]


@pytest.fixture
def podman(docker_engine: docker.DockerClient, sandbox_image: str) -> Iterator[str]:
    """Its address; it has the sandbox image."""
    place = Path(tempfile.mkdtemp(prefix="podman-"))  # a socket's path is short
    words = ["podman", "--root", f"{place}/root", "--runroot", f"{place}/run", "--cgroup-manager", "cgroupfs"]
    url = f"unix://{place}/s"
    with open(place / "log", "ab") as log:
        service = subprocess.Popen([*words, "system", "service", "--time", "0", url], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
                probe.connect(f"{place}/s")
                break
            time.sleep(0.1)
        client = docker.DockerClient(base_url=url, version="1.41", timeout=120)
        client.images.load(docker_engine.images.get(sandbox_image).save(named=True))
        client.close()
        yield url
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(30)
        table = Path("/proc/self/mountinfo").read_text().splitlines()
        for mount in sorted((line.split()[4] for line in table), reverse=True):
            if mount.startswith(f"{place}/"):
                subprocess.run(["umount", mount], check=False)
        shutil.rmtree(place, ignore_errors=True)


def test_is_told_by_its_name(podman: str, tmp_path: Path, sandbox_image: str) -> None:
    (tmp_path / "w").mkdir()
    environment = {"DOCKER_HOST": podman}
    image = f"localhost/{sandbox_image}"
    ran = corral("exec", "-C", str(tmp_path / "w"), "--image", image, "--", "true", env=environment)
    hint = (
        "use Docker Engine: Podman's socket takes neither a seccomp profile nor limits on files in memory from a client"
    )
    told = [f"corral: the engine at {podman!r} cannot make boxes: it is Podman's", f"  hint: {hint}"]
    assert (ran.code, ran.err[:2]) == (125, told)
    lines = corral("doctor", env=environment).out.decode().splitlines()
    assert any("Podman 4" in line or "Podman 5" in line for line in lines)
    client = docker.DockerClient(base_url=podman, version="1.41", timeout=60)
    try:
        assert client.api.containers(all=True) == []
    finally:
        client.close()
