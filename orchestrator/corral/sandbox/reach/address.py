"""Where the engine is, by the words of the environment: DOCKER_HOST, else Docker's context, else the local socket."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.errors import EngineUnavailable

LOCAL = "unix:///var/run/docker.sock"
_FILES = ("ca.pem", "cert.pem", "key.pem")


class SshFailure(OSError):
    """ssh, or what it started over there, ended before the engine answered; with its last words."""


@dataclass(frozen=True)
class Address:
    """One engine, before it is asked anything."""

    url: str
    certificates: Path | None = None
    """The folder with ca.pem, cert.pem and key.pem; None: no TLS."""

    @property
    def is_local(self) -> bool:
        """The engine most likely runs on this machine. Only the box's own report proves it."""
        return self.url.startswith("unix://")

    @property
    def is_ssh(self) -> bool:
        return self.url.startswith("ssh://")

    @property
    def is_plain(self) -> bool:
        """Reached over a network without any secret."""
        return not (self.is_local or self.is_ssh or self.certificates)

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self.is_plain:
            return ()
        return (
            f"the engine at {self.url!r} is reached without TLS: whoever reaches that port is root there, and whoever "
            "is on the way reads and changes what goes over it",
        )

    def check_files(self) -> None:
        """Raises EngineUnavailable where a file of the certificates cannot be read: the libraries name none."""
        for name in _FILES if self.certificates else ():
            assert self.certificates is not None
            try:
                (self.certificates / name).open("rb").close()
            except OSError as error:
                raise EngineUnavailable(
                    f"TLS to the engine needs {str(self.certificates / name)!r}: {error.strerror}",
                    hint="DOCKER_CERT_PATH names the folder with ca.pem, cert.pem and key.pem",
                ) from None


def find_address(environment: Mapping[str, str]) -> Address:
    """As Docker's own client chooses, but that TLS is always verified. Raises EngineUnavailable for a context that is
    broken."""
    host = environment.get("DOCKER_HOST")
    if not host:
        context = _find_context(environment)
        return Address(LOCAL) if context is None else context
    given = environment.get("DOCKER_CERT_PATH")
    # SECURITY: with certificates but without DOCKER_TLS_VERIFY Docker's client takes whoever answers for the engine,
    # who would be sent the workspace; here both mean TLS that is verified (test_reach_address).
    wants_tls = bool(given or environment.get("DOCKER_TLS_VERIFY"))
    if not wants_tls or host.startswith(("unix://", "ssh://", "npipe://", "fd://")):
        return Address(host)
    return Address(host, Path(given).absolute() if given else _config_folder(environment))


def fix_paths(environment: Mapping[str, str]) -> dict[str, str]:
    """The same for a process with another working directory."""
    named = ("DOCKER_CERT_PATH", "DOCKER_CONFIG")
    absolute = {name: os.path.abspath(environment[name]) for name in named if environment.get(name)}
    return {**environment, **absolute}


def _config_folder(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("DOCKER_CONFIG") or Path.home() / ".docker").absolute()


def _find_context(environment: Mapping[str, str]) -> Address | None:
    """What `docker context use` or DOCKER_CONTEXT chose; None for the default."""
    folder = _config_folder(environment)
    name = environment.get("DOCKER_CONTEXT") or str(_load(folder / "config.json").get("currentContext") or "")
    if name in ("", "default"):
        return None
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = _load(folder / "contexts" / "meta" / key / "meta.json")
    endpoints = meta.get("Endpoints")
    endpoint = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = endpoint.get("Host") if isinstance(endpoint, dict) else None
    if not isinstance(endpoint, dict) or not isinstance(host, str) or not host:
        raise EngineUnavailable(
            f"there is no usable Docker context {name!r}", hint="see: docker context ls; or set DOCKER_HOST"
        )
    if endpoint.get("SkipTLSVerify"):
        raise EngineUnavailable(
            f"the Docker context {name!r} does not verify its engine", hint="make one without skip-tls-verify"
        )
    certificates = folder / "contexts" / "tls" / key / "docker"
    return Address(host, certificates if host.startswith("tcp://") and certificates.is_dir() else None)


def _load(path: Path) -> dict[str, Any]:
    """{} where the file is not there, or none of Docker's."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
