"""The person's own standard streams, without blocking the event loop and without changing their flags.

The descriptors are shared with the shell that started us, so they stay in blocking mode: a thread of their own reads or
writes them. A reader that stops reading slows its command, nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

_READ_BYTES = 64 << 10


async def read_stdin(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Pieces of standard input as they come, at most one read ahead. A closed one is at its end at once."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    wanted = threading.Semaphore(1)

    def read() -> None:
        while True:
            wanted.acquire()
            try:
                piece = os.read(descriptor, _READ_BYTES)
            except OSError:
                piece = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:
                return  # the loop is closed: nobody waits for it
            if not piece:
                return

    # A daemon: a read that nobody answers must not keep the process alive.
    threading.Thread(target=read, name="stdin", daemon=True).start()
    while piece := await pieces.get():
        yield piece
        wanted.release()


class Output:
    """One output descriptor and the thread that writes to it. `sink` is a corral.sandbox.base.Sink.

    When the reader has gone, what comes is dropped and `gone` is set: a command that writes for nobody shall end.
    """

    def __init__(self, descriptor: int, gone: asyncio.Event, transform: Callable[[memoryview], bytes] = bytes) -> None:
        self.broken = False
        self._gone = gone
        self._descriptor = descriptor
        self._transform = transform
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        # A daemon, not the loop's executor: that is joined at exit, and a reader may never read again.
        threading.Thread(target=self._serve, name="output", daemon=True).start()

    def sink(self, data: memoryview) -> Awaitable[None] | None:
        """Write these bytes; the awaitable ends when they are written."""
        return None if self.broken else self.write(self._transform(data))

    def write(self, data: bytes) -> Awaitable[None]:
        """Write all of `data`, in the thread."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((data, done))
        return done

    def _serve(self) -> None:
        while True:
            data, done = self._jobs.get()
            self._write_all(data)
            try:
                self._loop.call_soon_threadsafe(_finish, done)
            except RuntimeError:
                return  # the loop is closed: nobody waits

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view and not self.broken:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            self.broken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._gone.set)


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
