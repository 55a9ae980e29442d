"""Removing what runs leave, where some of it belongs to root: the engine's mount makes it, an ordinary user may not."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from corral.errors import RecordError, RemovalBlocked, SandboxError
from corral.sandbox.spec import SANDBOX_IMAGE
from corral.store.removal import remove_tree
from corral.store.run_dir import RunDir, load_meta


async def remove_run(run_id: str, root: Path) -> None:
    """Remove a run's directory, whatever the engine left in it. Raises ConfigError, SandboxError."""
    with RunDir.open(run_id, root) as run_dir:
        try:
            run_dir.remove()
        except RemovalBlocked as blocked:
            await _remove_as_root(blocked.path, _find_image(run_id, root))
            run_dir.remove()


async def remove_work(run_dir: RunDir, image: str) -> None:
    """Remove the mount's own directory when the box is gone, so that the user can remove the rest by hand.

    What cannot be removed stays for `corral runs rm`.
    """
    work = run_dir.path / "box" / "work"
    try:
        await asyncio.to_thread(remove_tree, work)
    except RemovalBlocked:  # hard links of the workspace were written to: the mount keeps an index of them
        with suppress(SandboxError):
            await _remove_as_root(work, _choose_trusted(image))
    except OSError:
        return


async def _remove_as_root(path: Path, image: str) -> None:
    from corral.sandbox.engine import Engine  # late: start-up time
    from corral.sandbox.removal import remove_as_root

    # The engine follows no link on the way, and the way is ours: links in it are the user's own.
    await remove_as_root(Engine(), Path(os.path.realpath(path.parent)) / path.name, image=image)


def _find_image(run_id: str, root: Path) -> str:
    try:
        return _choose_trusted(load_meta(run_id, root).image)
    except RecordError:
        return SANDBOX_IMAGE


def _choose_trusted(image: str) -> str:
    """A version of our own image, never one that was made by somebody else: it runs as root."""
    return image if image.startswith(f"{SANDBOX_IMAGE}:") else SANDBOX_IMAGE
