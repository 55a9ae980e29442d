"""Engines reached from afar, all on loopback: an own one over TLS, and any over an sshd of the test's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.own_engine import OwnEngine

_START_S = 30.0


def find_port() -> int:
    """Nobody's at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Certificates:
    """An authority in a folder, and what it signs."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("certificates are made with openssl")
        folder.mkdir()
        self.folder = folder
        self._run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca", "ca-key", "ca")

    def _run(self, words: str, key: str, out: str, *more: str) -> None:
        files = ("-keyout", f"{self.folder}/{key}.pem", "-out", f"{self.folder}/{out}.pem")
        subprocess.run(["openssl", *words.split(), *files, *more], check=True, capture_output=True)

    def sign(self, name: str, *, alternative: str = "", days: int = 2) -> tuple[Path, Path]:
        """A certificate of that name and its key. `days` below 0: it has expired."""
        key, request, out = (self.folder / f"{name}{end}" for end in ("-key.pem", ".csr", ".pem"))
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}")
        subprocess.run(["openssl", "req", *new, "-keyout", key, "-out", request], check=True, capture_output=True)
        more: list[str] = []
        if alternative:
            (self.folder / "names").write_text(f"subjectAltName={alternative}\n")
            more = ["-extfile", f"{self.folder}/names"]
        signing = [
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            f"{self.folder}/ca.pem",
            "-CAkey",
            f"{self.folder}/ca-key.pem",
        ]
        signing += ["-CAcreateserial", "-days", str(days), "-out", out, *more]
        subprocess.run(["openssl", *map(str, signing)], check=True, capture_output=True)
        return out, key

    def give(self, folder: Path, cert: Path, key: Path) -> Path:
        """A folder as DOCKER_CERT_PATH names it."""
        folder.mkdir()
        for source, name in ((self.folder / "ca.pem", "ca"), (cert, "cert"), (key, "key")):
            shutil.copy(source, folder / f"{name}.pem")
        return folder


class TlsEngine(OwnEngine):
    """An engine of a test's own that also listens on loopback, for who has a certificate of its authority."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.authority = Certificates(place.with_name(f"{place.name}-certificates"))
        self._server = self.authority.sign("engine", alternative="IP:127.0.0.1")
        folder = self.authority.folder / "client"
        self.certificates = self.authority.give(folder, *self.authority.sign("client"))
        self.port = find_port()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {"DOCKER_HOST": self.address, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(self.certificates)}

    def wrap(self, arguments: list[str]) -> list[str]:
        cert, key = self._server
        tls = ["--tlsverify", "--tlscacert", f"{self.authority.folder}/ca.pem", "--tlscert", str(cert)]
        return [*arguments, *tls, "--tlskey", str(key), "--host", self.address]


@dataclass(frozen=True)
class SshServer:
    """An sshd on loopback that lets one key in, and an `ssh` that knows of it alone."""

    port: int
    programs: Path
    """A folder for PATH."""
    home: Path

    def address(self, socket_path: str = "") -> str:
        return f"ssh://root@127.0.0.1:{self.port}{socket_path}"

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.programs}:{os.environ['PATH']}"}

    def sessions(self) -> list[str]:
        """What runs here for it: our ssh processes."""
        found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
        return [line for line in found if f"-p {self.port} " in line and "dial-stdio" in line]


@contextlib.contextmanager
def serve_ssh(place: Path) -> Iterator[SshServer]:
    """Skips, saying why, where there is no sshd."""
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    if os.geteuid() != 0 or not Path(program).exists():
        pytest.skip("an sshd of one's own needs root and sshd (openssh-server)")
    place.mkdir(mode=0o700)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it, whatever its configuration says
    for name in ("host", "client", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{place}/{name}"], check=True)
    shutil.copy(place / "client.pub", place / "authorized")
    port = find_port()
    (place / "known").write_text(f"[127.0.0.1]:{port} {(place / 'host.pub').read_text()}")
    (place / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {place}/host\nAuthorizedKeysFile {place}/authorized\n"
        "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\nMaxStartups 100\n"
    )
    config = place / "config"
    config.write_text(f"IdentityFile {place}/client\nIdentitiesOnly yes\nUserKnownHostsFile {place}/known\n")
    real = shutil.which("ssh")
    (place / "bin").mkdir()
    wrapper = place / "bin" / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {real} -F {config} "$@"\n')
    wrapper.chmod(0o755)
    with open(place / "log", "ab") as log:
        daemon = subprocess.Popen([program, "-D", "-e", "-f", f"{place}/sshd_config"], stdin=-3, stdout=log, stderr=log)
    try:
        _wait_for(port, place / "log")
        yield SshServer(port, place / "bin", place)
    finally:
        daemon.terminate()
        daemon.wait(30)


def _wait_for(port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    pytest.fail(f"sshd does not start: {log.read_text()}")
