"""`corral.Sandbox`: a box for somebody else's loop. Every call is judged by policy and written into the record."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from corral import app
from corral.agent.run import Ending, record_patch
from corral.agent.stop import StopReason
from corral.agent.watch import Watch
from corral.api.calls import BoxCalls
from corral.api.network import build_network
from corral.api.pool import Pool
from corral.api.tool import Desk, Work, build_registry_tools, build_specs
from corral.app import MakeSandbox, OpenBox, SandboxOutcome, SandboxRequest
from corral.errors import BoxLost, ConfigError
from corral.sandbox.base import BoxInfo
from corral.sandbox.lasting import make_lasting
from corral.schema.patch import Patch
from corral.schema.policy import Approver
from corral.schema.resources import RunResources
from corral.schema.text import digest
from corral.schema.tools import ToolCall, ToolResult, ToolStatus
from corral.tools.base import Arguments, ToolContext
from corral.tools.executor import ToolExecutor
from corral.tools.jobs import JobBook
from corral.tools.outputs import OutputStore
from corral.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from corral.app.network import BoxNetwork

EMPTY = Patch(sha256=digest(b""), size=0)


class Sandbox(BoxCalls):
    """A disposable box on a copy-on-write view of a workspace. Use it once, as `async with`.

    The original is never written. Calls may run at the same time. A call raises ToolError when it failed, was denied
    (code `policy_denied`, `approval_denied`) or its arguments are wrong, and BoxLost or another SandboxError when the
    box is gone; a command that fails is a result. On leaving, the processes end, the changes are exported
    (`patch`, `patch_file`), the record is closed and the box is removed.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str] = ".",
        *,
        image: str | None = None,
        layer: str | None = None,
        mode: str | None = None,
        preset: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        include_ignored: bool = False,
        force: bool = False,
        goal: str = "",
        network: str | Sequence[str] | None = None,
        allow: Sequence[str] = (),
        secrets: Sequence[str] = (),
        forward: Mapping[int, int] | Sequence[int] = (),
        approver: Approver | None = None,
        on_event: Watch | None = None,
        pool: Pool | None = None,
        make_sandbox: MakeSandbox = make_lasting,
    ) -> None:
        """Nothing is started yet.

        `workspace` may be `image:PATH`, a directory of the image; `layer` is a set-up layer to start from.
        `image`, `mode` (auto, overlay, copy) and `preset` (auto, never, plan, ...) default to the user's settings.
        `env` is given to every command. `timeout_s` is what a command may take that names no time of its own; default
        is the setting `timeouts.shell_s`, 120. `approver` is asked where policy says so; without one the answer is no.
        `network` names shipped lists of hosts the box may reach (`"python"`, `["python", "git"]`; `"none"`: no host
        until `network.allow`), `allow` adds hosts (`"example.org:443"`), `secrets` names those of the settings that are
        put into requests. `forward` brings ports of the box to the host's loopback: `[8000]`, or
        `{8000: 9000}`.
        `on_event` is called with each event of the record after it is written; an error it raises is raised on leaving.
        `pool` gives a box that is ready, where one fits. `make_sandbox` is for tests.
        """
        self._request = SandboxRequest(
            workspace=Path(os.fsdecode(workspace)),
            image=image,
            layer=layer,
            mode=mode,
            preset=preset,
            include_ignored=include_ignored,
            force=force,
            goal=goal,
            network=build_network(network, allow, secrets, forward),
        )
        self._env = dict(env or {})
        self._timeout_s = timeout_s
        self._approver = approver
        self._watch = on_event
        self._make_sandbox = make_sandbox if pool is None else pool.make
        self._desk = Desk()
        self._jobs = JobBook()
        self._count = 0
        self._still = asyncio.Lock()  # whoever thaws the box must not thaw it for another
        self._opened: OpenBox | None = None
        self._executor: ToolExecutor | None = None
        self._task: asyncio.Task[SandboxOutcome] | None = None
        self._ended: asyncio.Future[Ending] | None = None
        self._outcome: SandboxOutcome | None = None

    # Lifecycle

    async def __aenter__(self) -> Self:
        """Start the box. Raises ConfigError, SandboxError, RecordError."""
        if self._task is not None:
            raise RuntimeError("a Sandbox is used once")
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        ready: asyncio.Future[None] = loop.create_future()

        async def body(opened: OpenBox) -> Ending:
            assert self._ended is not None
            self._open(opened)
            ready.set_result(None)
            return await self._ended

        # The run is a task of its own: it ends in order, and writes so, whatever happens to the task that uses the box.
        self._task = loop.create_task(
            app.use_box(
                self._request,
                body,
                approver=self._approver,
                watch=self._watch,
                env=self._env,
                make_sandbox=self._make_sandbox,
            )
        )
        try:
            await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await self._finish()
            raise
        if not ready.done():
            outcome = await self._finish()
            raise outcome.outcome.error or RuntimeError("the box did not start")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the box. Raises PatchError or SandboxError when the changes could not be read, RecordError."""
        assert self._ended is not None
        if not self._ended.done():
            self._ended.set_result(_describe_end(error))
        outcome = await self._finish()
        if error is None and outcome.outcome.error is not None:
            raise outcome.outcome.error
        if error is None and outcome.watch_error is not None:
            raise outcome.watch_error

    async def _finish(self) -> SandboxOutcome:
        """The run's end. Waits for it also when we are cancelled: a second cancel ends the export, never the rest."""
        assert self._task is not None
        cancelled: asyncio.CancelledError | None = None
        while not self._task.done():
            try:
                await asyncio.wait((self._task,))
            except asyncio.CancelledError as error:
                cancelled = error
                self._task.cancel()
        self._outcome = self._task.result()
        if cancelled is not None:
            raise cancelled
        return self._outcome

    def _open(self, opened: OpenBox) -> None:
        parts = opened.parts
        timeouts = app.build_timeouts(parts.settings)
        self._timeout_s = self._timeout_s or timeouts.shell_s
        self._jobs.env.update(self._env)
        self._specs = build_specs(timeouts, self._jobs)
        registry = ToolRegistry(build_registry_tools(self._desk, self._specs))
        session = opened.policy.session
        self._executor = ToolExecutor(
            registry.select(permission=session.permission, mode=session.mode),
            decider=opened.policy,
            recorder=parts.record,
            sandbox=parts.sandbox,
            outputs=OutputStore(parts.run_dir.outputs),
            approver=opened.approver,
            redactor=parts.redactor,
        )
        self._opened = opened

    # What is known about it

    @property
    def run_id(self) -> str:
        """The run's id, as `corral log`, `corral runs` and `corral apply` take it."""
        return self._open_box.parts.run_dir.run_id

    @property
    def record_path(self) -> Path:
        """The record of the run, a file on the host."""
        return self._open_box.parts.run_dir.record

    @property
    def info(self) -> BoxInfo:
        """The box as it was started."""
        return self._open_box.parts.sandbox.info

    @property
    def patch(self) -> Patch:
        """Everything that changed; known after leaving."""
        return self._done.outcome.patch or EMPTY

    @property
    def patch_file(self) -> Path | None:
        """Where the patch is kept, None when nothing changed; known after leaving."""
        return self._done.patch_file

    @property
    def _open_box(self) -> OpenBox:
        if self._opened is None:
            raise RuntimeError("the box has not been started: use `async with`")
        return self._opened

    @property
    def _done(self) -> SandboxOutcome:
        if self._outcome is None:
            raise RuntimeError("the box is still there: the patch is made on leaving; export() makes one now")
        return self._outcome

    @property
    def network(self) -> BoxNetwork:
        """What the box may reach: `allow`, `revoke`, `use`, `forward`, at any time.

        Raises ConfigError for a box that was started without."""
        network = self._open_box.network
        if network is None:
            raise ConfigError("this box has no network", hint='Sandbox(network="none") starts one with nothing allowed')
        return network

    async def resources(self) -> RunResources:
        """What the run has used so far, or in all when the box is gone: time, processor seconds, memory, processes,
        bytes written and passed through the network. A command's own are in its `CommandResult`.

        Raises SandboxError when the box is lost.
        """
        if self._outcome is not None:
            return self._outcome.outcome.resources
        self._require_open()
        return self._open_box.account.read(await self._open_box.parts.sandbox.stats())

    # Changes

    async def diff(self) -> str:
        """Every change so far as a patch text, cut to 1 MiB. The box stands still meanwhile."""

        async def work(arguments: Arguments, context: ToolContext) -> tuple[str, ToolResult]:
            async with self._still:
                patch = await self._open_box.exporter.preview(context.sandbox)
            return patch, ToolResult(
                success=True, status=ToolStatus.OK, output=patch, summary=f"{len(patch)} characters"
            )

        patch: str = await self._call("diff", {}, work)
        return patch

    async def export(self, path: str | os.PathLike[str] | None = None) -> Patch:
        """Every change so far as a patch, written to `path` on the host if one is given; an empty one when nothing
        changed. The box stands still meanwhile.

        Raises PatchError, SandboxError, and ConfigError when `path` cannot be written.
        """
        opened = self._open_box
        self._require_open()
        box = opened.parts.sandbox
        async with self._still:
            await box.freeze()
            try:
                patch = await opened.exporter.export(box)
            finally:
                await box.thaw()
        if patch is not None:
            record_patch(opened.parts.record, patch, complete=True)
        if path is not None:
            _copy_patch(opened.parts.run_dir.patch if patch and patch.files else None, Path(os.fsdecode(path)))
        return patch or EMPTY

    # The one way a call is made

    async def _call(self, name: str, arguments: dict[str, Any], work: Work) -> Any:
        executor = self._require_open()
        self._count += 1
        given = {key: value for key, value in arguments.items() if value is not None}
        call = ToolCall(id=f"c{self._count}", name=name, arguments=given)
        return await self._desk.call(executor, call, work, self._count)

    def _require_open(self) -> ToolExecutor:
        if self._executor is None:
            raise RuntimeError("the box has not been started: use `async with`")
        if self._ended is None or self._ended.done():
            raise RuntimeError("the box is gone: a Sandbox is used inside its `async with`")
        return self._executor


def _describe_end(error: BaseException | None) -> Ending:
    if error is None:
        return Ending(StopReason.FINISHED)
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return Ending(StopReason.CANCELLED, summary="cancelled by the program")
    reason = StopReason.BOX_LOST if isinstance(error, BoxLost) else StopReason.ERROR
    return Ending(reason, summary=f"the program raised {type(error).__name__}: {error}")


def _copy_patch(kept: Path | None, target: Path) -> None:
    try:
        if kept is None:
            target.write_bytes(b"")
        else:
            shutil.copyfile(kept, target)
    except OSError as error:
        raise ConfigError(f"cannot write the patch to {str(target)!r}: {error.strerror}") from None
