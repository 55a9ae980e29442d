"""What a tool is, and what it is given when it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from corral.sandbox.base import Hold, Sandbox
from corral.schema.events import Payload, Source
from corral.schema.tools import ToolResult, ToolSpec
from corral.tools.outputs import OutputStore


class Recorder(Protocol):
    """The record as the executor writes it; `corral.record.RecordLog` is one."""

    async def append_async(self, *payloads: Payload, source: Source | None = None, durable: bool = True) -> object:
        """Write events, all or none; with `durable`, return only when they are on the disk. Raises RecordError."""
        ...

    async def sync_async(self) -> None:
        """Return when all that was written is on the disk. Raises RecordError."""
        ...


@dataclass
class ShellState:
    """What stays between shell calls of one session."""

    cwd: str = ""  # name on the wire, as the box last reported it; "" is the workspace


@dataclass(frozen=True)
class ToolTimeouts:
    """Seconds a call may take, by group; SPEC's defaults."""

    file_s: float = 5.0
    shell_s: float = 120.0
    shell_max_s: int = 3600
    other_s: float = 15.0


@dataclass(frozen=True)
class ToolContext:
    """The world of one call."""

    call_id: str
    sandbox: Sandbox
    outputs: OutputStore
    shell: ShellState = field(default_factory=ShellState)
    hold: Hold | None = None
    """For a tool that holds: ends when its record is on the disk, and its effect may begin."""


Arguments = dict[str, Any]
Run = Callable[[Arguments, ToolContext], Awaitable[ToolResult]]


@dataclass(frozen=True)
class Tool:
    """A spec and what it does.

    `run` gets validated arguments. It returns a result, or raises ToolError for what a model can act on; SandboxError
    passes through, for then the box is gone. `limit_s` gives a call's time limit where its arguments set one. One that
    `holds` is run while its record still goes to the disk, and holds its effect back until the context's `hold` ends.
    """

    spec: ToolSpec
    run: Run
    limit_s: Callable[[Arguments], float] | None = None
    holds: bool = False

    def time_limit(self, arguments: Arguments) -> float:
        return self.limit_s(arguments) if self.limit_s else self.spec.timeout_s
