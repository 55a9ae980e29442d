"""A box in the container engine: from a spec to a greeted, proven toolbox, and back to nothing.

start() reads as the list of its steps. Whatever fails or is cancelled in between, dispose() takes away what is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from corral.errors import BoxLost, SandboxError, SandboxProtocolError
from corral.sandbox.ability import HOST_KERNEL, describe_missing
from corral.sandbox.base import MAPPED, NO_VARIABLES, BoxInfo, ExecHandle, Hold, Sink
from corral.sandbox.box import Box, NoToolbox, finish
from corral.sandbox.channel import BoxOperations, Channel, keep_alive, run_call
from corral.sandbox.channel.port import dial, open_tunnel
from corral.sandbox.channel.tunnel import BoxStream, Serve
from corral.sandbox.channel.wire import Empty, warm_adapters
from corral.sandbox.container import HOSTS, build_command_env, build_config, fit_limits, load_seccomp_profile
from corral.sandbox.engine import Engine, run_in_thread
from corral.sandbox.foreign import FoundImage, fill_runtime, find_image, prepare_entry
from corral.sandbox.guard import Stillness, describe_breach
from corral.sandbox.halt import Halt
from corral.sandbox.janitor import Janitor, start_janitor
from corral.sandbox.labels import RUN, labels
from corral.sandbox.remap import Remap
from corral.sandbox.runtime import explain_failure, limit_start
from corral.sandbox.spec import MAX_STREAMS, Limits, SandboxSpec, WorkspaceMode
from corral.sandbox.workspace import (
    Bounds,
    Breach,
    CopyMeter,
    DiskWatch,
    FoundSecrets,
    Meter,
    PreparedWorkspace,
    UpperMeter,
    Usage,
    cover_secrets,
    find_secrets,
    prepare_workspace,
)
from corral.schema.visible import visible
from corral_protocol import PROTOCOL_VERSION, encode_name
from corral_protocol.message import (
    ExecResult,
    FileChanged,
    FileContent,
    FreezeReply,
    Hello,
    HelloReply,
    Method,
    Pong,
    TreeEntry,
    TreePut,
    TreePutReply,
)

_THAW_S = 5.0
T = TypeVar("T")


class DockerSandbox(BoxOperations):
    """corral.sandbox.base.Sandbox over a Docker engine."""

    def __init__(self, spec: SandboxSpec, *, engine: Engine | None = None) -> None:
        self._spec = spec
        self._mark = spec.run_id
        """What containers and volumes are marked with."""
        self._engine = engine or Engine()
        self._call = self._ask
        self._info: BoxInfo | None = None
        self._janitor: Janitor | None = None
        self._box: Box | None = None
        self._preparing: asyncio.Future[PreparedWorkspace] | None = None
        self._prepared: PreparedWorkspace | None = None
        self._remap: Remap | None = None
        self._searching: asyncio.Future[FoundSecrets] | None = None
        self._covering: asyncio.Future[None] | None = None
        self._warnings: tuple[str, ...] = ()
        self._after_start: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._wall: asyncio.TimerHandle | None = None
        self._disposing: asyncio.Task[None] | None = None
        self._sent = Usage(0, 0, is_partial=False)
        self._stillness = Stillness(
            lambda: run_call(self._channel, Method.FREEZE, None, FreezeReply),
            lambda: run_call(self._channel, Method.THAW, None, Empty, limit_s=_THAW_S),
        )

    @property
    def info(self) -> BoxInfo:
        if self._info is None:
            raise RuntimeError("the box has not been started")
        return self._info

    @property
    def prepared(self) -> PreparedWorkspace:
        """The workspace of the running box, for the export."""
        if self._prepared is None:
            raise RuntimeError("the box has not been started")
        return self._prepared

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.dispose()

    async def start(self) -> BoxInfo:
        if self._janitor is not None or self._disposing is not None:
            raise RuntimeError("a box is started once")
        started_at = time.monotonic()
        self._janitor = start_janitor()
        self._janitor.hold(self._spec.run_id)
        try:
            self._spec = replace(
                self._spec, limits=fit_limits(self._spec.limits, *await self._engine.count_resources())
            )
            image, hello = await self._open()
            self._watch_over(hello)
        except BaseException:
            await self.dispose()
            raise
        self._info = self._describe(image, hello, time.monotonic() - started_at)
        return self._info

    # Steps of the start

    async def _open(self) -> tuple[FoundImage, HelloReply]:
        image, prepared = await self._prepare()
        return image, await self._open_proven(image, prepared)

    async def _prepare(self, *, copy_reason: str | None = None) -> tuple[FoundImage, PreparedWorkspace]:
        """Image, workspace and its secret files, side by side."""
        spec = self._spec
        if copy_reason is None and spec.mode is WorkspaceMode.AUTO and spec.layer is None and not self._engine.is_local:
            # Asked for, the overlay is tried all the same: an engine of this machine may be reached so.
            copy_reason = f"the engine is reached at {self._engine.address.url!r}, and not by a socket of this machine"
        self._searching = run_in_thread(self._find_secrets, name="corral-secrets")
        self._preparing = self._start_preparing(copy_reason)
        image = await find_image(self._engine, self._spec.image)
        if image.facts.remap != self._remap:
            # Until the engine has answered it is taken for one that maps no ids, as nearly all are.
            self._remap = image.facts.remap
            await self._drop_preparing()
            self._preparing = self._start_preparing(copy_reason)
        self._prepared = await asyncio.shield(self._preparing)
        return image, self._prepared

    def _find_secrets(self) -> FoundSecrets:
        return find_secrets(self._spec)

    def _start_preparing(self, copy_reason: str | None) -> asyncio.Future[PreparedWorkspace]:
        spec, remap = self._spec, self._remap
        return run_in_thread(
            lambda: prepare_workspace(spec, force_copy_reason=copy_reason, is_covered=False, remap=remap),
            name="corral-workspace",
        )

    async def _open_proven(self, image: FoundImage, prepared: PreparedWorkspace) -> HelloReply:
        """A greeted box that provably shows the workspace: by overlay, else (if the spec allows) by a copy."""
        hello, reason = await self._open_overlay(image, prepared)
        if hello is None:
            if self._spec.mode is WorkspaceMode.OVERLAY:
                raise SandboxError(f"overlay mode is not possible: {reason}", hint="use copy mode")
            await self._close_box()
            image, prepared = await self._prepare(copy_reason=reason)
            hello = await self._open_box(image, prepared)
        # Not waited for: the box keeps its mount, and the unmount takes as long as a call.
        self._after_start = run_in_thread(prepared.after_start, name="corral-workspace")
        if prepared.mode is WorkspaceMode.COPY:
            await self._send_copy(prepared)
        return hello

    async def _open_overlay(self, image: FoundImage, prepared: PreparedWorkspace) -> tuple[HelloReply | None, str]:
        """The first attempt: the answer and "", or None and why the engine cannot show the workspace."""
        try:
            hello = await self._open_box(image, prepared)
        except SandboxError as error:
            if prepared.mode is not WorkspaceMode.OVERLAY or "mount" not in error.message:
                raise
            return None, f"the engine cannot mount it ({error.message})"
        mismatch = await run_in_thread(lambda: prepared.verify(hello), name="corral-workspace")
        return (hello, "") if mismatch is None else (None, mismatch)

    async def _open_box(self, image: FoundImage, prepared: PreparedWorkspace) -> HelloReply:
        await self._open_waiting(image, prepared)
        return await self._greet(image, prepared)

    async def _open_waiting(self, image: FoundImage, prepared: PreparedWorkspace) -> None:
        """A box whose toolbox waits to be greeted: nobody in it has looked at anything yet."""
        hosts, facts = prepared.share_file("hosts", HOSTS.encode()), image.facts
        uid, gid = prepared.uid, prepared.gid
        entry = await prepare_entry(self._engine, image, self._spec, uid=uid, gid=gid, share=prepared.share_file)
        config = build_config(
            replace(self._spec, image=facts.id),  # what was inspected is what runs
            mount=prepared.mount,
            marks=labels(self._mark, "box"),
            seccomp=load_seccomp_profile(self._spec.seccomp),
            image_env=facts.env,
            image_volumes=facts.volumes,
            hosts_file=hosts,
            entry=entry,
            can_limit_ipc=self._remap is None or self._remap.can_limit_ipc,
        )
        self._warnings = entry.warnings
        # SECURITY: secret files are masked while the container is made, and it waits for that before it starts
        # (test_workspace_docker.py::test_secret_files_are_placeholders).
        self._covering = asyncio.ensure_future(self._cover(prepared))
        try:
            await self._open_filled(image, config, before_start=self._covering)
        except SandboxError as error:
            raise explain_failure(error, self._spec.runtime) from error

    async def _greet(self, image: FoundImage, prepared: PreparedWorkspace) -> HelloReply:
        assert self._box is not None
        env = build_command_env(image.facts.env, self._spec.env)
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            uid=prepared.uid,
            gid=prepared.gid,
            workspace=encode_name(self._spec.mount_point.encode()),
            watch=self._spec.watch,
            env={encode_name(k.encode()): encode_name(v.encode("utf-8", "surrogateescape")) for k, v in env.items()},
        )
        return await self._box.greet(hello)

    async def _open_filled(
        self, image: FoundImage, config: Mapping[str, Any], *, before_start: asyncio.Future[None]
    ) -> None:
        """A box with a toolbox in it: the first of an image of others finds the runtime's volume empty."""
        assert self._janitor is not None
        limit_s = limit_start(self._spec.runtime)
        self._box = Box(self._engine, self._janitor, self._spec.observe)
        try:
            await self._box.open(config, before_start=before_start, limit_s=limit_s)
        except NoToolbox:
            if image.sandbox is None:
                raise
            await self._box.close()
            await fill_runtime(self._engine, image.sandbox.id, self._spec.run_id)
            self._box = Box(self._engine, self._janitor, self._spec.observe)
            await self._box.open(config, before_start=before_start, limit_s=limit_s)

    async def _cover(self, prepared: PreparedWorkspace) -> None:
        assert self._searching is not None
        found = await asyncio.shield(self._searching)
        await run_in_thread(lambda: cover_secrets(prepared, found), name="corral-workspace")

    async def _send_copy(self, prepared: PreparedWorkspace) -> None:
        limits = self._spec.limits
        params = TreePut(0, limits.workspace_bytes, limits.workspace_inodes)
        put = await self._ask(Method.TREE_PUT, params, TreePutReply, body=("stream", prepared.tar_stream()))
        self._sent = Usage(put.bytes, put.entries, is_partial=False)

    def _watch_over(self, hello: HelloReply) -> None:
        """What goes on for as long as the box lives."""
        loop, channel, limits = asyncio.get_running_loop(), self._channel, self._spec.limits
        is_ours = HOST_KERNEL in hello.capabilities
        if not is_ours and self._engine.is_local and self._box is not None:
            self._box.follow_refusals()
        self._tasks.append(loop.create_task(keep_alive(channel)))
        watch = self._watch_disk(limits, are_ours=is_ours)
        if watch is not None:
            self._tasks.append(loop.create_task(watch.run()))
        if limits.wall_s is not None:
            text = f"the box reached its time limit of {limits.wall_s:g} s"
            self._wall = loop.call_later(limits.wall_s, channel.end, BoxLost(text, cause="timeout"))
        warm_adapters(ExecResult, FileContent, FileChanged)

    def _watch_disk(self, limits: Limits, *, are_ours: bool) -> DiskWatch | None:
        """None where the kernel holds the limits. `are_ours`: the box's processes are this machine's own."""
        prepared = self.prepared
        if prepared.has_kernel_limits:
            return None
        bounds = Bounds(limits.workspace_bytes, limits.workspace_inodes, limits.min_free_bytes)
        if self._engine.is_local and are_ours and self._box is not None:
            self._stillness.halt = Halt.find(self._box.id, prepared.host_uid)
        if prepared.upper is not None:
            meter: Meter = UpperMeter(
                prepared.upper,
                bounds.max_bytes,
                bounds.max_inodes,
                uid=prepared.host_uid,
                mount_point=self._spec.mount_point,
            )
        else:
            meter = CopyMeter(lambda: run_call(self._channel, Method.PING, None, Pong), self._scan_sizes, self._sent)
        return DiskWatch(meter, bounds, self._on_breach, self._stillness.moment)

    def _scan_sizes(self) -> AsyncIterator[TreeEntry]:
        return self.scan_tree(hash_files=False)

    def _on_breach(self, breach: Breach) -> None:
        if self._stillness.halt is not None:
            self._stillness.halt.kill()  # the engine takes longer than a write of a gigabyte
        self._channel.end(describe_breach(breach))

    def _describe(self, image: FoundImage, hello: HelloReply, start_s: float) -> BoxInfo:
        spec, prepared, box = self._spec, self.prepared, self._box
        assert box is not None
        facts = {"toolbox": hello.version, "python": hello.python, "cgroup": hello.cgroup, "shell": hello.has_shell}
        if self._remap is not None:
            facts[MAPPED] = str(self._remap.first_uid)
        return BoxInfo(
            box_id=box.id,
            run_id=spec.run_id,
            image=spec.image,
            image_id=image.facts.id,
            runtime=spec.runtime,
            mode=prepared.mode,
            mode_reason=prepared.mode_reason,
            mount_point=spec.mount_point,
            uid=prepared.uid,
            gid=prepared.gid,
            network=spec.network,
            masked=prepared.masked,
            warnings=(
                *(*spec.notes, *self._engine.address.warnings, *prepared.warnings, *self._warnings),
                *describe_missing(hello.capabilities, is_watched=spec.watch),
                *(self._remap.warnings if self._remap else ()),
            ),
            capabilities=tuple(sorted(visible(name, limit=100) for name in hello.capabilities)),
            start_s=start_s,
            limits=spec.limits,
            facts={name: visible(text, limit=100) for name, text in facts.items()},
            lacks=tuple(name for name in ("shell", "git", "rg") if name not in hello.capabilities),
        )

    # Calls

    @property
    def _channel(self) -> Channel:
        if self._box is None or self._box.channel is None:
            raise RuntimeError("the box has not been started")
        return self._box.channel

    async def _ask(
        self,
        method: Method,
        params: object,
        kind: type[T],
        *,
        sinks: Mapping[str, Sink] | None = None,
        body: tuple[str, AsyncIterator[bytes]] | None = None,
        limit_s: float | None = None,
        hold: Hold | None = None,
        handle: ExecHandle | None = None,
    ) -> T:
        await self._stillness.admit(method)
        return await run_call(
            self._channel, method, params, kind, sinks=sinks, body=body, limit_s=limit_s, hold=hold, handle=handle
        )

    async def open_tunnel(
        self, serve: Serve, *, variables: Mapping[str, str] = NO_VARIABLES, max_streams: int = MAX_STREAMS
    ) -> None:
        self._variables = await open_tunnel(self._channel, serve, max_streams) | dict(variables)

    async def dial(self, port: int) -> BoxStream:
        return await dial(self._channel, port)

    def _end_box(self, error: SandboxProtocolError) -> None:
        self._channel.end(error)

    # The end

    async def dispose(self) -> None:
        if self._disposing is None:
            self._disposing = asyncio.ensure_future(self._dispose())
        await finish(self._disposing)

    async def _dispose(self) -> None:
        if self._wall is not None:
            self._wall.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close_box()
        if self._janitor is not None:
            self._janitor.forget(self._spec.run_id)

    async def _close_box(self) -> None:
        """Take away the container, its volume, and what the workspace needed outside. Errors of the engine are
        left to the janitor and to gc: the caller can do nothing about them."""
        box = self._box
        if box is not None:
            try:
                await box.close()
                await self._engine.remove_volumes(f"{RUN}={self._mark}")
            except SandboxError:
                pass
        # discard() makes good for a failure
        for pending in (self._searching, self._covering, self._after_start):
            if pending is not None:
                await asyncio.gather(pending, return_exceptions=True)
        await self._drop_preparing()

    async def _drop_preparing(self) -> None:
        if self._preparing is None:
            return
        preparing = self._preparing
        await asyncio.wait((preparing,))
        self._preparing = None  # not before: who is cancelled here leaves it to dispose()
        if not preparing.cancelled() and preparing.exception() is None:
            await run_in_thread(preparing.result().discard, name="corral-workspace")
