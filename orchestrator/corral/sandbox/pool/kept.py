"""A box made ahead for one workspace: mounted by the engine as ever, or with room for a copy that is sent late.

What was prepared may have aged: the directory may be another one, secret files may have come. Then it is thrown away.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from corral.sandbox.engine import Engine, run_in_thread
from corral.sandbox.foreign import FoundImage
from corral.sandbox.pool.ahead import AheadSandbox, Unfit
from corral.sandbox.spec import SandboxSpec, WorkspaceMode
from corral.sandbox.workspace import (
    FoundSecrets,
    PreparedWorkspace,
    SearchMemo,
    has_room,
    is_masked_alike,
    is_same_place,
    move_in,
)
from corral_protocol.message import HelloReply


class KeptSandbox(AheadSandbox):
    """For the workspace of its spec. Its changes lie in a directory of the pool until it has a run."""

    kind = "kept"

    def __init__(
        self, spec: SandboxSpec, *, engine: Engine, memo: SearchMemo, remove_tree: Callable[[Path], None]
    ) -> None:
        super().__init__(spec, engine=engine, memo=memo)
        self._directory = spec.run_dir
        self._remove_tree = remove_tree

    async def _warm(self) -> FoundImage:
        self._directory.mkdir(mode=0o700)
        image, prepared = await self._prepare()
        await self._open_waiting(image, prepared)
        return image

    async def _open(self) -> tuple[FoundImage, HelloReply]:
        assert self._image is not None and self._prepared is not None and self._searching is not None
        prepared, before = self._prepared, self._searching.result()
        self._searching = run_in_thread(self._find_secrets, name="corral-secrets")
        found = await asyncio.shield(self._searching)
        # Nothing is moved into the run before this box is sure to be used: its masks would be changes there.
        self._covering = run_in_thread(lambda: self._move_in(prepared, before, found), name="corral-workspace")
        await asyncio.shield(self._covering)
        hello = await self._greet(self._image, prepared)
        await self._verify(prepared, hello)
        self._after_start = run_in_thread(prepared.after_start, name="corral-workspace")
        if prepared.mode is WorkspaceMode.COPY:
            await self._send_copy(prepared)
        return self._image, hello

    def _move_in(self, prepared: PreparedWorkspace, before: FoundSecrets, found: FoundSecrets) -> None:
        """The checks, then the run's directory in place of the pool's. Raises Unfit."""
        try:
            now = os.stat(self._spec.workspace)
        except OSError as error:
            raise Unfit(f"the workspace is gone: {error.strerror}") from error
        if not is_same_place(prepared, now):
            raise Unfit("the workspace is another directory by now, or has another owner or mode")
        if prepared.mode is WorkspaceMode.OVERLAY and not is_masked_alike(found, before):
            # SECURITY: masks lie below a mount that is there already (test_a_secret_that_came_later_is_masked).
            raise Unfit("secret files came or went")
        if prepared.mode is WorkspaceMode.COPY and not has_room(prepared):
            raise Unfit("the workspace has outgrown the room for its copy")
        try:
            move_in(prepared, self._spec, found)
        except OSError as error:
            raise Unfit(f"its changes cannot be moved into the run: {error.strerror}") from error

    async def _close_box(self) -> None:
        await super()._close_box()
        await run_in_thread(lambda: self._remove_tree(self._directory), name="corral-workspace")
