"""HTTP to an engine through the system's ssh: each connection is `ssh HOST docker system dial-stdio` on a socket.

The program ssh has the user's configuration, keys, agent and known hosts, as a library of our own would not. Its stdin
and stdout are one end of a socket pair, so that the other is a connection like any: it can be polled, half closed and
handed on. When it is closed, also by a kill -9, ssh and what it started over there end.
"""

from __future__ import annotations

import http.client
import os
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
import requests.adapters
import urllib3
import urllib3.connection

from corral.sandbox.reach.address import SshFailure

_WORDS_BYTES = 4096
_WORDS_S = 2.0
_ALIVE_S = 15


@dataclass(frozen=True)
class SshHost:
    """The parts of ssh://user@host:port/path."""

    host: str
    user: str = ""
    port: int | None = None
    socket: str = ""
    """Of the engine over there; "": what its docker command uses."""

    @classmethod
    def parse(cls, url: str) -> SshHost:
        """Raises SshFailure."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise SshFailure(f"it is no address: {error}") from None
        if not host or parts.query or parts.fragment or parts.password is not None:
            raise SshFailure("an address is ssh://[user@]host[:port][/path/of/the/socket]")
        return cls(host, unquote(parts.username or ""), port, "" if parts.path == "/" else unquote(parts.path))

    def command(self, limit_s: float) -> list[str]:
        """What is run here."""
        remote = ["docker", *(["--host", f"unix://{self.socket}"] if self.socket else []), "system", "dial-stdio"]
        # Nobody is asked anything: a question would hang behind a progress bar, and the janitor has no terminal.
        options = ["BatchMode=yes", f"ConnectTimeout={max(1, int(limit_s))}"]
        # A connection that died is noticed; a forwarding of the user's would fail in the second connection.
        options += [f"ServerAliveInterval={_ALIVE_S}", "ServerAliveCountMax=3", "ClearAllForwardings=yes"]
        options += ["ForwardAgent=no", "ForwardX11=no", "RequestTTY=no"]
        words = ["ssh", *(word for option in options for word in ("-o", option))]
        words += [*(["-l", self.user] if self.user else []), *(["-p", str(self.port)] if self.port else [])]
        # SECURITY: `--`: a host that begins with a dash is an option otherwise, and options run programs
        # (test_a_host_is_never_an_option).
        return [*words, "--", self.host, shlex.join(remote)]


class _Dialed:
    """One ssh process and our end of its pipe."""

    def __init__(self, host: SshHost, limit_s: float) -> None:
        if shutil.which("ssh") is None:
            raise SshFailure("there is no ssh client")
        self.socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    host.command(limit_s),
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C is ours to handle: the box is to be removed through it
                )
        except OSError:
            self.socket.close()
            raise
        self._words = b""
        self._follower = threading.Thread(target=self._follow, name="corral-ssh", daemon=True)
        self._follower.start()

    def _follow(self) -> None:
        """Takes its words, so that it never waits for a reader, and collects it."""
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while piece := os.read(stream.fileno(), _WORDS_BYTES):
                self._words = (self._words + piece)[-_WORDS_BYTES:]
        self._process.wait()

    def words(self) -> str:
        """What it said at its end."""
        self._follower.join(_WORDS_S)
        return self._words.decode("utf-8", "replace").strip()


class _SshConnection(urllib3.connection.HTTPConnection):
    def __init__(self, host: SshHost, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._ssh_host = host
        self._limit_s = timeout_s or 60.0
        self._dialed: _Dialed | None = None

    def connect(self) -> None:
        self._dialed = _Dialed(self._ssh_host, self._limit_s)
        self.sock = self._dialed.socket
        self.sock.settimeout(self._limit_s)

    def getresponse(self) -> Any:
        try:
            return super().getresponse()
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            words = self._dialed.words() if self._dialed is not None else ""
            raise SshFailure(words or "ssh ended without a word") from error


class _SshPool(urllib3.HTTPConnectionPool):
    def __init__(self, host: SshHost, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s, maxsize=1)
        self._ssh_host = host
        self._limit_s = timeout_s

    def _new_conn(self) -> _SshConnection:
        return _SshConnection(self._ssh_host, self._limit_s)


class SshAdapter(requests.adapters.HTTPAdapter):
    """For a session of requests, and so for docker-py, whose own needs a library for ssh."""

    def __init__(self, url: str, timeout_s: float | None) -> None:
        """Raises SshFailure for an address that is none."""
        self._pool = _SshPool(SshHost.parse(url), timeout_s)
        super().__init__()

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: bool | str | None,
        proxies: Mapping[str, str] | None = None,
        cert: tuple[str, str] | str | None = None,
    ) -> urllib3.HTTPConnectionPool:
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Mapping[str, str] | None) -> str:
        return str(request.path_url)

    def close(self) -> None:
        self._pool.close()
        super().close()
