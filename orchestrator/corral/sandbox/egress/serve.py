"""Everything a box reaches, and everything that reaches it: the tunnel of one run."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from corral.errors import ConfigError, CorralError
from corral.sandbox.channel.port import HTTP
from corral.sandbox.channel.tunnel import BoxStream, Serve
from corral.sandbox.egress.dial import Dialer
from corral.sandbox.egress.gate import EventLog, Gate
from corral.sandbox.egress.http.proxy import Proxy
from corral.sandbox.egress.http.secret import Secret
from corral.sandbox.egress.outside import NotReached, Outside
from corral.sandbox.egress.relay import IDLE_S, relay
from corral.sandbox.egress.socks import serve_socks
from corral.sandbox.spec import MAX_STREAMS
from corral.schema.network import NetworkDecider

LINGER_S = 2.0
"""What a client still sends behind our last word is taken and dropped for so long: a reset would cost it that word."""


class TunnelBox(Protocol):
    """A box, as far as its tunnel is concerned."""

    async def open_tunnel(
        self, serve: Serve, *, variables: Mapping[str, str] = ..., max_streams: int = MAX_STREAMS
    ) -> None: ...

    async def dial(self, port: int) -> BoxStream: ...


class Egress:
    """The network of one box, from open() to close()."""

    def __init__(
        self,
        decider: NetworkDecider,
        record: EventLog,
        *,
        secrets: Sequence[Secret] = (),
        dialer: Dialer | None = None,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        idle_s: float = IDLE_S,
    ) -> None:
        self.gate = Gate(decider, record, dialer or Dialer())
        self._proxy = Proxy(self.gate, secrets, functools.cache(tls), idle_s)
        self._idle_s = idle_s
        self._box: TunnelBox | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._is_closed = False

    async def open(
        self, box: TunnelBox, *, variables: Mapping[str, str] | None = None, max_streams: int = MAX_STREAMS
    ) -> None:
        """From here on commands find the proxy, and `variables`. Raises SandboxError, ToolError."""
        self._box = box
        await box.open_tunnel(self._take, variables=variables or {}, max_streams=max_streams)

    async def forward(self, port: int, host_port: int | None = None) -> int:
        """Bring a port of the box to the host's loopback; returns the port there. 0 lets the system choose.

        Raises ConfigError when the host's port cannot be had."""
        wanted = port if host_port is None else host_port
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: Outside(lambda outside: self._take_inbound(port, outside)), "127.0.0.1", wanted
            )
        except OSError as error:
            raise ConfigError(
                f"port {wanted} of this machine cannot be had: {error.strerror}",
                hint=f"--forward {port}:OTHER takes another one, --forward {port}:0 a free one",
            ) from None
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """End every connection, and say in the record how. What comes later is turned away."""
        self._is_closed = True
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.gate.close()

    # One task per connection

    def _take(self, box: BoxStream) -> None:
        # SECURITY: what still runs in the box when the body is over reaches nothing any more, and adds nothing to a
        # record that is about to end (test_egress_gate).
        if self._is_closed:
            box.abort()
        else:
            self._spawn(self._serve(box))

    def _take_inbound(self, port: int, outside: Outside) -> None:
        if self._is_closed:
            outside.abort()
        else:
            self._spawn(self._bring(port, outside))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, box: BoxStream) -> None:
        try:
            if box.listener == HTTP:
                await self._proxy.serve(box)
            else:
                await serve_socks(box, self.gate, idle_s=self._idle_s)
            await _linger(box)
        except (OSError, NotReached, CorralError):
            pass  # the client gave up, or the record fails: then the run says so at its next event
        finally:
            box.abort()

    async def _bring(self, port: int, outside: Outside) -> None:
        assert self._box is not None
        box: BoxStream | None = None
        try:
            box = await self._box.dial(port)
            outside.admitted = await self.gate.note_forward(port)
            try:
                await relay(box, outside, idle_s=self._idle_s)
            finally:
                await self.gate.finish(outside.admitted)
        except (OSError, CorralError):
            pass
        finally:
            if box is None:
                outside.abort()
            else:
                box.abort()
                outside.close()


async def _linger(box: BoxStream) -> None:
    try:
        async with asyncio.timeout(LINGER_S):
            while await box.read():
                pass
    except TimeoutError:
        pass
