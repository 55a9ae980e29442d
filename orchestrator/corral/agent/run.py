"""One run, whatever runs in it: a record, a box, a body, a patch, an end.

The order is the promise: the record is open before the box exists, the untrusted processes are gone before the changes
are read, the patch is on disk before the box is, and the end is written last. It holds for every way a body can end.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Protocol

from corral.agent.stop import EXIT_CODES, StopReason, is_complete
from corral.errors import BoxLost, CorralError, ModelError, SandboxError
from corral.record import find_actor
from corral.sandbox.base import BoxInfo, Sandbox
from corral.schema.events import (
    Box,
    ChangedFile,
    ErrorFacts,
    ErrorRaised,
    Event,
    PatchMade,
    Payload,
    RunFinished,
    RunStarted,
    Source,
)
from corral.schema.events import Tokens as TokensUsed
from corral.schema.patch import Patch
from corral.schema.path import show_path
from corral.schema.visible import visible


class RunRecord(Protocol):
    """The record as a run writes it; corral.record.RecordLog is one."""

    @property
    def dropped(self) -> int: ...

    def append(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event: ...

    async def append_async(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event: ...


Export = Callable[[Sandbox], Awaitable[Patch | None]]
"""Reads the changes of a box whose untrusted processes are gone; writes the patch file; None when nothing changed."""


@dataclass(frozen=True)
class Ending:
    """How a body ended: what run() adds the patch to."""

    reason: StopReason
    exit_code: int | None = None  # of the command, for exec; None: the stop reason's
    summary: str = ""
    steps: int = 0
    tokens: TokensUsed = field(default_factory=TokensUsed)
    cost_usd: float | None = None


Body = Callable[[Sandbox], Awaitable[Ending]]


@dataclass(frozen=True)
class Outcome:
    """A run that is over."""

    ending: Ending
    box: BoxInfo | None
    patch: Patch | None
    error: CorralError | None
    duration_s: float

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.ending.reason] if self.ending.exit_code is None else self.ending.exit_code


@dataclass
class Run:
    """The parts of one run; `execute` uses them once."""

    record: RunRecord
    sandbox: Sandbox
    export: Export
    started: RunStarted
    on_box: Callable[[BoxInfo], None] = lambda box: None

    async def execute(self, body: Body) -> Outcome:
        """Run `body` in the box. Its failure, or the box's, is part of the outcome; only a record that cannot be
        written raises. Cancelling ends the body, not the export: that takes a second cancel.
        """
        begun = time.monotonic()
        self.record.append(self.started)
        error: CorralError | None = None
        patch: Patch | None = None
        box: BoxInfo | None = None
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.sandbox)
                box = self.sandbox.info
                self.on_box(box)
                ending = await body(self.sandbox)
            except asyncio.CancelledError:
                ending = Ending(StopReason.CANCELLED, summary="cancelled by the user")
                _uncancel()
            except CorralError as failure:
                error = failure
                ending = Ending(_reason(failure), summary=failure.message)
            if box is not None:
                try:
                    patch = await self._export(ending)
                except CorralError as failure:
                    error = error or failure
                    ending = Ending(StopReason.ERROR, summary=failure.message)
        if error is not None:
            self._note(error)
        outcome = Outcome(ending, box, patch, error, time.monotonic() - begun)
        self._finish(outcome)
        return outcome

    async def _export(self, ending: Ending) -> Patch | None:
        # SECURITY: nothing untrusted runs while its files are read; test_export_reads_a_workspace_at_rest
        with suppress(BoxLost):  # a box that is gone is as quiet as it gets
            await self.sandbox.kill_all()
        patch = await self.export(self.sandbox)
        if patch is not None:
            self.record.append(_patch_event(patch, complete=is_complete(ending.reason)))
        return patch

    def _note(self, error: CorralError) -> None:
        facts = ErrorFacts(
            kind="environment" if isinstance(error, SandboxError) else "unknown",
            code=error.code,
            message=error.message,
            suggestion=error.hint or "",
        )
        self.record.append(ErrorRaised(error=facts), durable=False)

    def _finish(self, outcome: Outcome) -> None:
        ending, patch = outcome.ending, outcome.patch
        self.record.append(
            RunFinished(
                stop_reason=ending.reason.value,
                exit_code=outcome.exit_code,
                summary=ending.summary,
                complete=is_complete(ending.reason),
                steps=ending.steps,
                tokens=ending.tokens,
                cost_usd=ending.cost_usd,
                duration_s=round(outcome.duration_s, 3),
                changed_files=len(patch.files) if patch else 0,
                patch=patch.sha256 if patch else "",
                dropped_events=self.record.dropped,
                box=_box_event(outcome.box) if outcome.box else None,
            )
        )


def describe_start(*, run_id: str, door: str, goal: str, workspace: str, **more: object) -> RunStarted:
    """The first event: who asks for what, where, with which version."""
    return RunStarted.model_validate(
        {
            "run_id": run_id,
            "door": door,
            "goal": goal,
            "actor": find_actor(os.environ),
            "host": socket.gethostname(),
            "version": version("corral"),
            "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
            "workspace": workspace,
            **more,
        }
    )


def _reason(error: CorralError) -> StopReason:
    if isinstance(error, BoxLost):
        return StopReason.BOX_LOST
    return StopReason.MODEL_UNAVAILABLE if isinstance(error, ModelError) else StopReason.ERROR


def _uncancel() -> None:
    # The cancellation is handled here: what follows may await again, and a second one counts.
    if (task := asyncio.current_task()) is not None:
        task.uncancel()


def _patch_event(patch: Patch, *, complete: bool) -> PatchMade:
    return PatchMade(
        sha256=patch.sha256,
        size=patch.size,
        files=tuple(
            ChangedFile(path=show_path(file.path), change=file.action.value, added=file.added, removed=file.removed)
            for file in patch.files
        ),
        file_count=len(patch.files),
        not_exported=tuple(f"{show_path(one.path)}: {one.reason.value}" for one in patch.not_exported),
        complete=complete,
        conflicts=tuple(show_path(one.path) for one in patch.not_exported if one.reason.value == "base_changed"),
    )


def _box_event(box: BoxInfo) -> Box:
    return Box(
        id=box.box_id,
        image=box.image,
        image_id=box.image_id,
        runtime=box.runtime,
        mode=box.mode.value,
        mode_reason=box.mode_reason,
        masked=tuple(visible(one.path) for one in box.masked),
        warnings=box.warnings,
    )
