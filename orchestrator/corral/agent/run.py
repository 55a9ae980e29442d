"""One run, whatever runs in it: a record, a box, a body, a patch, an end.

The order is the promise: the record is open before the box exists, the untrusted processes are gone before the changes
are read, the patch is on disk before the box is, and the end is written last. It holds for every way a body can end.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Protocol

from corral.agent.account import Account
from corral.agent.limit import Count, find_touched
from corral.agent.stop import EXEC_FAILED, EXIT_CODES, Spent, StopReason, is_complete
from corral.errors import BoxLost, ConfigError, CorralError, ModelError, SandboxError, SandboxProtocolError, ToolError
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
from corral.schema.patch import Patch
from corral.schema.path import show_path
from corral.schema.resources import RunResources
from corral.schema.visible import visible
from corral_protocol.message import Stats


class RunRecord(Protocol):
    """The record as a run writes it; corral.record.RecordLog is one."""

    @property
    def dropped(self) -> int: ...

    def append(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event: ...

    async def append_async(
        self, *payloads: Payload, source: Source | None = None, durable: bool = True
    ) -> tuple[Event, ...]: ...

    async def sync_async(self) -> None: ...

    def claim(self, payload: Payload) -> Event | None: ...


Export = Callable[[Sandbox], Awaitable[Patch | None]]
"""Reads the changes of a box whose untrusted processes are gone; writes the patch file; None when nothing changed."""


@dataclass(frozen=True)
class Ending:
    """How a body ended: what a run adds the patch to."""

    reason: StopReason
    exit_code: int | None = None  # of the command, for exec; None: the stop reason's
    summary: str = ""
    spent: Spent = field(default_factory=Spent)
    count: Count | None = None
    """What was counted at the limits of the box, by who ran a single command in it; None: the whole box's counts."""

    @property
    def steps(self) -> int:
        return self.spent.steps

    @property
    def cost_usd(self) -> float | None:
        return self.spent.cost_usd


Body = Callable[[Sandbox], Awaitable[Ending]]


@dataclass(frozen=True)
class Outcome:
    """A run that is over."""

    ending: Ending
    box: BoxInfo | None
    patch: Patch | None
    error: CorralError | None
    duration_s: float
    door: str = "run"
    limits_touched: tuple[str, ...] = ()
    """For people: `memory 4.0 GiB (2 killed)`."""
    resources: RunResources = field(default_factory=RunResources)
    """What it used."""

    @property
    def exit_code(self) -> int:
        """What corral exits with, and what the record says: 2 for the user's mistake; for exec 125 is corral's or the
        engine's failure, and every other code the command's."""
        if isinstance(self.error, ConfigError):
            return self.error.exit_code
        if self.error is not None and self.door == "exec":
            return EXEC_FAILED
        return EXIT_CODES[self.ending.reason] if self.ending.exit_code is None else self.ending.exit_code


@dataclass
class _Progress:
    """What is known of a run on its way to its end."""

    spent: Callable[[], Spent]
    ending: Ending | None = None
    box: BoxInfo | None = None
    patch: Patch | None = None
    error: CorralError | None = None
    stats: Stats | None = None
    """The box's last word about what it used."""

    def cancel(self, summary: str) -> None:
        self.ending = Ending(StopReason.CANCELLED, summary=summary, spent=self.spent())
        # The cancellation is handled by this: what follows may await again, and a second one counts.
        if (task := asyncio.current_task()) is not None:
            task.uncancel()

    def fail(self, error: CorralError) -> None:
        """The first failure is the one to tell."""
        self.error = self.error or error
        self.ending = Ending(_reason(self.error), summary=self.error.message, spent=self.spent())


async def _nothing() -> None:
    return


@dataclass
class Run:
    """The parts of one run; `execute` uses them once."""

    record: RunRecord
    sandbox: Sandbox
    export: Export
    started: RunStarted
    on_box: Callable[[BoxInfo], None] = lambda box: None
    before_end: Callable[[], Awaitable[None]] = _nothing
    """Awaited when the box is gone and the changes are read: then only the end is told."""
    account: Account = field(default_factory=Account)

    async def execute(
        self,
        body: Body,
        *,
        spent: Callable[[], Spent] = Spent,
        ahead: AbstractAsyncContextManager[None] | None = None,
    ) -> Outcome:
        """Run `body` in the box. Its failure, or the box's, is part of the outcome; only a record that cannot be
        written raises. A cancel ends what is going on, the body or the export, never the clean-up; it is part of the
        outcome too. `spent` tells what the body had used when something else than itself ends it. `ahead` is entered
        before the box is started: what can go on meanwhile.
        """
        self.record.append(self.started)
        progress = _Progress(spent)
        try:
            async with AsyncExitStack() as stack:
                await self._run_body(body, ahead or nullcontext(), stack, progress)
                if progress.box is not None:
                    await self._export(progress)
                    progress.box = self.sandbox.info  # it may have been replaced
        except asyncio.CancelledError:
            # While the box was going away: it is gone, and nothing else was lost.
            progress.cancel("cancelled by the user")
        except CorralError as failure:
            progress.fail(failure)
        await self._wind_up(progress)
        if progress.error is not None:
            self._note(progress.error)
        assert progress.ending is not None
        count = progress.ending.count or (Count.of_box(progress.stats) if progress.stats else Count())
        outcome = Outcome(
            progress.ending,
            progress.box,
            progress.patch,
            progress.error,
            self.account.wall_s,
            self.started.door,
            find_touched(count, progress.box.limits, progress.error) if progress.box else (),
            self.account.read(progress.stats),
        )
        self._finish(outcome)
        return outcome

    async def _wind_up(self, progress: _Progress) -> None:
        try:
            await self.before_end()
        except asyncio.CancelledError:
            progress.cancel("cancelled by the user")

    async def _run_body(
        self, body: Body, ahead: AbstractAsyncContextManager[None], stack: AsyncExitStack, progress: _Progress
    ) -> None:
        try:
            await stack.enter_async_context(ahead)
            await stack.enter_async_context(self.sandbox)
            progress.box = self.sandbox.info
            self.on_box(progress.box)
            progress.ending = await body(self.sandbox)
        except asyncio.CancelledError:
            progress.cancel("cancelled by the user")
        except CorralError as failure:
            progress.fail(failure)
        except Exception as fault:
            # Around a whole session: what it changed is kept and told, whatever went wrong.
            progress.fail(_wrap(fault))

    async def _export(self, progress: _Progress) -> None:
        try:
            # SECURITY: nothing untrusted runs while its files are read; test_export_reads_a_workspace_at_rest
            try:
                await self.sandbox.kill_all()
                progress.stats = await self._ask_stats()
            except (BoxLost, SandboxProtocolError):
                await self.sandbox.dispose()  # cannot be asked any more: gone is as quiet as it gets
            progress.patch = await self.export(self.sandbox)
            if progress.patch is not None:
                assert progress.ending is not None
                record_patch(self.record, progress.patch, complete=is_complete(progress.ending.reason))
        except asyncio.CancelledError:
            progress.cancel("cancelled while the changes were read")
        except CorralError as failure:
            progress.fail(failure)

    async def _ask_stats(self) -> Stats | None:
        try:
            return await self.sandbox.stats()
        except ToolError:  # what changed counts more than what it cost
            return None

    def _note(self, error: CorralError) -> None:
        if isinstance(error, ModelError):
            return  # noted with the request that failed
        facts = ErrorFacts(
            kind="environment" if isinstance(error, SandboxError) else "unknown",
            code=error.code,
            message=error.message,
            suggestion=error.hint or "",
        )
        self.record.append(ErrorRaised(error=facts, fatal=True), durable=False)

    def _finish(self, outcome: Outcome) -> None:
        ending, patch = outcome.ending, outcome.patch
        self.record.append(
            RunFinished(
                stop_reason=ending.reason.value,
                exit_code=outcome.exit_code,
                summary=ending.summary,
                complete=is_complete(ending.reason),
                steps=ending.spent.steps,
                tokens=ending.spent.tokens,
                cost_usd=ending.spent.cost_usd,
                duration_s=round(outcome.duration_s, 3),
                changed_files=len(patch.files) if patch else 0,
                patch=patch.sha256 if patch else "",
                dropped_events=self.record.dropped,
                box=_box_event(outcome.box) if outcome.box else None,
                limits_touched=outcome.limits_touched,
                resources=outcome.resources,
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


def _wrap(fault: Exception) -> CorralError:
    error = CorralError(
        f"a fault in corral: {type(fault).__name__}: {fault}", hint="this is a bug: report it", code="internal"
    )
    error.__cause__ = fault
    return error


def record_patch(record: RunRecord, patch: Patch, *, complete: bool) -> None:
    """Say in the record that these changes were exported."""
    record.append(_patch_event(patch, complete=complete))


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
        network=box.network,
        masked=tuple(visible(one.path) for one in box.masked),
        warnings=box.warnings,
        capabilities=box.capabilities,
    )
