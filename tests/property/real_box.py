"""Programs of edits in a real box, run as its user; the tree they leave, read by somebody who may read everything."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import docker
from tests.property import overlay_box
from tests.property.overlay_box import Operation, Seen, describe

from corral.sandbox.docker import DockerSandbox
from corral_protocol.message import ExecStatus

MOUNT_POINT = "/workspace"
_SOURCE = Path(overlay_box.__file__).read_text(encoding="utf-8")
_EDIT = """
import json, sys, types
module = types.ModuleType("overlay_box")
sys.modules["overlay_box"] = module
order = json.load(sys.stdin)
exec(order["source"], module.__dict__)
for verb, *arguments in order["operations"]:
    try:
        module._VERBS[verb](b"/workspace", *[one.encode("latin-1") for one in arguments])
    except OSError:
        pass
"""


async def edit_in_box(box: DockerSandbox, operations: list[Operation]) -> None:
    """Run a program of edits as the box's user; what its rights do not allow does not happen."""
    order = json.dumps({"source": _SOURCE, "operations": operations}).encode()
    result = await box.exec(["python3", "-c", _EDIT], stdin=_once(order), timeout_s=60)
    assert (result.status, result.exit_code) == (ExecStatus.EXITED, 0), base64.b64decode(result.stderr.head_b64)


def describe_box(client: docker.DockerClient, box_id: str) -> dict[bytes, Seen]:
    """The whole tree as it is, through the box's own mount table: with every right, past the toolbox."""
    pid = client.containers.get(box_id).attrs["State"]["Pid"]
    return describe(os.fsencode(f"/proc/{pid}/root" + MOUNT_POINT))


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
