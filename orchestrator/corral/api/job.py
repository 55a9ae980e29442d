"""A command in the background of a box, for programs: its output, its input, its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from corral.tools.jobs import Entry, settle

Act = Callable[..., Awaitable[Any]]
"""Does an action of the tool `process`, by the executor."""


@dataclass(frozen=True)
class JobOutput:
    """A piece of what a job has written, standard output and error in one. The box's bytes: not fit for a terminal."""

    start: int
    """The place of the first byte of `data` in all that was written."""
    data: bytes
    total: int
    """Bytes written so far."""

    @property
    def text(self) -> str:
        """As UTF-8, with a mark for what is none."""
        return self.data.decode("utf-8", "replace")


class Job:
    """A command that runs in the background of a box, made by `Sandbox.start_job`.

    It ends by itself, by `kill`, or with its box, with everything that it has started. What is done to it goes through
    policy and record like every call; what it has written is read from memory.
    """

    def __init__(self, entry: Entry, act: Act) -> None:
        self._entry = entry
        self._act = act

    @property
    def name(self) -> str:
        """Its name in the record, `job-1` and so on."""
        return self._entry.name

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._entry.job.is_running

    @property
    def exit_code(self) -> int | None:
        """What it ended with, 128 and the signal's number where a signal ended it; None while it runs or when it was
        killed or lost with its box."""
        result = self._entry.job.result
        if result is None:
            return None
        return 128 + result.signal if result.signal else result.exit_code

    @property
    def screen(self) -> str | None:
        """What its terminal shows now, as lines of text without escape codes; None for a job without a terminal."""
        screen = self._entry.screen
        return None if screen is None else screen.render()

    def output(self, since: int = 0, limit: int = 1 << 20) -> JobOutput:
        """What it has written, at most `limit` bytes from the place `since` on. The last 1 MiB is kept: of what is
        older, `start` tells how much is gone. Go on reading at `start + len(data)`."""
        ring = self._entry.job.output
        start, data = ring.read(since, limit)
        return JobOutput(start, data, ring.total)

    async def wait(self, until: str | bytes = "", *, since: int = 0, timeout_s: float = 30.0) -> bool:
        """Wait until it has written `until` at the place `since` or later: True when it has, False when the job ended
        before or the time is over. Without `until`, wait for its end, and return whether it has ended."""
        text = until.encode() if isinstance(until, str) else until
        job = self._entry.job
        if text:
            return await settle(self._entry, wait_s=timeout_s, until=text, start=since)
        await job.wait_end(timeout_s)
        return not job.is_running

    async def write(self, text: str) -> None:
        """Type text into it; a line needs its `\\n`, in a terminal Ctrl-C is `\\x03` and Ctrl-D `\\x04`.

        Policy judges what is typed like a command line. Raises ToolError: `not_found` when it has ended, `busy` when it
        does not read.
        """
        await self._act(action="write", job=self.name, text=text, wait_s=0)

    async def send_signal(self, signal: str) -> None:
        """Send `INT`, `TERM`, `HUP`, `QUIT`, `USR1`, `USR2`, `STOP` or `CONT` to its process group."""
        await self._act(action="signal", job=self.name, signal=signal, wait_s=0)

    async def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size. Raises ToolError for a job without one."""
        await self._act(action="resize", job=self.name, rows=rows, columns=columns, wait_s=0)

    async def kill(self) -> None:
        """End it with everything below it; returns when it has gone. One that has ended already is no error."""
        await self._act(action="kill", job=self.name, wait_s=0)
