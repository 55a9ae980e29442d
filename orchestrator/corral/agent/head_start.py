"""The first request to the model, sent while the box is still starting: the one waits for the network, the other for
the engine. Nothing of its answer is looked at before the box is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from corral.agent.loop import Asked
from corral.agent.transcript import Transcript
from corral.schema.messages import ModelReply


class HeadStart:
    """An `Asked` whose first answer may be under way already."""

    def __init__(self, ask: Asked) -> None:
        self._ask = ask
        self._first: asyncio.Task[ModelReply] | None = None

    @contextlib.asynccontextmanager
    async def begin(self, transcript: Transcript, status: str) -> AsyncIterator[None]:
        """Ask now. What nobody has fetched by the end is ended: the box did not start, or its user went."""
        self._first = asyncio.ensure_future(self._fetch(transcript, status))
        try:
            yield
        finally:
            if (first := self._first) is not None:
                first.cancel()
                await asyncio.wait((first,))
                if not first.cancelled():
                    first.exception()  # looked at, and left: the start's failure is the one to tell

    async def _fetch(self, transcript: Transcript, status: str) -> ModelReply:
        return await self._ask(transcript, status, True)

    @property
    def unused(self) -> ModelReply | None:
        """An answer that has come and that nobody has fetched: paid for all the same."""
        first = self._first
        if first is None or not first.done() or first.cancelled() or first.exception() is not None:
            return None
        return first.result()

    async def __call__(self, transcript: Transcript, status: str, may_call: bool) -> ModelReply:
        """Raises what asking raised."""
        first, self._first = self._first, None
        if first is not None:
            return await first
        return await self._ask(transcript, status, may_call)
