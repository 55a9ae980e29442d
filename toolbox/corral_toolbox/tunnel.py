"""The box's end of the tunnel: ports on loopback whose connections are streams to the host, and connections to ports of
the box that the host asks for. Bytes under credit in both directions; nothing is parsed here.
"""

import _socket
import os
import time
from collections import deque

from corral_protocol.framing import MAX_CHUNK_BYTES
from corral_toolbox.channel import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from corral_toolbox.loop import Loop

_EPOLLIN, _EPOLLOUT = 1, 4
_EINPROGRESS = 115
_BACKLOG = 128
_READS_PER_EVENT = 4
_GRANT_BYTES = 64 << 10
_DIAL_S = 5.0
_RETRY_S = 0.5
_BURST, _BURST_S = 5000, 0.1
"""Pieces that may go to the host in that time: the host ends a box that sends twice as many. Bulk, which comes in large
chunks, never gets there; single bytes of many programs might."""
_CONNECTION_COST = 15
"""Pieces that one connection is worth for the messages of its begin and its end."""
_LOOPBACK = ((_socket.AF_INET, "127.0.0.1"), (_socket.AF_INET6, "::1"))


class Tunnel:
    def __init__(self, loop: "Loop", listeners: int, max_streams: int) -> None:
        """Raises OSError."""
        self.loop = loop
        self._max_streams = max_streams
        self._streams: dict[int, Stream] = {}
        self._next = wire.FIRST_OPENED_STREAM
        self._is_accepting = False
        self._spent = 0
        self._spent_since = 0.0
        self._held_back: list[Stream] = []
        self._listeners: list[_socket.socket] = []
        for _ in range(listeners):
            listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            listener.setblocking(False)
            listener.bind(("127.0.0.1", 0))
            listener.listen(_BACKLOG)
            self._listeners.append(listener)
        self.ports = [listener.getsockname()[1] for listener in self._listeners]
        self._accept_more()

    def may_send(self, cost: int) -> bool:
        """Whether so many pieces may go out now; counted, if so."""
        now = time.monotonic()
        if now >= self._spent_since + _BURST_S:
            self._spent, self._spent_since = 0, now
        self._spent += cost
        return self._spent <= _BURST

    def hold_back(self, stream: "Stream") -> None:
        """Let a stream go on when the burst is over."""
        if not self._held_back:
            self.loop.after(_BURST_S, self._release)
        self._held_back.append(stream)

    def _release(self) -> None:
        held_back, self._held_back = self._held_back, []
        for stream in held_back:
            stream.resume()

    def _accept_more(self) -> None:
        """Take connections while there is room; the others wait in the kernel's queue."""
        has_room = len(self._streams) < self._max_streams
        if has_room == self._is_accepting:
            return
        self._is_accepting = has_room
        for index, listener in enumerate(self._listeners):
            if has_room:
                self.loop.watch(listener.fileno(), _EPOLLIN, lambda _, index=index: self._accept(index))  # type: ignore[misc]
            else:
                self.loop.unwatch(listener.fileno())

    def _accept(self, index: int) -> None:
        while self._is_accepting:
            if not self.may_send(_CONNECTION_COST):
                self._pause(_BURST_S)
                return
            try:
                fd, _ = self._listeners[index]._accept()  # type: ignore[attr-defined]  # what socket.accept is made of
            except BlockingIOError:
                self._spent -= _CONNECTION_COST
                return
            except OSError:  # no descriptor, or the client has gone
                self._pause(_RETRY_S)
                return
            number, self._next = self._next, self._next + 1
            notice: wire.Message = {"stream": number, "listener": index}
            self.loop.outbox.put_behind_data(wire.encode_notice(wire.OPEN, notice))
            self._add(number, _socket.socket(fileno=fd))

    def _pause(self, delay_s: float) -> None:
        if self._is_accepting:
            self._is_accepting = False
            for listener in self._listeners:
                self.loop.unwatch(listener.fileno())
            self.loop.after(delay_s, self._accept_more)

    def _add(self, number: int, sock: _socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        self._streams[number] = Stream(self, sock, number)
        self._accept_more()

    def dial(self, number: int, port: int, finish: "Callable[[str], None]") -> None:
        """Connect to a port of the box; `finish` gets what went wrong, or "" with the stream open."""
        if port in self.ports:
            finish("that port is the tunnel's own")
        elif len(self._streams) >= self._max_streams:
            finish(f"{self._max_streams} streams are open")
        else:
            self._dial_next(number, port, finish, list(_LOOPBACK))

    def _dial_next(
        self, number: int, port: int, finish: "Callable[[str], None]", places: list[tuple[int, str]]
    ) -> None:
        family, address = places.pop(0)

        def go_on(error: int) -> None:
            if places:
                self._dial_next(number, port, finish, places)
            else:
                finish(f"cannot connect to port {port} in the box: {os.strerror(error)}")

        try:
            sock = _socket.socket(family, _socket.SOCK_STREAM)
        except OSError as error:  # a kernel without IPv6, or no descriptor
            go_on(error.errno or 0)
            return
        sock.setblocking(False)
        state = sock.connect_ex((address, port))

        def settle(error: int) -> None:
            if error:
                sock.close()
                go_on(error)
            else:
                self._add(number, sock)
                finish("")

        if state != _EINPROGRESS:
            settle(state)
            return

        def on_ready(_: int) -> None:
            timer.cancel()
            self.loop.unwatch(sock.fileno())
            settle(sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR))

        def on_late() -> None:
            self.loop.unwatch(sock.fileno())
            settle(110)  # ETIMEDOUT

        timer = self.loop.after(_DIAL_S, on_late)
        self.loop.watch(sock.fileno(), _EPOLLOUT, on_ready)

    def reset(self, number: int) -> None:
        """The host takes no more."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.abandon(is_told=True)

    def retire(self, number: int) -> None:
        self._streams.pop(number, None)
        self._accept_more()


class Stream:
    """One connection. Each direction ends once: ours by a close to the host, the other by the host's close."""

    def __init__(self, tunnel: Tunnel, sock: _socket.socket, number: int) -> None:
        self._tunnel = tunnel
        self._loop = tunnel.loop
        self._sock = sock
        self._number = number
        self._is_open = True  # the socket
        self._is_sending = True  # the host has not been told the end
        self._is_receiving = True  # the host has not told its end
        self._is_stalled = False
        self._credit = wire.INITIAL_CREDIT
        self._sent = 0
        self._window = wire.INITIAL_CREDIT
        self._owed = 0
        self._queue: deque[memoryview] = deque()
        self._events = 0
        self._loop.sources[number] = self
        self._loop.sinks[number] = self
        self._watch()

    def _watch(self) -> None:
        wanted = 0
        if self._is_open:
            if self._is_sending and self._credit and not self._is_stalled:
                wanted |= _EPOLLIN
            if self._queue:
                wanted |= _EPOLLOUT
        if wanted == self._events:
            return
        fd = self._sock.fileno()
        if not wanted:
            self._loop.unwatch(fd)  # a mask of nothing would still wake us for a dead peer, again and again
        elif not self._events:
            self._loop.watch(fd, wanted, self._on_ready)
        else:
            self._loop.rewatch(fd, wanted)
        self._events = wanted

    def _on_ready(self, events: int) -> None:
        if self._queue and events & ~_EPOLLIN:
            self._write()
        if self._is_open and self._is_sending and events & ~_EPOLLOUT:
            self._read()
        self._watch()

    # From the box to the host.

    def _read(self) -> None:
        for _ in range(_READS_PER_EVENT):
            if not self._credit:
                return
            if self._loop.outbox.is_busy:  # earlier than the outputs of commands, which pass by
                self._is_stalled = True
                self._loop.stalled.append(self)
                return
            if not self._tunnel.may_send(1):
                self._is_stalled = True
                self._tunnel.hold_back(self)
                return
            try:
                data = self._sock.recv(min(MAX_CHUNK_BYTES, self._credit))
            except BlockingIOError:
                return
            except OSError:
                self.abandon()
                return
            if not data:
                self._end_sending("")
                return
            self._credit -= len(data)
            self._sent += len(data)
            self._loop.outbox.put_data(self._number, data)

    def add_credit(self, count: int) -> None:
        self._credit += count
        self._watch()

    def resume(self) -> None:
        """There may be room in the queue to the host again."""
        if self._loop.outbox.is_busy:
            self._loop.stalled.append(self)
            return
        self._is_stalled = False
        self._watch()

    def _end_sending(self, error: str) -> None:
        if not self._is_sending:
            return
        self._is_sending = False
        self._loop.sources.pop(self._number, None)
        closing: wire.Message = {"stream": self._number, "total": self._sent, "error": error}
        self._loop.outbox.put_behind_data(wire.encode_notice(wire.CLOSE, closing))
        self._settle()

    # From the host to the box.

    def put(self, data: memoryview) -> None:
        """A chunk came. Raises Violation when it is more than the credit given."""
        self._window -= len(data)
        if self._window < 0:
            raise wire.Violation(f"stream {self._number} is over its credit")
        if not self._is_open:
            self._give_back(len(data))
        elif data:
            self._queue.append(data)
            if len(self._queue) == 1:
                self._write()
                self._watch()

    def close(self) -> None:
        """The host has sent all: the client sees end-of-file behind the last byte."""
        self._is_receiving = False
        self._loop.sinks.pop(self._number, None)
        if self._is_open and not self._queue:
            self._shut_down()
        self._settle()

    def _write(self) -> None:
        while self._queue:
            first = self._queue[0]
            try:
                written = self._sock.send(first)
            except BlockingIOError:
                return
            except OSError:
                self.abandon()
                return
            if written == len(first):
                self._queue.popleft()
            else:
                self._queue[0] = first[written:]
            self._give_back(written)
        if not self._is_receiving:
            self._shut_down()
            self._settle()

    def _shut_down(self) -> None:
        try:
            self._sock.shutdown(_socket.SHUT_WR)
        except OSError:
            pass  # it has gone: reading tells

    def _give_back(self, count: int) -> None:
        self._owed += count
        if self._owed >= _GRANT_BYTES and self._is_receiving:
            self._window += self._owed
            params: wire.Message = {"stream": self._number, "bytes": self._owed}
            self._owed = 0
            self._loop.outbox.put_control(wire.encode_notice(wire.CREDIT, params))

    # The end.

    def abandon(self, *, is_told: bool = False) -> None:
        """The connection is over in both directions, because of the client or (`is_told`) of the host."""
        if not self._is_open:
            return
        left = sum(map(len, self._queue))
        self._queue.clear()
        if is_told:
            # Closed with data unsent or unread the client sees a reset, not an orderly end.
            self._sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._close_socket()
        if not is_told and self._is_receiving:
            # Behind data: it must not overtake the notice that opened the stream.
            self._loop.outbox.put_behind_data(wire.encode_notice(wire.RESET, {"stream": self._number}))
        self._give_back(left)
        self._end_sending(wire.CANCELLED)
        self._settle()

    def _close_socket(self) -> None:
        if self._events:
            self._events = 0
            self._loop.unwatch(self._sock.fileno())
        self._is_open = False
        self._sock.close()

    def _settle(self) -> None:
        if self._is_sending or self._is_receiving or self._queue:
            return
        if self._is_open:
            self._close_socket()
        self._tunnel.retire(self._number)
