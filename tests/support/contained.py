"""corral in a container of its own, with an engine's socket in it: the boxes it makes are its neighbours."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container
from tests.support.command import SOCKET, Ran

_MAIN = "from corral.cli.start import main; main()"
_INSIDE = "/var/run/docker.sock"
_LIMIT_S = 120


@dataclass(frozen=True)
class Contained:
    """`binds`: directories of the host, and where they are in the container. `home` is one in the container."""

    client: docker.DockerClient
    image: str
    home: str
    binds: Mapping[str, str] = field(default_factory=dict)
    uid: int = 0

    @contextmanager
    def start(self, *arguments: str) -> Iterator[Container]:
        """The command, under way; removed at the end."""
        container = self.client.containers.create(
            self.image,
            entrypoint=["/usr/bin/python3", "-c", _MAIN],
            command=list(arguments),
            user=f"{self.uid}:{self.uid}",
            group_add=[str(SOCKET.stat().st_gid)],
            network_mode="none",
            working_dir="/",
            environment={"PYTHONPATH": ":".join(_find_code()), "HOME": self.home, "PYTHONDONTWRITEBYTECODE": "1"},
            volumes=[
                f"{SOCKET}:{_INSIDE}",
                *(f"{place}:{place}:ro" for place in _find_code()),
                *(f"{source}:{target}" for source, target in self.binds.items()),
            ],
        )
        try:
            container.start()
            yield container
        finally:
            container.remove(force=True, v=True)

    def corral(self, *arguments: str) -> Ran:
        """Run it to its end. Never lets a traceback pass."""
        with self.start(*arguments) as container:
            code = int(container.wait(timeout=_LIMIT_S)["StatusCode"])
            out, err = container.logs(stderr=False), container.logs(stdout=False).decode()
        assert "Traceback" not in err and "a fault in corral" not in err, err
        return Ran(code, out, err.splitlines())


def require_python(client: docker.DockerClient, image: str) -> None:
    """Skip, saying why, where the container's Python cannot run what this one has installed."""
    if not SOCKET.exists():
        pytest.skip(f"no engine at {SOCKET}: there is no socket to mount")
    program = "import sys; print(*sys.version_info[:2])"
    told = client.containers.run(
        image, entrypoint=["/usr/bin/python3", "-c", program], network_mode="none", remove=True
    )
    if tuple(map(int, told.split())) != sys.version_info[:2]:
        pytest.skip(f"the sandbox image has Python {told.decode().strip()}, these tests run on {sys.version_info[:2]}")


def _find_code() -> list[str]:
    """Where this Python has corral and its libraries from."""
    base = Path(sys.base_prefix).resolve()
    found = [Path(path).resolve() for path in sys.path if path]
    return list(dict.fromkeys(str(path) for path in found if path.is_dir() and not path.is_relative_to(base)))
