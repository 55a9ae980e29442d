"""Pools of real boxes, of each kind."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contract.boxes import make_spec

from corral.sandbox.docker import DockerSandbox
from corral.sandbox.pool import Pool, PoolPlan
from corral.sandbox.spec import WorkspaceMode
from corral.store.removal import remove_tree

KINDS = ("late", "kept", "copy")
"""`copy`: kept, in copy mode."""
PATIENCE_S = 60.0


def make_pool(kind: str, workspace: Path, folder: Path, image: str, *, size: int = 1, **more: Any) -> Pool:
    """Not started yet. `late` is for any workspace."""
    mode = WorkspaceMode.COPY if kind == "copy" else WorkspaceMode.AUTO
    plan = PoolPlan(
        make_spec(workspace, folder, image, mode=mode),
        folder / f"pools-{secrets.token_hex(4)}",
        remove_tree,
        DockerSandbox,
        is_for_one=kind != "late",
        may_be_late=kind == "late",
        size=size,
        **more,
    )
    return Pool(plan)


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.02)
