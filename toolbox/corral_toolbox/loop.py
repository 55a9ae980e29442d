"""The one event loop of the first process: descriptors, timers, work for idle moments. No threads, nothing blocks."""

import fcntl
import select
import termios
import time

from corral_toolbox.channel.outbox import Outbox
from corral_toolbox.lean import deque, heapify, heappop, heappush

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from corral_toolbox.channel.stream import Sink, Source
    from corral_toolbox.tunnel import Stream

_EPOLLOUT = 4
_PATIENCE = 32
"""Busy rounds after which idle work is done all the same: a stream that never pauses must not starve it."""


class Timer:
    """A callback at a time; `cancel` makes it nothing."""

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: "Callable[[], None]") -> None:
        self.due = due
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: "Timer") -> bool:
        return self.due < other.due

    def cancel(self) -> None:
        self.callback = None


class Loop:
    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.sources: dict[int, Source | Stream] = {}
        self.sinks: dict[int, Sink | Stream] = {}
        self.stalled: list[Source | Stream] = []
        """Sources that wait for room in the queue to the host."""
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._timers: list[Timer] = []
        self._sweep_at = 256
        self._idle: deque[Callable[[], None]] = deque()
        self._is_out_watched = False

    def watch(self, fd: int, events: int, callback: "Callable[[int], None]") -> None:
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def rewatch(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        self._epoll.unregister(fd)
        del self._callbacks[fd]

    def after(self, delay_s: float, callback: "Callable[[], None]") -> Timer:
        timer = Timer(time.monotonic() + delay_s, callback)
        if len(self._timers) >= self._sweep_at:
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapify(self._timers)
            self._sweep_at = 2 * len(self._timers) + 256
        heappush(self._timers, timer)
        return timer

    def when_idle(self, callback: "Callable[[], None]") -> None:
        """Run once nothing else waits: such as making the next spare, which must not delay an answer."""
        self._idle.append(callback)

    def is_stream_free(self, stream: int) -> bool:
        return stream not in self.sources and stream not in self.sinks

    @staticmethod
    def count_readable(fd: int) -> int:
        """Bytes in a pipe right now."""
        return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), "little")

    def run(self) -> None:
        """Until a callback raises."""
        patience = _PATIENCE
        while True:
            events = self._epoll.poll(0 if self._idle else self._next_delay())
            for fd, bits in events:
                # A callback of this round may have closed the descriptor; a spurious call finds nothing to read.
                callback = self._callbacks.get(fd)
                if callback is not None:
                    callback(bits)
            if self._idle:
                patience -= 1
                if not events or patience <= 0:
                    self._idle.popleft()()
                    patience = _PATIENCE
            self._run_timers()
            self.flush()

    def _next_delay(self) -> float:
        timers = self._timers
        while timers and timers[0].callback is None:
            heappop(timers)
        if not timers:
            return -1.0
        return max(timers[0].due - time.monotonic(), 0.0)

    def _run_timers(self) -> None:
        if not self._timers:
            return
        now = time.monotonic()
        while self._timers and self._timers[0].due <= now:
            callback = heappop(self._timers).callback
            if callback is not None:
                callback()

    def flush(self) -> None:
        outbox = self.outbox
        outbox.flush()
        while self.stalled and not outbox.is_congested:
            stalled, self.stalled = self.stalled, []
            for source in stalled:
                source.resume()
            outbox.flush()
            if outbox.is_blocked:  # then its end wakes us; else nothing would, and who still waits is asked again
                break
        if outbox.is_blocked != self._is_out_watched:
            self._is_out_watched = outbox.is_blocked
            if outbox.is_blocked:
                self.watch(outbox.fd, _EPOLLOUT, self._on_writable)
            else:
                self.unwatch(outbox.fd)

    def _on_writable(self, _: int) -> None:
        pass  # run() flushes after every round
