"""Programs of a fake box that talk while they run: they read what is typed, and hear signals and sizes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from corral.sandbox.base import ExecHandle, Sink, TerminalSize
from corral_protocol.message import Capture, Exec, ExecResult, ExecStatus, Method, Resize, Signal


@dataclass
class FakeConsole:
    """The program's side of its streams."""

    stdin: AsyncIterator[bytes]
    write: Callable[[bytes], Awaitable[None]]
    size: TerminalSize | None
    """None without a terminal."""
    signals: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    sizes: asyncio.Queue[TerminalSize] = field(default_factory=asyncio.Queue)


FakeProgram = Callable[[FakeConsole], Awaitable[int]]
"""Runs until it returns its exit code. A signal that it does not take out of `signals` does nothing."""


async def run_program(
    program: FakeProgram,
    params: Exec,
    sinks: Mapping[str, Sink],
    body: tuple[str, AsyncIterator[bytes]] | None,
    handle: ExecHandle | None,
    killed: asyncio.Future[ExecStatus],
) -> ExecResult:
    """Run it to its end, its time limit, or until `killed` says how it was ended."""
    written = bytearray()

    async def write(data: bytes) -> None:
        written.extend(data)
        if (sink := sinks.get("stdout")) is not None and (pending := sink(memoryview(data))) is not None:
            await pending

    size = TerminalSize(params.rows, params.columns) if params.rows else None
    console = FakeConsole(body[1] if body else _nothing(), write, size)

    def notify(method: Method, told: object) -> None:
        if isinstance(told, Signal):
            console.signals.put_nowait(told.signal)
        elif isinstance(told, Resize):
            console.size = TerminalSize(told.rows, told.columns)
            console.sizes.put_nowait(console.size)

    if handle is not None:
        handle.bind(1, notify)
    running = asyncio.ensure_future(program(console))
    try:
        await asyncio.wait((running, killed), timeout=params.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return ExecResult(ExecStatus.EXITED, running.result(), stdout=_capture(written, params))
        status = killed.result() if killed.done() else ExecStatus.TIMEOUT
        return ExecResult(status, stdout=_capture(written, params))
    finally:
        running.cancel()
        await asyncio.wait((running,))
        if handle is not None:
            handle.bind(1, None)


def _capture(written: bytearray, params: Exec) -> Capture:
    head, rest = written[: params.head_bytes], written[params.head_bytes :]
    tail = rest[-params.tail_bytes :]
    return Capture(
        base64.b64encode(head).decode("ascii"), base64.b64encode(tail).decode("ascii"), len(written), len(written)
    )


async def _nothing() -> AsyncIterator[bytes]:
    none: tuple[bytes, ...] = ()
    for piece in none:
        yield piece
