"""One container with its channel: made, attached before it starts, greeted, and removed whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from typing import Any

from corral.errors import BoxLost, EngineTimeout, ImageError, SandboxError, SandboxProtocolError, ToolError
from corral.sandbox.base import Observe
from corral.sandbox.channel import Channel, open_channel, run_call
from corral.sandbox.container import choose_name
from corral.sandbox.engine import CHANGE_S, Engine, NameTaken
from corral.sandbox.janitor import Janitor
from corral.sandbox.watch import BoxWatch
from corral_protocol import PROTOCOL_VERSION
from corral_protocol.error import ErrorCode
from corral_protocol.message import Hello, HelloReply, Method, Pong, ProcessEvents

HELLO_LIMIT_S = 30.0
_NAME_TRIES = 3
_HUNG_S = 2.0
"""For the removal of what hangs in its start: the engine does nothing more for it, and gc takes it away later."""
_BUILD_HINT = "build it with: corral image build"
_MISSING = ("exec", "no such file")  # as runc says it, and gVisor


class NoToolbox(ImageError):
    """The program that starts the toolbox is not there."""


class Box:
    """Opened once, closed once. close() is right at any moment, also in the middle of open()."""

    def __init__(self, engine: Engine, janitor: Janitor, observe: Observe | None = None) -> None:
        self.id = ""
        self.name = ""
        self.channel: Channel | None = None
        self.observe = observe
        """Who hears what the box's processes do; may change until the first command."""
        self._engine = engine
        self._janitor = janitor
        self._watch: BoxWatch | None = None
        self._creating: asyncio.Task[str] | None = None
        self._removal_s = CHANGE_S
        self._closing: asyncio.Task[None] | None = None
        self._is_asking = False

    async def open(
        self, config: Mapping[str, Any], *, before_start: Awaitable[None] | None = None, limit_s: float = CHANGE_S
    ) -> Channel:
        """Create, attach, start; the start waits for `before_start`. Raises SandboxError, ImageError, and what that
        raises."""
        for attempt in range(_NAME_TRIES):
            try:
                await self._create(config)
                break
            except NameTaken:
                if attempt == _NAME_TRIES - 1:
                    raise
        sock = await self._engine.attach(self.id)
        self.channel = await open_channel(sock, self._diagnose, self._note)
        # A box that broke a rule, or died, is removed at once, not when somebody comes to dispose of it.
        self.channel.ended.add_done_callback(lambda _: self._start_closing())
        if before_start is not None:
            await before_start
        try:
            await self._engine.start_container(self.id, limit_s)
        except EngineTimeout:
            self._removal_s = _HUNG_S
            raise
        except SandboxError as error:
            program = config["Entrypoint"][0]
            if program in error.message and any(words in error.message for words in _MISSING):
                raise NoToolbox(f"the image cannot host the toolbox: no {program}", hint=_BUILD_HINT) from error
            raise
        if self._engine.is_local and self._watch is not None:
            self._watch.shortage.follow(self.id)
        return self.channel

    async def _create(self, config: Mapping[str, Any]) -> None:
        self.name = choose_name()
        self._janitor.expect(self.name)
        self._watch = BoxWatch(self._engine, self.name, self._check_survival)
        self._watch.start()
        # Shielded: a request that is on its way makes the container, whether somebody waits or not.
        self._creating = asyncio.ensure_future(self._engine.create_container(config, self.name))
        try:
            self.id = await asyncio.shield(self._creating)
        except NameTaken:
            self._watch.stop()
            self._janitor.forget(self.name)
            raise
        self._janitor.confirm(self.name)
        await self._watch.subscribed

    def _note(self, call: str, told: ProcessEvents) -> None:
        if self.observe is not None:
            self.observe(call, told)

    def _check_survival(self) -> None:
        if self.channel is not None and not self.channel.is_ending and not self._is_asking:
            self.channel.spawn(self._ask_survivor(self.channel))

    async def _ask_survivor(self, channel: Channel) -> None:
        """One question at a time, however often the kernel strikes."""
        assert self._watch is not None
        shortage, asked = self._watch.shortage, -1
        self._is_asking = True
        try:
            with contextlib.suppress(SandboxError, ToolError):
                while asked != shortage.number:
                    asked, count = shortage.number, shortage.count()
                    await run_call(channel, Method.PING, None, Pong, limit_s=HELLO_LIMIT_S)
                    shortage.outlived(asked, count)
        finally:
            self._is_asking = False

    async def ask_ungreeted(self, limit_s: float) -> None:
        """Whether a toolbox that waits for its greeting is there: the refusal is the proof, and renews its lease.

        Raises SandboxError when it is gone, ToolError when it does not answer in time."""
        assert self.channel is not None
        try:
            await run_call(self.channel, Method.PING, None, Pong, limit_s=limit_s)
        except ToolError as refusal:
            if refusal.code == ErrorCode.TIMEOUT:
                raise

    async def greet(self, hello: Hello) -> HelloReply:
        """The handshake. Raises ImageError when the image's toolbox is missing, broken or of another version."""
        assert self.channel is not None
        try:
            reply = await run_call(self.channel, Method.HELLO, hello, HelloReply, limit_s=HELLO_LIMIT_S)
        except ToolError as error:
            raise ImageError(f"the image's toolbox refuses us: {error.message}", hint=_BUILD_HINT) from None
        except BoxLost as error:
            if error.cause != "box_lost":
                raise
            raise ImageError("the image cannot host the toolbox", hint=error.hint or _BUILD_HINT) from error
        except SandboxProtocolError as error:
            raise ImageError(f"the image's toolbox is none of ours: {error.message}", hint=_BUILD_HINT) from error
        if reply.protocol != PROTOCOL_VERSION:
            raise ImageError(
                f"the image's toolbox speaks protocol {reply.protocol}, not {PROTOCOL_VERSION}", hint=_BUILD_HINT
            )
        return reply

    def follow_refusals(self) -> None:
        """Of processes: the box's kernel is its own, and ends of one."""
        if self._watch is not None:
            self._watch.follow_refusals(self.id)

    async def close(self) -> None:
        """End the channel, then remove the container with its volume. Raises SandboxError when the engine will not."""
        await finish(self._start_closing())

    def _start_closing(self) -> asyncio.Task[None]:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
            self._closing.add_done_callback(lambda task: None if task.cancelled() else task.exception() and None)
        return self._closing

    async def _close(self) -> None:
        # The socket first: an attached stream that nobody reads makes kill, inspect and rm hang.
        if self.channel is not None:
            self.channel.end(BoxLost("the box has been disposed of"))
            await self.channel.ended
        try:
            if self._creating is not None and await self._was_created(self._creating):
                await self._engine.remove_container(self.name, self._removal_s)
            self._janitor.forget(self.name)
        finally:
            if self._watch is not None:
                self._watch.stop()

    async def _was_created(self, creating: asyncio.Task[str]) -> bool:
        await asyncio.wait((creating,), timeout=CHANGE_S)
        # After a failed or unanswered request there may be one all the same.
        return creating.cancelled() or creating.exception() is None or not isinstance(creating.exception(), NameTaken)

    async def _diagnose(self) -> SandboxError:
        if self._watch is None or self.channel is None:
            return BoxLost("the box is gone")
        return await self._watch.find_cause(self.channel.crash_log)


async def finish(task: asyncio.Task[None]) -> None:
    """Wait for clean-up to its end also when we are cancelled; then be cancelled. Bounded by the task's own limits."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if not task.cancelled():
                cancelled = error
        except SandboxError:
            break
    if cancelled is not None:
        raise cancelled
    if not task.cancelled():
        task.result()
