"""What a command in the box gave back, for programs."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable
from dataclasses import dataclass

from corral.agent.command import exit_code
from corral.sandbox.base import Sink
from corral.sandbox.cause import find_cause
from corral.sandbox.used import build_call_resources
from corral.schema.resources import CallResources
from corral.schema.tools import ToolResult, ToolStatus
from corral_protocol.message import Capture, ExecResult, ExecStatus


@dataclass(frozen=True)
class CommandResult:
    """How a command ended and what it wrote. Everything in it is the box's word."""

    exit_code: int
    """Its own; 128+n when signal n ended it, 124 at the time limit, 126 when it cannot be run, 127 when it is not
    there."""
    signal: int | None
    timed_out: bool
    cause: str
    """What counters prove about a failure: timeout, oom, pids_exhausted, killed, or ""."""
    stdout: bytes
    stderr: bytes
    """What was kept of each stream: its first `output_limit` bytes."""
    stdout_bytes: int
    stderr_bytes: int
    """How much was written in all."""
    cwd: str
    """Where a shell command ended, as the box's name of it; "" for a program."""
    duration_s: float
    background: int
    """Processes it left running."""
    resources: CallResources
    """What it used: processor seconds, memory, processes, bytes written."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def text(self) -> str:
        """Standard output as UTF-8, what is none as U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def is_complete(self) -> bool:
        """Whether `stdout` and `stderr` are all that was written."""
        return len(self.stdout) == self.stdout_bytes and len(self.stderr) == self.stderr_bytes


@dataclass(frozen=True)
class SearchResult:
    """What a search found. Everything in it is the box's word."""

    lines: tuple[str, ...]
    """`path:number:text` of each match, sorted by path, long ones cut; with `context` also `path-number-text` around
    it and `--` between; with `files_only` the paths alone."""
    more: bool
    """Whether there are more than `limit`."""
    timed_out: bool
    """Whether the time was up before everything was searched."""


def build_search_result(result: ToolResult) -> SearchResult:
    lines = tuple(result.output.split("\n")) if result.output else ()
    return SearchResult(lines, bool(result.data["more"]), result.status is ToolStatus.TIMEOUT)


class Collector:
    """Keeps the first bytes of one stream, and passes all of it on to a sink of the caller's."""

    def __init__(self, limit: int, sink: Sink | None) -> None:
        self.kept = bytearray()
        self._limit = limit
        self._sink = sink

    def receive(self, data: memoryview) -> Awaitable[None] | None:
        self.kept += data[: max(0, self._limit - len(self.kept))]
        if self._sink is None:
            return None
        consumed = self._sink(data)
        return consumed if inspect.isawaitable(consumed) else None


def build_result(result: ExecResult, stdout: Collector, stderr: Collector) -> CommandResult:
    return CommandResult(
        exit_code=exit_code(result),
        signal=result.signal or None,
        timed_out=result.status is ExecStatus.TIMEOUT,
        cause=find_cause(result),
        stdout=bytes(stdout.kept),
        stderr=bytes(stderr.kept),
        stdout_bytes=result.stdout.total_bytes,
        stderr_bytes=result.stderr.total_bytes,
        cwd=result.cwd,
        duration_s=result.duration_s,
        background=result.background,
        resources=build_call_resources(result),
    )


def show_capture(result: ExecResult) -> str:
    """Head and tail of both streams as text, for the record."""
    parts = [_decode(result.stdout)]
    if errors := _decode(result.stderr):
        parts.append(f"[stderr]\n{errors}")
    return "\n".join(part for part in parts if part)


def _decode(capture: Capture) -> str:
    head, tail = base64.b64decode(capture.head_b64), base64.b64decode(capture.tail_b64)
    gap = capture.total_bytes - len(head) - len(tail)
    mark = f"\n[… {gap} bytes left out …]\n".encode() if gap > 0 else b""
    return (head + mark + tail).decode("utf-8", "replace")
