"""What the engine tells about one container while it lives: why it ended, and that it is gone.

Subscribed by name before the container exists. With AutoRemove the engine forgets a dead container within
milliseconds, so asking afterwards would be too late.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from corral.errors import BoxLost, SandboxError
from corral.sandbox.engine import Engine
from corral.sandbox.refusal import Refusals
from corral.sandbox.shortage import Shortage

CAUSE_LIMIT_S = 1.5
_SIGKILL_EXIT = 137


class BoxWatch:
    """The engine's events of one container. start() before create, stop() at the very end."""

    def __init__(self, engine: Engine, name: str, on_oom: Callable[[], None] = lambda: None) -> None:
        loop = asyncio.get_running_loop()
        self._engine = engine
        self._name = name
        self._on_oom = on_oom
        """Called when the kernel took a process for want of memory: did the toolbox survive that one?"""
        self.shortage = Shortage(loop)
        self._loop = loop
        self._stream: Any = None
        self._is_stopped = False
        self._lock = threading.Lock()
        self.subscribed: asyncio.Future[None] = loop.create_future()
        self.died: asyncio.Future[None] = loop.create_future()
        """Done when the container has ended, or the engine tells no more."""
        self.removed: asyncio.Future[None] = loop.create_future()
        self._exit_code: int | None = None
        self._signal = ""
        self._is_deaf = False
        self._refusals: Refusals | None = None

    def start(self) -> None:
        threading.Thread(target=self._listen, name="corral-events", daemon=True).start()

    def follow_refusals(self, box_id: str) -> None:
        """For a box that ends when it is refused a process: find_cause() will know."""
        self._refusals = Refusals.find(box_id)
        if self._refusals is not None:
            self._refusals.start()

    def stop(self) -> None:
        if self._refusals is not None:
            self._refusals.stop()
        self.shortage.stop()
        with self._lock:
            self._is_stopped = True
            if self._stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    self._stream.close()

    async def find_cause(self, crash_log: str) -> SandboxError:
        """Why the box is gone, as the error to raise. Waits briefly for the engine's word."""
        self.shortage.look()
        was_refused = self._refusals is not None and self._refusals.look()
        await asyncio.wait((self.died,), timeout=CAUSE_LIMIT_S)
        if self._exit_code is None:
            if self._is_deaf or not await self._answers():
                return BoxLost("the container engine is gone, and the box with it", cause="engine_lost")
            return BoxLost("the connection to the box broke", hint=_last_line(crash_log))
        if self._signal:
            return BoxLost(f"the box was killed from outside (signal {self._signal})", cause="killed")
        if self._exit_code == _SIGKILL_EXIT:
            if await self.shortage.is_cause():
                return BoxLost("the box ran out of memory", hint="raise its memory limit", cause="oom")
            return BoxLost("the box was killed from outside (signal 9)", cause="killed")
        if was_refused or (self._refusals is not None and self._refusals.is_told):
            return BoxLost("the box ran out of processes", hint="raise its limit of processes", cause="pids_exhausted")
        return BoxLost(f"the box ended by itself with exit code {self._exit_code}", hint=_last_line(crash_log))

    async def _answers(self) -> bool:
        try:
            return bool(await self._engine.call("answer", lambda client: client.ping(), 1.0))
        except SandboxError:
            return False

    def _listen(self) -> None:
        """The thread: from subscription to the end of the stream, whoever ends it."""
        # Types of containers only; exact name. Events of others never arrive here.
        filters = {"type": ["container"], "container": [self._name]}
        with contextlib.suppress(SandboxError):
            self._engine.ask("send events", lambda client: self._follow(client.events(decode=True, filters=filters)))
        self._tell(None)

    def _follow(self, stream: Any) -> None:
        try:
            with self._lock:
                if self._is_stopped:
                    return
                self._stream = stream
            self._tell({})
            for event in stream:
                self._tell(event)
        finally:
            stream._response.close()  # its own close() only cuts the connection

    def _tell(self, event: dict[str, Any] | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self._note, event)

    def _note(self, event: dict[str, Any] | None) -> None:
        if event is None:
            self._is_deaf = not self._is_stopped
            for future in (self.subscribed, self.died, self.removed):
                _settle(future)
            return
        _settle(self.subscribed)
        attributes = event.get("Actor", {}).get("Attributes", {})
        action = event.get("Action")
        if action == "oom":
            self.shortage.tell()
            self._on_oom()
        elif action == "kill":
            self._signal = str(attributes.get("signal", "?"))
        elif action == "die":
            code = str(attributes.get("exitCode", ""))
            self._exit_code = int(code) if code.isdecimal() else -1
            _settle(self.died)
        elif action == "destroy":
            _settle(self.removed)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _last_line(crash_log: str) -> str | None:
    lines = crash_log.strip().splitlines()
    return f"last words of the toolbox: {lines[-1][:500]}" if lines else None
