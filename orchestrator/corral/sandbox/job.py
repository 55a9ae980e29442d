"""A command that runs on while its owner does something else: what it has written, kept within bounds, and its end.

In the box it is a command like any other, below a supervisor of its own; it goes at the latest with the box.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from corral.errors import CorralError, ToolError
from corral.sandbox.base import ExecHandle, Sandbox, TerminalSize
from corral_protocol.error import ErrorCode
from corral_protocol.message import ExecResult

KEPT_BYTES = 1 << 20
MAX_WAITING_BYTES = 256 << 10
"""Input that the command has not taken yet."""
_BURST_BYTES, _PACE_BYTES_S = 8 << 20, 1 << 20
"""A flood is slowed down to this pace: its writer waits, and the orchestrator has time for others."""


class OutputRing:
    """The last bytes of an output, by their place in the whole of it."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.total = 0
        self._kept_bytes = kept_bytes
        self._pieces: deque[bytes] = deque()
        self._size = 0

    @property
    def first(self) -> int:
        """The place of the first byte that is still here."""
        return self.total - self._size

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._pieces.append(data[-self._kept_bytes :])
        self._size += len(self._pieces[-1])
        while self._size > self._kept_bytes:
            over = self._size - self._kept_bytes
            oldest = self._pieces.popleft()
            if len(oldest) > over:
                self._pieces.appendleft(oldest[over:])
            self._size -= min(over, len(oldest))

    def read(self, offset: int, limit: int) -> tuple[int, bytes]:
        """From `offset`, or from the first byte that is still here: (where it begins, the bytes)."""
        start = min(max(offset, self.first), self.total)
        return start, b"".join(self._pieces)[start - self.first :][:limit]


@dataclass
class _Pace:
    """How long to wait after so many bytes."""

    clock: Callable[[], float] = time.monotonic
    left: float = _BURST_BYTES
    seen_at: float = 0.0

    def spend(self, size: int) -> float:
        now = self.clock()
        self.left = min(self.left + (now - self.seen_at) * _PACE_BYTES_S, _BURST_BYTES) - size
        self.seen_at = now
        return max(-self.left / _PACE_BYTES_S, 0.0)


class Job:
    """Made by start_job(); ends by itself, by kill(), or with its box."""

    def __init__(self, *, has_terminal: bool) -> None:
        self.has_terminal = has_terminal
        self.output = OutputRing()
        self.started_at = time.monotonic()
        self.error: CorralError | None = None
        """Why it could not be run to an end that has a result."""
        self.result: ExecResult | None = None
        self.on_output: Callable[[bytes], None] = lambda data: None
        self._handle = ExecHandle()
        self._pace = _Pace()
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting = 0
        self._news: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def run(self, sandbox: Sandbox, argv: list[bytes | str], cwd: str, env: dict[str, str], size: TerminalSize) -> None:
        """Start it; once."""
        self._task = asyncio.ensure_future(self._run(sandbox, argv, cwd, env, size if self.has_terminal else None))

    async def _run(
        self,
        sandbox: Sandbox,
        argv: list[bytes | str],
        cwd: str,
        env: dict[str, str],
        terminal: TerminalSize | None,
    ) -> None:
        try:
            self.result = await sandbox.exec(
                argv,
                cwd=cwd,
                env=env,
                stdin=self._take_input(),
                stdout=self._receive,
                merge_stderr=True,
                stream_limit=-1,
                kill_background=True,
                terminal=terminal,
                handle=self._handle,
            )
        except CorralError as error:
            self.error = error
        finally:
            self._tell()

    def _receive(self, data: memoryview) -> asyncio.Future[None] | None:
        piece = bytes(data)
        self.output.add(piece)
        self.on_output(piece)
        self._tell()
        wait_s = self._pace.spend(len(piece))
        return asyncio.ensure_future(asyncio.sleep(wait_s)) if wait_s else None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _take_input(self) -> AsyncIterator[bytes]:
        while piece := await self._input.get():
            yield piece
            self._waiting -= len(piece)

    # What can be done to it.

    def write(self, data: bytes) -> None:
        """Type it. Raises ToolError when it has ended, or takes no input."""
        if not self.is_running:
            raise ToolError("the job has ended", code=ErrorCode.NOT_FOUND)
        if self._waiting + len(data) > MAX_WAITING_BYTES:
            raise ToolError(f"the job has not read the {self._waiting} bytes before", code=ErrorCode.BUSY)
        if data:
            self._waiting += len(data)
            self._input.put_nowait(data)

    def close_input(self) -> None:
        """No more comes: end-of-file behind the last byte. A terminal has none: type Ctrl-D."""
        self._input.put_nowait(b"")

    def signal(self, number: int) -> None:
        self._handle.signal(number)

    def resize(self, size: TerminalSize) -> None:
        self._handle.resize(size)

    async def kill(self) -> None:
        """End it with everything below it; returns when it has gone."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def wait_end(self, timeout_s: float) -> None:
        """Until it has ended, or the time is over."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=max(timeout_s, 0))

    async def wait_news(self, timeout_s: float) -> bool:
        """Until more output comes, or its end; False when neither did in time."""
        if not self.is_running or timeout_s <= 0:
            return not self.is_running
        self._news = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._news,), timeout=timeout_s)
        return self._news.done()


def start_job(
    sandbox: Sandbox,
    argv: list[bytes | str],
    *,
    cwd: str = "",
    env: dict[str, str] | None = None,
    terminal: TerminalSize | None = None,
) -> Job:
    """Start a command in the background, with pipes or, with `terminal`, in a pseudo-terminal of that size."""
    job = Job(has_terminal=terminal is not None)
    job.run(sandbox, argv, cwd, env or {}, terminal or TerminalSize())
    return job
