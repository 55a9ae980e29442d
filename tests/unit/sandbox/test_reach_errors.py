"""What goes wrong on the way to an engine elsewhere: one line in our words, and what to do."""

from __future__ import annotations

import contextlib
import errno
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.remote_engine import Certificates, find_port

from corral.errors import EngineTimeout, EngineUnavailable, SandboxError
from corral.sandbox.engine import Engine
from corral.sandbox.reach import Address, explain


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("authority") / "a")


@contextlib.contextmanager
def serve(context: ssl.SSLContext | None) -> Iterator[int]:
    """A server on loopback that answers every request with 400, over TLS where it has a context."""
    refusal = b'{"message":"Client sent an HTTP request to an HTTPS server."}'
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            while True:
                try:
                    raw, _ = server.accept()
                except OSError:
                    return
                with raw, contextlib.suppress(OSError):
                    used = raw if context is None else context.wrap_socket(raw, server_side=True)
                    with used:
                        used.recv(65536)
                        used.sendall(answer + f"{len(refusal)}\r\n\r\n".encode() + refusal)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def ask(environment: dict[str, str]) -> SandboxError:
    engine = Engine(environment)
    with pytest.raises(SandboxError) as caught:
        engine.ask("answer", lambda client: client.ping())
    return caught.value


def reason(error: SandboxError) -> str:
    assert isinstance(error, EngineUnavailable) and error.hint
    return error.message.partition("cannot be used: ")[2]


@pytest.mark.parametrize(
    ("name", "alternative", "days", "told"),
    [
        ("old", "IP:127.0.0.1", -1, "its certificate has expired"),
        ("other", "DNS:elsewhere", 2, "its certificate is for another name"),
    ],
)
def test_tls_refusals(
    authority: Certificates, tmp_path: Path, name: str, alternative: str, days: int, told: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign(name, alternative=alternative, days=days))
    ours = authority.give(tmp_path / "ours", *authority.sign("client"))
    with serve(context) as port:
        error = ask({"DOCKER_HOST": f"tcp://127.0.0.1:{port}", "DOCKER_CERT_PATH": str(ours)})
    assert reason(error) == told


def test_an_engine_of_another_authority_is_refused(authority: Certificates, tmp_path: Path) -> None:
    stranger = Certificates(tmp_path / "stranger")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*stranger.sign("engine", alternative="IP:127.0.0.1"))
    ours = authority.give(tmp_path / "ours", *authority.sign("client"))
    with serve(context) as port:
        error = ask({"DOCKER_HOST": f"tcp://127.0.0.1:{port}", "DOCKER_CERT_PATH": str(ours)})
    assert reason(error) == "its certificate is not of your ca.pem"


def test_our_certificate_can_be_refused(authority: Certificates, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("engine", alternative="IP:127.0.0.1"))
    context.load_verify_locations(authority.folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    ours = authority.give(tmp_path / "ours", *Certificates(tmp_path / "stranger").sign("client"))
    with serve(context) as port:
        error = ask({"DOCKER_HOST": f"tcp://127.0.0.1:{port}", "DOCKER_CERT_PATH": str(ours)})
    assert "it refuses your certificate" in reason(error)  # which of two, the system's timing decides


def test_one_side_without_tls(authority: Certificates, tmp_path: Path) -> None:
    ours = authority.give(tmp_path / "ours", *authority.sign("client"))
    with serve(None) as port:
        host = {"DOCKER_HOST": f"tcp://127.0.0.1:{port}"}
        assert reason(ask({**host, "DOCKER_CERT_PATH": str(ours)})) == "it speaks no TLS"
        assert reason(ask(host)) == "it speaks TLS only"


def test_a_host_that_is_none() -> None:
    error = ask({"DOCKER_HOST": "tcp://no-such-host.invalid:2376"})
    assert error.message == "the engine's host in 'tcp://no-such-host.invalid:2376' is not known"


def test_no_way_and_no_answer() -> None:
    far = Address("tcp://10.0.0.7:2376", Path("/c"))
    lost = explain("answer", OSError(errno.EHOSTUNREACH, "No route to host"), far)
    silent = explain("answer", ConnectionError("x", TimeoutError(errno.ETIMEDOUT, "timed out")), far)
    hint = "is it up, and is there a way to it?"
    assert (lost.message, lost.hint) == ("there is no way to the engine's host in 'tcp://10.0.0.7:2376'", hint)
    assert isinstance(silent, EngineTimeout)
    assert (silent.message, silent.hint) == ("the engine at 'tcp://10.0.0.7:2376' did not answer in time", hint)


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("me@h: Permission denied (publickey).", "ssh was refused: no key of yours is accepted there"),
        ("Host key verification failed.", "ssh does not know the host's key"),
        ("ssh: connect to host h port 22: Connection refused", "no ssh server answers there"),
        ("ssh: Could not resolve hostname h: Name or service not known", "there is no such host"),
        ("bash: line 1: docker: command not found", "there is no docker command over there"),
        ("error: Got permission denied while trying to connect", "your user over there may not use its engine"),
        ("Cannot connect to the Docker daemon at unix:///x.", "no engine answers over there"),
        ("it rains \x1b[31m", "it rains \\x1b[31m"),
        ("", "ssh ended without a word"),
    ],
)
def test_words_of_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, told: str) -> None:
    program = tmp_path / "ssh"
    (tmp_path / "words").write_text(says)
    program.write_text(f"#!/bin/sh\nexec cat {tmp_path}/words >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert reason(ask({"DOCKER_HOST": "ssh://me@h"})) == told


def test_no_ssh_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert reason(ask({"DOCKER_HOST": "ssh://me@h"})) == "there is no ssh client on this machine"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh client here")
def test_a_real_ssh_that_reaches_nobody() -> None:
    assert reason(ask({"DOCKER_HOST": f"ssh://me@127.0.0.1:{find_port()}"})) == "no ssh server answers there"
