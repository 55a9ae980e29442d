"""What a run holds of a box that a pool gives it: which box that is, is known when it is started."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Protocol, Self, TypeVar

from corral.errors import SandboxProtocolError
from corral.sandbox.base import NO_VARIABLES, BoxInfo, ExecHandle, Hold, Sink
from corral.sandbox.channel import BoxOperations
from corral.sandbox.channel.tunnel import BoxStream, Serve
from corral.sandbox.lasting import OneBox
from corral.sandbox.spec import MAX_STREAMS, SandboxSpec
from corral_protocol.message import Method

T = TypeVar("T")


class Giver(Protocol):
    """The pool."""

    async def obtain(self, spec: SandboxSpec) -> OneBox: ...

    async def dispose(self, box: OneBox) -> None: ...


class PooledSandbox(BoxOperations):
    """corral.sandbox.base.Sandbox over a box of a pool, or a new one. After dispose() a box of the pool is out of
    reach; its container may go a moment later."""

    def __init__(self, spec: SandboxSpec, pool: Giver) -> None:
        self._spec = spec
        self._pool = pool
        self._call = self._ask
        self._box: OneBox | None = None
        self._is_disposed = False

    @property
    def info(self) -> BoxInfo:
        return self._one.info

    async def start(self) -> BoxInfo:
        if self._box is not None or self._is_disposed:
            raise RuntimeError("a box is started once")
        self._box = await self._pool.obtain(self._spec)
        return self._box.info

    async def dispose(self) -> None:
        self._is_disposed = True
        if self._box is not None:
            await self._pool.dispose(self._box)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.dispose()

    async def open_tunnel(
        self, serve: Serve, *, variables: Mapping[str, str] = NO_VARIABLES, max_streams: int = MAX_STREAMS
    ) -> None:
        await self._one.open_tunnel(serve, variables=variables, max_streams=max_streams)
        self._variables = self._one._variables

    async def dial(self, port: int) -> BoxStream:
        return await self._one.dial(port)

    async def _ask(
        self,
        method: Method,
        params: object,
        kind: type[T],
        *,
        sinks: Mapping[str, Sink] | None = None,
        body: tuple[str, AsyncIterator[bytes]] | None = None,
        limit_s: float | None = None,
        hold: Hold | None = None,
        handle: ExecHandle | None = None,
    ) -> T:
        return await self._one._call(
            method, params, kind, sinks=sinks, body=body, limit_s=limit_s, hold=hold, handle=handle
        )

    def _end_box(self, error: SandboxProtocolError) -> None:
        self._one._end_box(error)

    @property
    def _one(self) -> OneBox:
        if self._box is None:
            raise RuntimeError("the box has not been started")
        return self._box
