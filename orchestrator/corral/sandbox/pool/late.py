"""A box without a workspace: what it shall see is mounted when it is handed out, by us, and appears in it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from corral.sandbox.container import build_config, load_seccomp_profile
from corral.sandbox.engine import Engine, run_in_thread
from corral.sandbox.foreign import FoundImage, find_image
from corral.sandbox.labels import labels
from corral.sandbox.pool.ahead import AheadSandbox, Unfit
from corral.sandbox.pool.yard import Yard
from corral.sandbox.spec import SandboxSpec
from corral.sandbox.workspace import (
    BoxOwner,
    FoundSecrets,
    PreparedWorkspace,
    SearchMemo,
    attach_overlay,
    cover_secrets,
    prepare_workspace,
    reserve_owner,
)
from corral_protocol.message import HelloReply


class LateSandbox(AheadSandbox):
    """For any workspace."""

    kind = "late"

    def __init__(self, spec: SandboxSpec, yard: Yard, *, engine: Engine, memo: SearchMemo) -> None:
        super().__init__(spec, engine=engine, memo=memo)
        self._yard = yard
        self._point: Path | None = None
        self._owner: BoxOwner | None = None

    async def _warm(self) -> FoundImage:
        image = await find_image(self._engine, self._spec.image)
        if image.sandbox is not None:
            raise Unfit("the image is not corral's own: its boxes are made for one user")
        if image.facts.remap is not None:
            raise Unfit("the engine maps user ids")
        self._point = self._yard.add()
        self._owner = await run_in_thread(self._reserve_owner, name="corral-workspace")
        config = build_config(
            replace(self._spec, image=image.facts.id),  # what was inspected is what runs
            mount={
                "Type": "bind",
                "Source": str(self._point),
                "Target": self._spec.mount_point,
                # SECURITY: a slave: what is mounted out there comes in, nothing goes out, and the box's directory is
                # all of the yard that it has (test_a_late_box_sees_nothing_of_its_neighbours).
                "BindOptions": {"Propagation": "rslave"},
            },
            marks=labels(self._mark, "box"),
            seccomp=load_seccomp_profile(self._spec.seccomp),
            image_env=image.facts.env,
            image_volumes=image.facts.volumes,
            hosts_file=str(self._yard.hosts),
        )
        at_once = asyncio.get_running_loop().create_future()
        at_once.set_result(None)
        await self._open_filled(image, config, before_start=at_once)
        return image

    async def _open(self) -> tuple[FoundImage, HelloReply]:
        assert self._image is not None
        # Both to their end: what the search has opened is closed by it.
        self._searching = run_in_thread(self._find_secrets, name="corral-secrets")
        spec, owner = self._spec, self._owner
        self._owner = None  # whatever becomes of it, prepare_workspace() gives it back
        self._preparing = run_in_thread(
            lambda: prepare_workspace(spec, is_covered=False, reserved=owner), name="corral-workspace"
        )
        prepared = self._prepared = await asyncio.shield(self._preparing)
        found = await asyncio.shield(self._searching)
        if prepared.overlay is None:
            raise Unfit(prepared.mode_reason)
        self._covering = run_in_thread(lambda: self._mount(prepared, found), name="corral-workspace")
        await asyncio.shield(self._covering)
        hello = await self._greet(self._image, prepared)
        await self._verify(prepared, hello)
        self._after_start = run_in_thread(prepared.after_start, name="corral-workspace")
        return self._image, hello

    def _reserve_owner(self) -> BoxOwner:
        """For a workspace of the one the pool was made for, or, most likely, of who runs it."""
        try:
            return reserve_owner(os.stat(self._spec.workspace))
        except OSError as error:
            raise Unfit(f"this kernel cannot map file owners: {error.strerror}") from error

    def _mount(self, prepared: PreparedWorkspace, found: FoundSecrets) -> None:
        cover_secrets(prepared, found)
        assert prepared.overlay is not None and self._point is not None
        try:
            attach_overlay(prepared.overlay, self._point)
        except OSError as error:
            raise Unfit(f"the workspace cannot be mounted: {error.strerror}") from error

    async def _close_box(self) -> None:
        await super()._close_box()
        if self._owner is not None:
            self._owner.release()
            self._owner = None
        if self._point is not None:
            point, self._point = self._point, None
            await run_in_thread(lambda: self._yard.release(point), name="corral-workspace")
