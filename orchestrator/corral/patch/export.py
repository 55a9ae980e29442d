"""From a box at rest to a patch file: collect what changed, build the patch, look it over."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corral.patch.build import build_patch
from corral.patch.checks import check_patch
from corral.patch.collect.overlay import collect_overlay
from corral.patch.collect.selection import ChangeSet
from corral.sandbox.base import Sandbox
from corral.sandbox.workspace import PreparedWorkspace
from corral.schema.patch import Patch

PREVIEW_BYTES = 1 << 20


@dataclass(frozen=True)
class Exporter:
    """Exports of one run. `prepared` is asked each time: a box knows its workspace only once it has started."""

    workspace: Path
    target: Path
    prepared: Callable[[], PreparedWorkspace]
    include_ignored: bool = False

    async def export(self, sandbox: Sandbox) -> Patch | None:
        """Write the patch to `target`; None when nothing changed at all. The box's processes must be gone or frozen.

        Raises PatchError.
        """
        changes = await self._collect(sandbox)
        if not changes.changes and not changes.not_exported:
            return None
        return await asyncio.to_thread(self._build, changes, self.target)

    async def preview(self, sandbox: Sandbox) -> str:
        """The patch as it would be now, for the model to look at; the box goes on afterwards."""
        await sandbox.freeze()
        try:
            changes = await self._collect(sandbox)
            with tempfile.TemporaryDirectory(prefix="corral-diff-") as place:
                target = Path(place) / "patch"
                await asyncio.to_thread(build_patch, changes, target)
                with target.open("rb") as file:
                    return file.read(PREVIEW_BYTES).decode("utf-8", "replace")
        finally:
            await sandbox.thaw()

    async def _collect(self, sandbox: Sandbox) -> ChangeSet:
        prepared = self.prepared()
        masked = [one.path for one in prepared.masked]
        upper = prepared.upper
        assert upper is not None
        return await asyncio.to_thread(
            collect_overlay,
            self.workspace,
            upper,
            masked=masked,
            started_ns=prepared.base.base_time_ns,
            include_ignored=self.include_ignored,
            work=upper.parent / "work",
        )

    def _build(self, changes: ChangeSet, target: Path) -> Patch:
        patch = build_patch(changes, target)
        findings = check_patch(target.read_bytes(), self.workspace)
        return patch.model_copy(update={"findings": tuple(findings)})
