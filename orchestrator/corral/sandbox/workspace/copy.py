"""Copy mode: an empty volume that the tree is streamed into, for engines that cannot see the workspace."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator

from corral.errors import WorkspaceError
from corral.sandbox.labels import labels
from corral.sandbox.spec import SandboxSpec
from corral.sandbox.workspace.tree.pack import Measure

_SYSTEM_BYTES = 64 << 20  # /run and what the toolbox itself needs
_BATCH = 256 << 10


def check_size(measured: Measure, spec: SandboxSpec) -> None:
    """Raises WorkspaceError before a byte is sent."""
    limits = spec.limits
    if measured.bytes > limits.workspace_bytes or measured.entries > limits.workspace_inodes:
        raise WorkspaceError(
            f"the workspace is too large to copy: {measured.bytes} bytes in {measured.entries} entries, "
            f"limits are {limits.workspace_bytes} and {limits.workspace_inodes}",
            hint="raise the workspace limits, name a smaller directory, or use overlay mode",
        )


def describe_copy_mount(
    spec: SandboxSpec, measured: Measure, root: os.stat_result, uid: int, gid: int
) -> tuple[dict[str, object], str | None]:
    """The entry of HostConfig.Mounts, and a warning when the volume cannot hold the limits."""
    limits = spec.limits
    # All tmpfs of a box together stay at half of its memory, or the toolbox becomes the kernel's victim.
    room = limits.memory_bytes // 2 - limits.tmp_bytes - limits.home_bytes - limits.shm_bytes - _SYSTEM_BYTES
    size = min(limits.workspace_bytes, room)
    options: dict[str, str] = {}
    warning = None
    if measured.bytes + measured.bytes // 4 <= size:
        mode = stat.S_IMODE(root.st_mode) | 0o700
        mount = f"size={size},nr_inodes={limits.workspace_inodes},uid={uid},gid={gid},mode={mode:04o},nosuid,nodev"
        options = {"type": "tmpfs", "device": "tmpfs", "o": mount}
    else:
        warning = "the copy lies on the engine's disk: the workspace's limits are watched, not held by its kernel"
    volume: dict[str, object] = {"NoCopy": True, "Labels": labels(spec.run_id, "workspace")}
    if options:
        volume["DriverConfig"] = {"Name": "local", "Options": options}
    return {"Type": "volume", "Target": spec.mount_point, "VolumeOptions": volume}, warning


async def iterate_in_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks of a blocking iterator in batches, the loop free meanwhile. Ends the iterator in any case."""
    loop = asyncio.get_running_loop()
    pending: asyncio.Future[bytes] | None = None
    try:
        while True:
            pending = loop.run_in_executor(None, _take_batch, chunks)
            batch = await asyncio.shield(pending)
            if not batch:
                return
            yield batch
    finally:
        # A generator that is still running in its thread cannot be closed.
        if pending is not None and not pending.done():
            await asyncio.wait({pending})
        close = getattr(chunks, "close", None)
        if close is not None:
            close()


def _take_batch(chunks: Iterator[bytes]) -> bytes:
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= _BATCH:
            break
    return b"".join(parts)


def describe_path(path: bytes) -> str:
    """A name for a message: printable, whatever is in it."""
    return repr(os.fsdecode(path))
