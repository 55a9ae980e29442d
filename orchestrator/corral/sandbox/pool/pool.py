"""A few boxes ahead of whoever wants one. Each is handed out once, and only when it is alive and shows what it should;
for what it cannot give, the pool starts a box as ever.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corral.errors import ConfigError, CorralError, SandboxError
from corral.sandbox.base import Sandbox
from corral.sandbox.engine import Engine, run_in_thread
from corral.sandbox.janitor import start_janitor
from corral.sandbox.labels import labels
from corral.sandbox.lasting import OneBox
from corral.sandbox.pool.ahead import AheadSandbox, Unfit
from corral.sandbox.pool.kept import KeptSandbox
from corral.sandbox.pool.late import LateSandbox
from corral.sandbox.pool.pooled import PooledSandbox
from corral.sandbox.pool.yard import Yard
from corral.sandbox.scratch import make_scratch
from corral.sandbox.spec import RUNC, SandboxSpec, WorkspaceMode
from corral.sandbox.workspace import SearchMemo, find_secrets

MAX_SIZE = 64
CHECK_S = 15.0
"""A quarter of the lease of a toolbox that waits for its greeting."""
_AT_ONCE = 2
"""Boxes in the making: more only wait for one another in the engine."""
_QUIET_S = 0.25
"""Who takes several in a row is not to wait for the making of those after them."""
_BACKOFF_S = (1.0, 2.0, 5.0, 15.0, 60.0)


@dataclass(frozen=True)
class PoolPlan:
    """What a pool makes."""

    spec: SandboxSpec
    """Of every box but for its run; the workspace counts only where `is_for_one`."""
    directory: Path
    """On the disk of the runs: what is kept ready lies here until it has a run."""
    remove_tree: Callable[[Path], None]
    make_cold: Callable[[SandboxSpec], Sandbox]
    is_for_one: bool
    """Whether all boxes are for the workspace of `spec`."""
    may_be_late: bool = True
    """Whether mounting late is tried at all."""
    size: int = 4
    max_age_s: float = 600.0


class Pool:
    """Use as `async with`, or start() and close()."""

    def __init__(self, plan: PoolPlan, *, engine: Engine | None = None) -> None:
        if not 1 <= plan.size <= MAX_SIZE:
            raise ConfigError(f"a pool of {plan.size} boxes", hint=f"from 1 to {MAX_SIZE}")
        self._plan = plan
        self._engine = engine or Engine()
        self._memo = SearchMemo()
        self._yard: Yard | None = None
        self._scratch: Any = None
        self._is_late = False
        self._reason = ""
        self._ready: list[AheadSandbox] = []
        self._out: set[AheadSandbox] = set()
        self._making: set[asyncio.Task[None]] = set()
        self._clearing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._is_closed = False
        self._taken_at = 0.0
        self._checked_at = 0.0
        self._failures = 0
        self._failed_at = 0.0
        self.problem = ""
        """Why the last attempt to make a box, or to hand one out, failed; "" when it did not."""

    # What is known about it

    @property
    def ready(self) -> int:
        """Boxes that wait."""
        return len(self._ready)

    @property
    def kind(self) -> str:
        """`late`: boxes for any workspace, mounted when handed out. `kept`: for one workspace."""
        return LateSandbox.kind if self._is_late else KeptSandbox.kind

    @property
    def reason(self) -> str:
        """Why it is not `late`; "" when it is."""
        return self._reason

    async def wait_filled(self) -> None:
        """Until it is full. Raises SandboxError when a box could not be made."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or self._failures or self.ready >= self._plan.size)
        if self._failures:
            raise SandboxError(f"the pool cannot be filled: {self.problem}")

    # Life

    async def start(self) -> None:
        """Raises ConfigError when no workspace is named, and it takes one."""
        start_janitor()
        await self._choose_kind()
        if not self._is_late:
            if not self._plan.is_for_one:
                raise ConfigError(
                    f"a pool for any workspace is not possible: {self._reason}", hint="name the workspace"
                )
            self._plan.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._scratch = make_scratch("pool", str(self._plan.directory))
            start_janitor().hold_directory(self._scratch.name)
        self._keeper = asyncio.ensure_future(self._keep())

    async def close(self) -> None:
        """Remove what waits. Boxes that are out live on, and go when they are disposed of. Idempotent."""
        self._is_closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
        for task in self._making:
            task.cancel()
        if self._making:
            await asyncio.wait(self._making)
        while self._ready:
            self._clear(self._ready.pop())
        while self._clearing:
            await asyncio.wait(self._clearing)
        await self._leave()
        async with self._changed:
            self._changed.notify_all()

    async def __aenter__(self) -> Pool:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def make(self, spec: SandboxSpec) -> Sandbox:
        """The box for a run: one that waits, if there is one that fits when it is started, else a new one."""
        return PooledSandbox(spec, self)

    # For PooledSandbox

    async def obtain(self, spec: SandboxSpec) -> OneBox:
        """A started box. Raises what a start raises."""
        while (box := self._take(spec)) is not None:
            self._out.add(box)
            box.adopt(spec)
            try:
                await box.start()
            except Unfit as unfit:  # this workspace is the reason: the next one would not do either
                self._out.discard(box)
                self.problem = unfit.message
                break
            except SandboxError as failure:
                self._out.discard(box)
                self.problem = failure.message
                continue
            except BaseException:
                self._out.discard(box)
                raise
            return box
        cold = self._plan.make_cold(spec)
        await cold.start()
        return cold  # type: ignore[return-value]

    async def dispose(self, box: OneBox) -> None:
        """The end of a box that obtain() gave. Nobody waits for the removal of one whose mount is ours: it is out of
        reach at once, and close() waits for all."""
        if not isinstance(box, LateSandbox) or self._is_closed:
            await box.dispose()
            self._out.discard(box)
            if self._is_closed:
                await self._leave()
            return
        box.cut_off()
        self._clear(box)

    # Keeping it full

    async def _choose_kind(self) -> None:
        spec = self._plan.spec
        self._reason = self._find_obstacle(spec)
        if self._reason:
            return
        try:
            self._yard = await run_in_thread(lambda: Yard.create(labels(_make_id(), "pool")), name="corral-workspace")
        except OSError as error:
            self._reason = f"this process cannot mount: {error.strerror}"
            return
        # One is made now: whether the engine can do it is known only then.
        box = self._make_box(is_late=True)
        try:
            await box.warm()
        except SandboxError as failure:
            self._reason = failure.message
            await self._drop_yard()
            return
        self._is_late = True
        self._ready.append(box)
        self._watch(box)
        if self._plan.is_for_one:
            await run_in_thread(lambda: find_secrets(spec, self._memo), name="corral-secrets")

    def _find_obstacle(self, spec: SandboxSpec) -> str:
        if not self._plan.may_be_late:
            return "nobody asked for it"
        if os.geteuid() != 0:
            return "only root can mount a workspace late"
        if not self._engine.is_local:
            return "the engine is not on this machine"
        if spec.runtime != RUNC:
            return f"the runtime {spec.runtime!r} does not see what is mounted later"
        return "copy mode is asked for" if spec.mode is WorkspaceMode.COPY else ""

    async def _keep(self) -> None:
        while True:
            self._drop_old()
            if time.monotonic() - self._checked_at >= CHECK_S:
                self._checked_at = time.monotonic()
                self._run(self._clearing, self._check_all())
            while self._may_make():
                self._run(self._making, self._make_one())
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()

    def _may_make(self) -> bool:
        now = time.monotonic()
        if len(self._making) >= _AT_ONCE or len(self._ready) + len(self._making) >= self._plan.size:
            return False
        if self._ready and now - self._taken_at < _QUIET_S:
            return False
        return not self._failures or now - self._failed_at >= self._backoff_s

    @property
    def _backoff_s(self) -> float:
        return _BACKOFF_S[min(self._failures, len(_BACKOFF_S)) - 1]

    def _pause_s(self) -> float:
        now = time.monotonic()
        waits = [CHECK_S - (now - self._checked_at)]
        waits += [self._plan.max_age_s - (now - box.warmed_at) for box in self._ready]
        if len(self._ready) + len(self._making) < self._plan.size:
            waits.append(_QUIET_S - (now - self._taken_at))
            waits += [self._backoff_s - (now - self._failed_at)] if self._failures else []
            waits = [wait for wait in waits if wait > 0] or [CHECK_S]
        return max(min(waits), 0.01)

    async def _make_one(self) -> None:
        box = self._make_box(is_late=self._is_late)
        try:
            await box.warm()
        except CorralError as failure:
            self._failures += 1
            self._failed_at = time.monotonic()
            self.problem = failure.message
        else:
            self._failures = 0
            if self._is_closed:
                self._clear(box)
            else:
                self._ready.append(box)
                self._watch(box)
        finally:
            self._wake.set()
            async with self._changed:
                self._changed.notify_all()

    def _make_box(self, *, is_late: bool) -> AheadSandbox:
        name = _make_id()
        spec = replace(self._plan.spec, run_id=name, observe=None)
        if is_late:
            assert self._yard is not None
            return LateSandbox(spec, self._yard, engine=self._engine, memo=self._memo)
        spec = replace(spec, run_dir=Path(self._scratch.name) / name)
        return KeptSandbox(spec, engine=self._engine, memo=self._memo, remove_tree=self._plan.remove_tree)

    def _watch(self, box: AheadSandbox) -> None:
        """One that dies while it waits is replaced."""
        box.ended.add_done_callback(lambda _: self._drop(box))

    def _take(self, spec: SandboxSpec) -> AheadSandbox | None:
        self._drop_old()
        if self._is_closed or not self._fits(spec):
            return None
        self._taken_at = time.monotonic()
        self._wake.set()
        while self._ready:
            box = self._ready.pop(0)
            if box.is_there:
                return box
            self._clear(box)
        return None

    def _fits(self, spec: SandboxSpec) -> bool:
        if self._is_late and spec.mode is WorkspaceMode.COPY:
            return False
        wanted, made = (_shape(one, is_for_one=not self._is_late) for one in (spec, self._plan.spec))
        return wanted == made

    def _drop_old(self) -> None:
        limit = time.monotonic() - self._plan.max_age_s
        for box in [box for box in self._ready if box.warmed_at < limit]:
            self._drop(box)

    def _drop(self, box: AheadSandbox) -> None:
        if box in self._ready:
            self._ready.remove(box)
            self._clear(box)
            self._wake.set()

    async def _check_all(self) -> None:
        boxes = list(self._ready)
        for box, is_well in zip(boxes, await asyncio.gather(*(box.is_well() for box in boxes)), strict=True):
            if not is_well:
                self._drop(box)

    # Taking away

    def _clear(self, box: AheadSandbox) -> None:
        self._run(self._clearing, self._dispose_of(box))

    async def _dispose_of(self, box: AheadSandbox) -> None:
        await box.dispose()
        self._out.discard(box)
        if self._is_closed:
            await self._leave()

    def _run(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _leave(self) -> None:
        """The places go with the last box in them."""
        if any(isinstance(box, LateSandbox) for box in self._out):
            return
        await self._drop_yard()
        if self._scratch is not None:
            scratch, self._scratch = self._scratch, None
            await run_in_thread(scratch.cleanup, name="corral-workspace")
            start_janitor().forget_directory(scratch.name)

    async def _drop_yard(self) -> None:
        if self._yard is not None:
            yard, self._yard = self._yard, None
            await run_in_thread(yard.remove, name="corral-workspace")


def _make_id() -> str:
    return f"pool-{secrets.token_hex(6)}"


def _shape(spec: SandboxSpec, *, is_for_one: bool) -> SandboxSpec:
    """What a box is made with, and cannot be changed in one that waits. The rest is said when it is greeted."""
    shape = replace(
        spec,
        run_dir=Path(),
        run_id="",
        env={},
        notes=(),
        network="none",
        watch=True,
        observe=None,
        force=False,
        limits=replace(spec.limits, wall_s=None),
    )
    if is_for_one:
        return shape
    return replace(shape, workspace=Path(), mode=WorkspaceMode.AUTO, layer=None, mask=None)
