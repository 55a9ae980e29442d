"""Keeps a box within what no kernel limit holds: still for moments while it is looked at, ended when it is past it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from corral.errors import BoxLost, SandboxError, ToolError
from corral.sandbox.halt import Halt
from corral.sandbox.workspace import Breach
from corral.schema.size import show_size
from corral_protocol.message import Method

_FREEZE_S = 0.5
"""A toolbox that has no processor time to answer holds nothing up: then the look goes on with the box running."""


class Stillness:
    """Who holds the box still: a caller of freeze() for as long as it likes, the disk watch for moments.

    The box refuses commands while it is still. For a moment's sake nobody shall be refused: what comes meanwhile waits.
    """

    def __init__(self, freeze: Callable[[], Awaitable[object]], thaw: Callable[[], Awaitable[object]]) -> None:
        self._freeze = freeze
        self._thaw = thaw
        self.halt: Halt | None = None
        """The quicker way, where there is one."""
        self._turn = asyncio.Lock()
        self._is_wanted = False

    async def admit(self, method: Method) -> None:
        """Before every request: waits until no moment is going on. The request must be sent without another await."""
        if method not in (Method.EXEC, Method.FREEZE, Method.THAW):
            return
        async with self._turn:
            if method is not Method.EXEC:
                self._is_wanted = method is Method.FREEZE

    @contextlib.asynccontextmanager
    async def moment(self) -> AsyncIterator[None]:
        """The box writes nothing in here."""
        async with self._turn:
            if self._is_wanted:
                yield
                return
            if self.halt is not None and self.halt.stop():
                try:
                    yield
                finally:
                    self.halt.resume()
                return
            async with self._frozen():
                yield

    @contextlib.asynccontextmanager
    async def _frozen(self) -> AsyncIterator[None]:
        """By the toolbox."""
        freezing = asyncio.ensure_future(self._freeze())
        try:
            await asyncio.wait({freezing}, timeout=_FREEZE_S)
            yield
        finally:
            with contextlib.suppress(SandboxError, ToolError):
                await self._thaw()
            await asyncio.gather(freezing, return_exceptions=True)


def describe_breach(breach: Breach) -> BoxLost:
    """Why a box was ended, for its user."""
    kept = "its changes until then are kept"
    if breach.what == "disk":
        return BoxLost(
            f"the disk is nearly full: {show_size(breach.used)} are left, {show_size(breach.limit)} are to stay free",
            hint=f"{kept}; free some space; limits.min_free in the settings says what is to stay free",
            cause="disk_full",
        )
    setting = "workspace_inodes" if breach.what == "inodes" else "workspace_size"
    return BoxLost(
        f"the box's changes passed a limit of the workspace: {breach.used} {breach.what}, limit {breach.limit}",
        hint=f"{kept}; limits.{setting} in the settings raises it",
        cause="disk_full",
    )
