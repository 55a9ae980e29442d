"""A box that goes on after its end, where a command alone can end it: a new one over the same changes.

Under a runtime with a kernel of its own (gVisor) a fork bomb or one of memory takes the whole box. The changes lie
outside of it. The call that did it, and every other that was under way, fails with a ToolError that says what is lost;
the next one finds the workspace as it was left. The old box is proven gone before: two over one upper directory would
corrupt it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self, TypeVar

from corral.errors import BoxLost, CorralError, SandboxProtocolError, ToolError
from corral.sandbox.ability import has_own_kernel
from corral.sandbox.base import NO_VARIABLES, BoxInfo, ExecHandle, Hold, Sandbox, Sink
from corral.sandbox.channel import BoxOperations
from corral.sandbox.channel.operation import Caller
from corral.sandbox.channel.tunnel import BoxStream, Serve
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import MAX_STREAMS, RUNC, SandboxSpec, WorkspaceMode
from corral_protocol.message import Method

MAX_RENEWALS = 3
"""One that ends so often is not worth a fifth box."""
_RENEWED_FOR = ("oom", "pids_exhausted")
_LOST = "what ran in it, /tmp and home are lost, the workspace's changes are kept; do not run that again as it is"

T = TypeVar("T")
OpenTunnel = Callable[["OneBox"], Awaitable[None]]


def make_lasting(spec: SandboxSpec) -> Sandbox:
    """The box for work of several steps: one that lasts, where one command can end a box."""
    return DockerSandbox(spec) if spec.runtime == RUNC else LastingSandbox(spec)


class OneBox(Sandbox, Protocol):
    """A box that can be asked by method: what one over several hands on."""

    _call: Caller
    _variables: Mapping[str, str]

    def _end_box(self, error: SandboxProtocolError) -> None: ...


class LastingSandbox(BoxOperations):
    """corral.sandbox.base.Sandbox over one box after the other."""

    def __init__(self, spec: SandboxSpec, *, make: Callable[[SandboxSpec], OneBox] = DockerSandbox) -> None:
        self._spec = spec
        self._make = make
        self._call = self._ask
        self._box = make(spec)
        self._tunnel: OpenTunnel | None = None
        self._ends: list[str] = []
        """Why each box before this one ended."""
        self._renewing: asyncio.Task[None] | None = None
        self._is_disposed = False
        self._started_at = 0.0

    @property
    def info(self) -> BoxInfo:
        """Of the box that runs now; its warnings tell of those before."""
        info = self._box.info
        replaced = tuple(f"the box was replaced by a new one over the same changes: {why}" for why in self._ends)
        return replace(info, warnings=(*info.warnings, *replaced))

    async def start(self) -> BoxInfo:
        self._started_at = time.monotonic()
        return await self._box.start()

    async def dispose(self) -> None:
        self._is_disposed = True
        if self._renewing is not None:
            await asyncio.wait((self._renewing,))
        await self._box.dispose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.dispose()

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
        if self._renewing is not None:
            await asyncio.shield(self._renewing)
        box = self._box
        try:
            return await box._call(
                method, params, kind, sinks=sinks, body=body, limit_s=limit_s, hold=hold, handle=handle
            )
        except BoxLost as lost:
            if not self._can_renew(box, lost):
                raise
            await self._renew(box, lost)
            raise ToolError(f"{lost.message}, and was replaced by a new one", hint=_LOST, code=lost.code) from lost

    async def open_tunnel(
        self, serve: Serve, *, variables: Mapping[str, str] = NO_VARIABLES, max_streams: int = MAX_STREAMS
    ) -> None:
        async def open_in(box: OneBox) -> None:
            await box.open_tunnel(serve, variables=variables, max_streams=max_streams)
            self._variables = box._variables

        await open_in(self._box)
        self._tunnel = open_in

    async def dial(self, port: int) -> BoxStream:
        return await self._box.dial(port)

    def _end_box(self, error: SandboxProtocolError) -> None:
        self._box._end_box(error)

    def _can_renew(self, box: OneBox, lost: BoxLost) -> bool:
        info = box.info
        return (
            not self._is_disposed
            and lost.cause in _RENEWED_FOR
            and has_own_kernel(info)
            and info.mode is WorkspaceMode.OVERLAY  # the changes of a copy are gone with it
            and (box is not self._box or len(self._ends) < MAX_RENEWALS)
        )

    async def _renew(self, box: OneBox, lost: BoxLost) -> None:
        """Whoever comes first makes the new box, the others wait for it. Raises `lost` where none can be had."""
        if box is self._box and self._renewing is None:
            self._renewing = asyncio.ensure_future(self._replace(box, lost))
            self._renewing.add_done_callback(self._note_end)
        if self._renewing is not None:
            await asyncio.shield(self._renewing)  # a time limit of the caller does not end it half-way

    async def _replace(self, box: OneBox, lost: BoxLost) -> None:
        await box.dispose()
        limits = self._spec.limits
        if limits.wall_s is not None:
            limits = replace(limits, wall_s=max(0.1, limits.wall_s - (time.monotonic() - self._started_at)))
        # The mode is proven: a copy now would show the original, without what was done to it.
        fresh = self._make(replace(self._spec, limits=limits, mode=WorkspaceMode.OVERLAY))
        try:
            await fresh.start()
            if self._tunnel is not None:
                await self._tunnel(fresh)
        except CorralError as failure:
            raise lost from failure
        self._ends.append(lost.message)
        self._box = fresh

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._renewing = None
        if not task.cancelled():
            task.exception()  # raised to those who wait; looked at for the case that nobody does
