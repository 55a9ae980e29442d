"""A trusted container that is there for one task and gone at its end, whatever ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from corral.errors import SandboxError
from corral.sandbox.box import finish
from corral.sandbox.container import choose_name
from corral.sandbox.engine import Engine


@asynccontextmanager
async def open_container(engine: Engine, config: Mapping[str, Any]) -> AsyncIterator[str]:
    """Created, not started; its id. Removed by its name, also when the caller is cancelled before the engine has
    answered. `config` has our labels, for gc. Raises SandboxError."""
    name = choose_name()
    # Shielded: a request that is on its way makes the container, whether somebody waits or not.
    creating = asyncio.ensure_future(engine.create_container(config, name))
    try:
        yield await asyncio.shield(creating)
    finally:
        await finish(asyncio.ensure_future(_remove(engine, name, creating)))


async def _remove(engine: Engine, name: str, creating: asyncio.Future[str]) -> None:
    await asyncio.wait((creating,))
    if not creating.cancelled():
        creating.exception()  # told to whoever waited for it
    with suppress(SandboxError):  # left to gc: what went wrong before is what to tell
        await engine.remove_container(name)
