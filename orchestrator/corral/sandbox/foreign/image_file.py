"""Reads files out of an image, by a container of it that is never started: nothing of the image runs."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from corral.sandbox.engine import CHANGE_S, Engine, ObjectGone
from corral.sandbox.labels import labels
from corral.sandbox.passing import open_container

_MAX_FILE = 1 << 20


@asynccontextmanager
async def open_image(engine: Engine, image_id: str, run_id: str) -> AsyncIterator[str]:
    """A container whose files are the image's; its id. Raises SandboxError."""
    config = {
        "Image": image_id,
        "Entrypoint": ["/never-started"],
        "Cmd": [],
        "NetworkDisabled": True,
        "Labels": labels(run_id, "reader"),
        "HostConfig": {"NetworkMode": "none", "ReadonlyRootfs": True, "CapDrop": ["ALL"]},
    }
    async with open_container(engine, config) as container:
        yield container


async def read_small_file(engine: Engine, container: str, path: str) -> bytes:
    """A plain file of at most 1 MiB; b"" for anything else, a link included. Raises SandboxError."""
    try:
        return await engine.call(
            "read a file of the image", lambda client: _take_file(client.get_archive(container, path)[0]), CHANGE_S
        )
    except ObjectGone:
        return b""


def _take_file(chunks: Iterable[bytes]) -> bytes:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > _MAX_FILE + (16 << 10):
            return b""
    try:
        with tarfile.open(fileobj=io.BytesIO(bytes(data))) as tar:
            entry = tar.next()
            file = tar.extractfile(entry) if entry is not None and entry.isreg() else None
            return b"" if file is None else file.read(_MAX_FILE)
    except (tarfile.TarError, EOFError, OSError):
        return b""
