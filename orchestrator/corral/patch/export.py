"""The export of one run: collects from the box that is open, builds the patch file, checks it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from corral.errors import PatchError
from corral.patch.build import build_patch
from corral.patch.checks import check_patch
from corral.patch.collect.manifest import collect_copy
from corral.patch.collect.overlay import collect_overlay
from corral.patch.collect.selection import ChangeSet, ExportLimits
from corral.redact import Redactor
from corral.sandbox.base import BoxInfo, Sandbox
from corral.sandbox.scratch import make_scratch
from corral.sandbox.spec import WorkspaceMode
from corral.sandbox.workspace import load_baseline, load_entries
from corral.schema.patch import Patch
from corral_protocol.name import decode_name

BASELINE = "baseline.jsonl"
PREVIEW = "preview"
PREVIEW_BYTES = 1 << 20
OBJECTS = "objects"
"""Directory of the run that keeps the blobs of both sides: a three-way apply needs them."""

T = TypeVar("T")


@dataclass(frozen=True)
class Exporter:
    """Exports into the directory of the run that `target` stands in, where the box has left its changes."""

    workspace: Path
    target: Path
    include_ignored: bool = False
    limits: ExportLimits | None = None
    redactor: Redactor = field(default_factory=Redactor)
    """What it finds is told; the patch itself is never masked."""

    async def export(self, sandbox: Sandbox) -> Patch | None:
        """The patch of everything that changed, written to `target`; None when nothing did.

        The untrusted processes must be frozen or gone. Raises PatchError, and what the box raises.
        """
        try:
            return await self._collect(sandbox, self._build)
        except OSError as error:
            raise PatchError(
                f"the patch cannot be made: {error.strerror or error}",
                hint=f"what the box changed is kept in {str(self.target.parent)!r}",
            ) from error

    async def preview(self, sandbox: Sandbox) -> str:
        """The patch as it would be now, cut to PREVIEW_BYTES; the box is frozen meanwhile and goes on afterwards."""
        await sandbox.freeze()
        try:
            return await self._collect(sandbox, self._show)
        finally:
            await sandbox.thaw()

    async def _collect(self, sandbox: Sandbox, use: Callable[[ChangeSet], T]) -> T:
        """What `use` makes of the changes, in a thread of its own."""
        run_dir, info = self.target.parent, sandbox.info
        if info.mode is WorkspaceMode.OVERLAY:
            return await asyncio.to_thread(lambda: use(self._collect_overlay(info)))
        base = await asyncio.to_thread(load_baseline, run_dir / BASELINE)
        with make_scratch("export") as staging:
            changes = await collect_copy(
                self.workspace,
                load_entries(run_dir / BASELINE),
                sandbox.scan_tree(),
                # The box takes names as they are, a manifest tells them in their wire form.
                lambda path, sink: sandbox.fetch_file(os.fsdecode(decode_name(path)), sink),
                Path(staging),
                masked=[one.path for one in info.masked],
                started_ns=base.base_time_ns,
                include_ignored=self.include_ignored,
                limits=self.limits,
            )
            return await asyncio.to_thread(use, changes)

    def _collect_overlay(self, info: BoxInfo) -> ChangeSet:
        run_dir = self.target.parent
        return collect_overlay(
            self.workspace,
            run_dir / "box" / "upper",
            masked=[one.path for one in info.masked],
            started_ns=load_baseline(run_dir / BASELINE).base_time_ns,
            include_ignored=self.include_ignored,
            limits=self.limits,
            work=run_dir / "box" / "work",
        )

    def _build(self, changes: ChangeSet) -> Patch | None:
        if not changes.changes and not changes.not_exported:
            return None
        patch = build_patch(changes, self.target, limits=self.limits, keep=self.target.parent / OBJECTS)
        findings = check_patch(self.target.read_bytes(), self.workspace, self.redactor)
        return patch.model_copy(update={"findings": findings})

    def _show(self, changes: ChangeSet) -> str:
        target = self.target.with_name(PREVIEW)
        try:
            build_patch(changes, target, limits=self.limits, keep=self.target.parent / OBJECTS)
            with target.open("rb") as file:
                return file.read(PREVIEW_BYTES).decode("utf-8", "replace")
        finally:
            target.unlink(missing_ok=True)
