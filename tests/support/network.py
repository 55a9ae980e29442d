"""A real box with a network: its tunnel as a run has it, with name server and addresses of the test."""

from __future__ import annotations

import functools
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.contract.boxes import make_spec
from tests.support.tunnel import Notes

from corral.app.network import BoxNetwork, NetworkPlan, read_rules
from corral.policy import PolicyEngine
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.egress import Dialer
from corral.schema.events import Event, Payload, Source
from corral.schema.policy import PolicySession, Preset


class RunNotes(Notes):
    """A record in memory, with all that a run's network asks of one."""

    dropped = 0

    def append(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event:
        self.payloads.append(payload)
        return None  # type: ignore[return-value]  # nobody asks for it

    def claim(self, payload: Payload) -> Event | None:
        return self.append(payload)


class _Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve_files(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A web server over a folder, on loopback; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def resolve_as(names: Mapping[str, str], *ports: int) -> Dialer:
    async def resolve(name: str) -> list[str]:
        if name not in names:
            raise OSError("no such name")
        return [names[name]]

    return Dialer(resolve=resolve, exempt=frozenset(("127.0.0.1", port) for port in ports), connect_s=5.0)


class NetBox:
    """A started box and its network."""

    def __init__(self, box: DockerSandbox, network: BoxNetwork, notes: RunNotes) -> None:
        self.box = box
        self.network = network
        self.notes = notes

    async def run(self, command: str, timeout_s: float = 60.0) -> tuple[int, str]:
        """Exit code and output, errors among it."""
        result = await self.box.exec(["sh", "-c", command], timeout_s=timeout_s, merge_stderr=True)
        from tests.contract.boxes import output

        return result.exit_code, output(result.stdout).decode("utf-8", "replace")


@asynccontextmanager
async def open_net_box(
    folder: Path,
    image: str,
    *,
    allow: tuple[str, ...] = (),
    dialer: Dialer,
    plan: NetworkPlan | None = None,
    preset: Preset = Preset.AUTO,
    **changes: Any,
) -> AsyncIterator[NetBox]:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    notes = RunNotes()
    plan = plan or NetworkPlan((), read_rules(allow=allow))
    network = BoxNetwork(plan, PolicyEngine.load_preset(preset), PolicySession(id="run", preset=preset), notes, dialer)
    async with DockerSandbox(make_spec(workspace, folder, image, **changes)) as box:
        try:
            await network.open(box)
            yield NetBox(box, network, notes)
        finally:
            await network.close()
