"""One box from start to export in a process of its own, so that it can be another user's.

Lines of JSON: an order in, the box's id out; a line in once somebody has looked at the tree, the patch out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.contract.boxes import make_spec
from tests.property.real_box import edit_in_box

from corral.patch.export import Exporter
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import WorkspaceMode


async def _run() -> None:
    order = json.loads(sys.stdin.readline())
    base = Path(order["base"])
    spec = make_spec(base / "lower", base, order["image"], mode=WorkspaceMode.OVERLAY, mask=())
    async with DockerSandbox(spec) as box:
        await edit_in_box(box, order["operations"])
        await box.kill_all()
        print(json.dumps({"box": box.info.box_id, "run_dir": str(spec.run_dir)}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        patch = await Exporter(spec.workspace, spec.run_dir / "patch.diff").export(box)
    print(patch.model_dump_json() if patch else "", flush=True)


if __name__ == "__main__":
    asyncio.run(_run())
