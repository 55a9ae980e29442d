"""The export of one run: collects from the box that is open, builds the patch file, checks it."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from corral.errors import PatchError
from corral.patch.build import build_patch
from corral.patch.checks import check_patch
from corral.patch.collect.manifest import collect_copy
from corral.patch.collect.overlay import collect_overlay
from corral.patch.collect.selection import ChangeSet, ExportLimits
from corral.sandbox.base import Sandbox
from corral.sandbox.scratch import make_scratch
from corral.sandbox.spec import WorkspaceMode
from corral.sandbox.workspace import load_baseline, load_entries
from corral.schema.patch import Patch
from corral_protocol.name import decode_name

BASELINE = "baseline.jsonl"
PREVIEW_BYTES = 1 << 20
OBJECTS = "objects"
"""Directory of the run that keeps the blobs of both sides: a three-way apply needs them."""


@dataclass(frozen=True)
class Exporter:
    """Exports into the directory of the run that `target` stands in, where the box has left its changes."""

    workspace: Path
    target: Path
    include_ignored: bool = False
    limits: ExportLimits | None = None

    async def export(self, sandbox: Sandbox) -> Patch | None:
        """The patch of everything that changed, written to `target`; None when nothing did.

        The untrusted processes must be frozen or gone. Raises PatchError, and what the box raises.
        """
        try:
            with make_scratch("export") as staging:
                changes = await self._collect(sandbox, Path(staging))
                if not changes.changes and not changes.not_exported:
                    return None
                return await asyncio.to_thread(self._build, changes)
        except OSError as error:
            raise PatchError(
                f"the patch cannot be made: {error.strerror or error}",
                hint=f"what the box changed is kept in {str(self.target.parent)!r}",
            ) from error

    async def preview(self, sandbox: Sandbox) -> str:
        """The patch as it would be now, cut to PREVIEW_BYTES; the box is frozen meanwhile and goes on afterwards."""
        await sandbox.freeze()
        try:
            with make_scratch("preview") as staging:
                changes = await self._collect(sandbox, Path(staging))
                target = Path(staging) / "patch"
                await asyncio.to_thread(build_patch, changes, target, limits=self.limits)
                with target.open("rb") as file:
                    return file.read(PREVIEW_BYTES).decode("utf-8", "replace")
        finally:
            await sandbox.thaw()

    async def _collect(self, sandbox: Sandbox, staging: Path) -> ChangeSet:
        run_dir, info = self.target.parent, sandbox.info
        masked = [one.path for one in info.masked]
        base = await asyncio.to_thread(load_baseline, run_dir / BASELINE)
        if info.mode is WorkspaceMode.OVERLAY:
            return await asyncio.to_thread(
                collect_overlay,
                self.workspace,
                run_dir / "box" / "upper",
                masked=masked,
                started_ns=base.base_time_ns,
                include_ignored=self.include_ignored,
                limits=self.limits,
                work=run_dir / "box" / "work",
            )
        return await collect_copy(
            self.workspace,
            load_entries(run_dir / BASELINE),
            sandbox.scan_tree(),
            # The box takes names as they are, a manifest tells them in their wire form.
            lambda path, sink: sandbox.fetch_file(os.fsdecode(decode_name(path)), sink),
            staging,
            masked=masked,
            started_ns=base.base_time_ns,
            include_ignored=self.include_ignored,
            limits=self.limits,
        )

    def _build(self, changes: ChangeSet) -> Patch:
        objects = self.target.parent / OBJECTS
        shutil.rmtree(objects, ignore_errors=True)  # of an earlier export of this run
        patch = build_patch(changes, self.target, limits=self.limits, keep=objects)
        findings = check_patch(self.target.read_bytes(), self.workspace)
        return patch.model_copy(update={"findings": findings})
