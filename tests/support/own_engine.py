"""A Docker engine of a test's own: killed and restarted at will, with its data, socket and processes in one folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import docker
import psutil
import pytest

_START_S = 120.0


class OwnEngine:
    """Use as a context manager; ends and removes everything of it at the end."""

    def __init__(self, place: Path, *, runtimes: Mapping[str, Sequence[str]] | None = None) -> None:
        """`runtimes`: by name, the program and its arguments."""
        self.place = place
        self._runtimes = {
            name: {"path": program, "runtimeArgs": arguments}
            for name, (program, *arguments) in (runtimes or {}).items()
        }
        self.url = f"unix://{place}/socket"
        # The sockets of its containerd may have paths of 104 bytes at most.
        self._exec = Path(tempfile.mkdtemp(prefix="own-engine-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or shutil.which("dockerd") is None:
            self._exec.rmdir()
            pytest.skip("an engine of one's own needs root and dockerd (docker.io)")
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        self.stop(signal.SIGTERM)
        self._end_the_rest()
        table = Path("/proc/self/mountinfo").read_text().splitlines()
        for mount in sorted((line.split()[4] for line in table), reverse=True):
            if mount.startswith((f"{self.place}/", f"{self._exec}/")):
                subprocess.run(["umount", mount], check=False)
        for folder in (self.place, self._exec):
            shutil.rmtree(folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.place.mkdir(exist_ok=True)
        (self.place / "daemon.json").write_text(json.dumps({"runtimes": self._runtimes}))
        deadline = time.monotonic() + _START_S
        self._launch()
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                # On a busy machine it gives up on its own containerd after 15 s.
                self._end_the_rest()
                self._launch()
            if self._answers():
                return
            time.sleep(0.2)
        pytest.fail(f"the engine does not start: {(self.place / 'log').read_text()[-2000:]}")

    def _launch(self) -> None:
        place = self.place
        # Where nobody reaps the old containerd it is a zombie, and the new dockerd would take it for a live one.
        for stale in (place / "pid", self._exec / "containerd" / "containerd.pid"):
            stale.unlink(missing_ok=True)
        arguments = ["dockerd", "--bridge=none", "--iptables=false", "--host", self.url, "--data-root", f"{place}/data"]
        arguments += ["--exec-root", str(self._exec), "--pidfile", f"{place}/pid"]
        arguments += ["--config-file", f"{place}/daemon.json"]
        with open(place / "log", "ab") as log:
            self._process = subprocess.Popen(self.wrap(arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers(self) -> bool:
        # A plain connection first: docker-py leaves its socket open when there is nobody to connect to.
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(f"{self.place}/socket")
            with contextlib.closing(docker.DockerClient(base_url=self.url, timeout=5, version="1.41")) as client:
                return bool(client.ping())
        return False

    def wrap(self, arguments: list[str]) -> list[str]:
        """What is run: the engine's command line, or what becomes it."""
        return arguments

    def stop(self, number: signal.Signals) -> None:
        """End it: SIGTERM in order, SIGKILL as a crash does."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def client(self) -> docker.DockerClient:
        return docker.DockerClient(base_url=self.url, timeout=60, version="1.41")

    def copy_image(self, source: docker.DockerClient, name: str) -> None:
        """Give it an image that another engine has."""
        client = self.client()
        client.images.load(source.images.get(name).save(named=True))
        client.close()

    def _end_the_rest(self) -> None:
        """containerd and its shims outlive a killed dockerd; a folder of this engine is in each one's arguments."""
        for process in psutil.process_iter(["cmdline"]):
            if any(f"{self.place}/" in word or f"{self._exec}/" in word for word in process.info["cmdline"] or ()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
