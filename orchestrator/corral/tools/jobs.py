"""The jobs of one session: which there are, what of each the model has seen, and how many may run."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from corral.errors import ToolError
from corral.sandbox.base import Sandbox, TerminalSize
from corral.sandbox.job import Job, start_job
from corral.tools.screen import Screen
from corral_protocol.error import ErrorCode

MAX_RUNNING = 8
MAX_KEPT = 32
"""Jobs that are remembered; the oldest that have ended go first."""
QUIET_S = 1.0
"""Nothing written for so long, after something was: it waits for the next input, most likely."""


@dataclass
class Entry:
    """One job as the model knows it."""

    name: str
    command: str
    job: Job
    screen: Screen | None
    seen: int = 0
    """How much of the output the model has been given."""

    @property
    def state(self) -> str:
        job = self.job
        if job.is_running:
            return "running"
        if job.result is None:
            return "lost" if job.error else "killed"
        result = job.result
        if result.status.value == "exited":
            return f"exit code {result.exit_code}"
        return f"signal {result.signal}" if result.signal else result.status.value


@dataclass
class JobBook:
    """Starts jobs and finds them again."""

    env: dict[str, str] = field(default_factory=dict)
    """Given to every job."""
    _entries: dict[str, Entry] = field(default_factory=dict)
    _count: int = 0

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries if entry.job.is_running)

    def find(self, name: str) -> Entry:
        """Raises ToolError when there is none."""
        entry = self._entries.get(name)
        if entry is None:
            known = ", ".join(self._entries) or "none"
            raise ToolError(f"there is no job {name!r}", code=ErrorCode.NOT_FOUND, hint=f"the jobs are: {known}")
        return entry

    def start(self, sandbox: Sandbox, command: str, *, cwd: str, terminal: TerminalSize | None) -> Entry:
        """Start a command line. Raises ToolError when too many run."""
        if len(self.running) >= MAX_RUNNING:
            raise ToolError(f"{MAX_RUNNING} jobs are running", code=ErrorCode.BUSY, hint="kill one that is not needed")
        if "shell" in sandbox.info.lacks:
            raise ToolError("this image has no shell", code=ErrorCode.UNSUPPORTED)
        self._count += 1
        name = f"job-{self._count}"
        env = self.env | ({"TERM": "xterm"} if terminal else {})
        shell = sandbox.info.facts.get("shell") or "sh"
        job = start_job(sandbox, [shell, "-c", command], cwd=cwd, env=env, terminal=terminal)
        screen = Screen(terminal.rows, terminal.columns) if terminal else None
        if screen is not None:
            job.on_output = screen.feed
        entry = self._entries[name] = Entry(name, command, job, screen)
        self._forget()
        return entry

    def _forget(self) -> None:
        ended = [entry.name for entry in self.entries if not entry.job.is_running]
        for name in ended[: max(0, len(self._entries) - MAX_KEPT)]:
            del self._entries[name]


async def settle(entry: Entry, *, wait_s: float, until: bytes, start: int) -> bool:
    """Wait for a text, the end, or quiet after something was written since `start`; True when `until` was seen."""
    job = entry.job
    deadline = time.monotonic() + wait_s
    while True:
        if until and until in job.output.read(start, job.output.total)[1]:
            return True
        left_s = deadline - time.monotonic()
        if not job.is_running or left_s <= 0:
            return False
        is_quiet_enough = job.output.total > start and not until
        news = await job.wait_news(min(left_s, QUIET_S) if is_quiet_enough else left_s)
        if not news and is_quiet_enough:
            return False
        # In steps: looking for a text at every few bytes of a flood would take longer than the flood.
        await asyncio.sleep(min(0.02, max(left_s, 0.0)))
