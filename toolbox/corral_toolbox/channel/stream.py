"""Streams under credit: a Source is a pipe read for the host, a Sink a pipe written for it."""

import fcntl
import os

from corral_protocol.framing import MAX_CHUNK_BYTES
from corral_toolbox.channel import wire
from corral_toolbox.lean import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from corral_toolbox.loop import Loop, Timer

_EPOLLIN = 1
_EPOLLOUT = 4
_READS_PER_EVENT = 8
_FLOOD_BYTES = 8 << 10
_FLOOD_EVENTS = 4
"""An output that brings at least so much, so many times in a row, is a flood: it is read once a millisecond and not at
every write, or each stage from here to the host would be woken for every few kilobytes."""
_FLOOD_PIPE_BYTES = 512 << 10
_FLOOD_PAUSE_S = 0.001
_F_SETPIPE_SZ = 1031
_GRANT_BYTES = 64 << 10
"""Credit is given back in steps of this size: one message per chunk's worth."""


def widen_pipe(fd: int, size: int) -> bool:
    """Let a pipe hold more; False when it is none, or when the user's pipes hold as much as they may already."""
    try:
        fcntl.fcntl(fd, _F_SETPIPE_SZ, size)
    except OSError:
        return False
    return True


class Capture:
    """The first and the last bytes of an output, and how many there were."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head = bytearray()
        self._head_room = head_bytes
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._tail_max = tail_bytes
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._head_room:
            taken = data[: self._head_room]
            self._head += taken
            self._head_room -= len(taken)
            data = data[len(taken) :]
        if not data or not self._tail_max:
            return
        if len(data) >= self._tail_max:
            self._tail.clear()
            self._tail_size = 0
            data = data[-self._tail_max :]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_max:
            self._tail_size -= len(self._tail.popleft())

    def report(self, streamed: int, is_closed: bool) -> wire.Message:
        """The wire form, a corral_protocol.message.Capture."""
        tail = b"".join(self._tail)
        return {
            "head_b64": wire.encode_base64(self._head),
            "tail_b64": wire.encode_base64(tail[-self._tail_max :] if self._tail_max else b""),
            "total_bytes": self.total,
            "streamed_bytes": streamed,
            "closed": is_closed,
        }


class Source:
    """Reads a pipe: captures, counts, and sends to the host what stream, credit and limit allow.

    Without credit, or while the queue to the host is full, the pipe is not read, so that its writer waits. Behind the
    limit, or without a stream, everything is read and only counted. Its end waits `patience_s` for an answer to tell of
    it (`take_end`), which saves a message for each stream of each call; then it is told by itself.
    """

    def __init__(
        self, loop: "Loop", fd: int, stream: int, limit: int, capture: "Capture | None", patience_s: float = 0.0
    ) -> None:
        self._loop = loop
        self.fd = fd
        self.stream = stream
        self._limit = limit if stream else 0
        self.capture = capture
        self._credit = wire.INITIAL_CREDIT
        self.streamed = 0
        self.backlog = 0
        """Bytes that were in the pipe when `mark_backlog` was called and are not read yet."""
        self.has_ended = False
        self.is_last = False
        """No writer is expected any more: an empty pipe is an ended one."""
        self._patience_s = patience_s
        self._untold: Timer | None = None
        self.on_change: Callable[[], None] | None = None
        self._is_watched = False
        self._is_paused = False
        self._is_wide = False
        self._busy_events = 0
        self._event_bytes = 0
        self._watch()

    def _watch(self) -> None:
        if not self._is_watched and not self._is_paused and not self.has_ended:
            self._is_watched = True
            self._loop.watch(self.fd, _EPOLLIN, self._on_ready)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.unwatch(self.fd)

    def _on_ready(self, _: int) -> None:
        self._event_bytes = 0
        for _ in range(_READS_PER_EVENT):
            if not self.read_some():
                break
        self._busy_events = self._busy_events + 1 if self._event_bytes >= _FLOOD_BYTES else 0
        if self._busy_events > _FLOOD_EVENTS and not self.has_ended:
            self._pause()

    def _pause(self) -> None:
        """Let a flood collect in the pipe. Where it may not hold more than usual, it is read at once."""
        if not self._is_wide:
            self._is_wide = widen_pipe(self.fd, _FLOOD_PIPE_BYTES)
        if not self._is_wide:
            self._busy_events = 0
            return
        self._unwatch()
        self._is_paused = True
        self._loop.after(_FLOOD_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._is_paused = False
        self._watch()

    def read_some(self) -> bool:
        """Read once; False when nothing can be read now."""
        if self.has_ended:
            return False
        size = MAX_CHUNK_BYTES
        is_sending = self._limit < 0 or self.streamed < self._limit
        if is_sending:
            size = min(size, self._credit)
            if not size or self._loop.outbox.is_congested:
                self._unwatch()
                if size:
                    self._loop.stalled.append(self)
                return False
        try:
            data = os.read(self.fd, size)
        except BlockingIOError:
            self.backlog = 0
            if self.is_last:
                self.end()
            else:
                self._changed()
            return False
        except OSError:  # how the end of a terminal reads
            data = b""
        if not data:
            self.end()
            return False
        self._event_bytes += len(data)
        self.backlog = max(self.backlog - len(data), 0)
        if self.capture is not None:
            self.capture.add(data)
        if is_sending:
            self._send(data)
        self._changed()
        return True

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        if self._limit >= 0:
            view = view[: self._limit - self.streamed]
        self._credit -= len(view)
        self.streamed += len(view)
        self._loop.outbox.put_data(self.stream, view)

    def add_credit(self, count: int) -> None:
        self._credit += count
        self.resume()

    def resume(self) -> None:
        """Go on after credit or room in the queue came."""
        self._watch()
        if self.backlog or self.is_last:
            self.drain()

    @property
    def has_credit(self) -> bool:
        return self._credit > 0

    def mark_backlog(self) -> None:
        """Note how much was written so far: what a call that has ended still has to deliver."""
        self.backlog = 0 if self.has_ended else self._loop.count_readable(self.fd)

    def drain(self) -> None:
        """Read the backlog as far as credit goes; with `is_last`, to the end."""
        while (self.backlog or self.is_last) and self.read_some():
            pass

    def finish(self) -> None:
        """The last process that should write is gone."""
        self.is_last = True
        self.drain()

    def end(self, error: str = "") -> None:
        """No more is read; the host learns the end of the stream behind its last byte."""
        if self.has_ended:
            return
        self._unwatch()
        self.has_ended = True
        self.backlog = 0
        os.close(self.fd)
        if self.stream:
            self._loop.sources.pop(self.stream, None)
            if error or not self._patience_s:
                self._tell_end(error)
            else:
                self._untold = self._loop.after(self._patience_s, self.tell_end)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def take_end(self) -> bool:
        """Whether it has ended and the host does not know: who asks tells the host."""
        self._patience_s = 0.0
        timer, self._untold = self._untold, None
        if timer is not None:
            timer.cancel()
        return timer is not None

    def tell_end(self) -> None:
        """Let the host know of the end, now or when it comes."""
        if self.take_end():
            self._tell_end("")

    def _tell_end(self, error: str) -> None:
        closing: wire.Message = {"stream": self.stream, "total": self.streamed, "error": error}
        self._loop.outbox.put_behind_data(wire.encode_notice(wire.CLOSE, closing))


class Sink:
    """Writes what the host sends on one stream into a pipe; gives credit back as the pipe takes it.

    When the reader has gone the bytes are dropped and credit still flows, so that the host is never stuck.
    """

    def __init__(self, loop: "Loop", fd: int, stream: int) -> None:
        self._loop = loop
        self._fd = fd
        self.stream = stream
        self._queue: deque[memoryview] = deque()
        self._window = wire.INITIAL_CREDIT
        self._owed = 0
        self._is_closing = False
        self._is_watched = False
        self.written = 0
        """Bytes the reader's pipe has taken: a sign of progress."""

    @property
    def is_starving(self) -> bool:
        """Everything the host sent was taken, and it has not sent all."""
        return not self._queue and not self._is_closing

    def put(self, data: memoryview) -> None:
        """A chunk came. Raises Violation when it is more than the credit given."""
        self._window -= len(data)
        if self._window < 0:
            raise wire.Violation(f"stream {self.stream} is over its credit")
        if self._fd < 0:
            self._give_back(len(data))
        elif data:
            self._queue.append(data)
            self._write()

    def close(self) -> None:
        """The host has sent all: the reader sees end-of-file behind the last byte."""
        self._loop.sinks.pop(self.stream, None)
        self._is_closing = True
        if not self._queue:
            self.abandon()

    def abandon(self) -> None:
        """Close the pipe now; later bytes are dropped."""
        if self._fd < 0:
            return
        if self._is_watched:
            self._is_watched = False
            self._loop.unwatch(self._fd)
        os.close(self._fd)
        self._fd = -1
        left = sum(map(len, self._queue))
        self._queue.clear()
        self._give_back(left)

    def _on_ready(self, _: int) -> None:
        self._write()

    def _write(self) -> None:
        while self._queue:
            first = self._queue[0]
            try:
                written = os.write(self._fd, first)
            except BlockingIOError:
                if not self._is_watched:
                    self._is_watched = True
                    self._loop.watch(self._fd, _EPOLLOUT, self._on_ready)
                return
            except OSError:
                self.abandon()
                return
            self.written += written
            if written == len(first):
                self._queue.popleft()
            else:
                self._queue[0] = first[written:]
            self._give_back(written)
        if self._is_closing:
            self.abandon()
        elif self._is_watched:
            self._is_watched = False
            self._loop.unwatch(self._fd)

    def _give_back(self, count: int) -> None:
        self._owed += count
        if self._owed >= _GRANT_BYTES and not self._is_closing:
            self._window += self._owed
            params: wire.Message = {"stream": self.stream, "bytes": self._owed}
            self._owed = 0
            self._loop.outbox.put_control(wire.encode_notice(wire.CREDIT, params))
