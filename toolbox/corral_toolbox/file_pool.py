"""File requests as the first process sees them: which worker has which, the pipe of its stream, its time limit."""

import _socket
import os

from corral_protocol.framing import HEADER, MAX_CONTROL_BYTES
from corral_toolbox.channel import wire
from corral_toolbox.channel.stream import Sink, Source
from corral_toolbox.forked.child import fork_into
from corral_toolbox.forked.file_worker import run_worker
from corral_toolbox.kernel import process, syscall
from corral_toolbox.lean import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_toolbox.loop import Timer
    from corral_toolbox.server import Server

_EPOLLIN = 1
_EPOLLOUT = 4
_MAX_WORKERS = 8
_RESERVE_S = 0.02
"""A plain request is answered long before; only a worker that is busy for longer needs another one in reserve."""
_MAX_WAITING = 256
_LIMIT_S = 5.0
"""For a request without a stream. A path can lead to anything: a FIFO, a dead mount, a terabyte."""
_STALL_S = 60.0
"""For one with a stream: without any progress although the host would take or has sent bytes."""
_RETRY_S = 0.25
_NOTHING = memoryview(b"")


class FileRequest:
    def __init__(self, request_id: int, method: str, payload: bytes, stream: int) -> None:
        self.id = request_id
        self.payload = payload
        self.stream = stream
        self.is_sending = method in wire.SENDING
        self.source: Source | None = None
        self.sink: Sink | None = None
        self.progress = 0
        self.timer: Timer | None = None


class Worker:
    def __init__(self, pid: int, control: _socket.socket) -> None:
        self.pid = pid
        self.control = control
        self.request: FileRequest | None = None
        self.incoming = bytearray()
        self.outgoing = _NOTHING
        self.is_open = True


class FilePool:
    def __init__(self, server: "Server") -> None:
        self._server = server
        self._idle: list[Worker] = []
        self._by_pid: dict[int, Worker] = {}
        self._waiting: deque[FileRequest] = deque()
        self._is_refilling = False

    @property
    def pids(self) -> set[int]:
        return set(self._by_pid)

    def submit(self, request_id: int, method: str, payload: bytes, stream: int) -> None:
        """Take a request; the answer follows. Raises Refusal when too many wait."""
        if len(self._waiting) >= _MAX_WAITING:
            raise wire.Refusal(wire.BUSY, f"{_MAX_WAITING} file requests are waiting")
        self._waiting.append(FileRequest(request_id, method, payload, stream))
        self._serve_waiting()

    def cancel(self, request_id: int) -> bool:
        """End a request; True when it was one of ours."""
        for request in self._waiting:
            if request.id == request_id:
                self._waiting.remove(request)
                self._refuse(request, wire.CANCELLED, "cancelled")
                return True
        for worker in list(self._by_pid.values()):
            if worker.request is not None and worker.request.id == request_id:
                self._fail(worker, wire.CANCELLED, "cancelled")
                return True
        return False

    def _serve_waiting(self) -> None:
        while self._waiting:
            # A worker in reserve was made when the last one was taken; under a full process table this one fails,
            # and the requests wait for a worker that comes back.
            if not self._idle and (len(self._by_pid) >= _MAX_WORKERS or not self._spawn()):
                break
            self._assign(self._idle.pop(), self._waiting.popleft())
        if self._waiting and not self._by_pid:
            while self._waiting:
                self._refuse(self._waiting.popleft(), wire.PIDS_EXHAUSTED, "no process can be started for this")
        self.refill()

    def refill(self) -> None:
        """Keep one worker idle: what answers when nothing can be forked any more."""
        if not self._idle and len(self._by_pid) < _MAX_WORKERS:
            self._refill_after(_RESERVE_S if self._by_pid else 0.0)

    def _refill_one(self) -> None:
        self._is_refilling = False
        if not self._idle and len(self._by_pid) < _MAX_WORKERS and not self._spawn():
            self._refill_after(_RETRY_S)
        if self._idle and self._waiting:
            self._serve_waiting()

    def _refill_after(self, delay_s: float) -> None:
        if not self._is_refilling:
            self._is_refilling = True
            self._server.loop.after(delay_s, self._refill_one)

    def renew(self) -> None:
        """At rest one worker is enough, a new one: others hold what their requests made them load."""
        old = list(self._idle)
        if old and not self._spawn():
            old = old[1:]
        for worker in old:
            self._discard(worker)

    def _spawn(self) -> bool:
        box = self._server.box
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            pid = fork_into(theirs.fileno(), lambda: run_worker(box.uid, box.gid, box.workspace, box.roots))
        except OSError:
            ours.close()
            return False
        finally:
            theirs.close()
        ours.setblocking(False)
        worker = Worker(pid, ours)
        self._by_pid[pid] = worker
        self._idle.append(worker)
        self._server.loop.watch(ours.fileno(), _EPOLLIN, lambda events: self._on_ready(worker, events))
        return True

    def _assign(self, worker: Worker, request: FileRequest) -> None:
        worker.request = request
        files: list[int] = []
        if request.stream:
            files.append(self._open_stream(request))
        request.timer = self._server.loop.after(_STALL_S if request.stream else _LIMIT_S, lambda: self._check(worker))
        frame = HEADER.pack(len(request.payload)) + request.payload
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fd.to_bytes(4, "little")) for fd in files]
        try:
            sent = worker.control.sendmsg([frame], ancillary)
        except OSError as error:
            self._fail(worker, wire.INTERNAL, f"a worker is gone: {error}")
            return
        finally:
            for fd in files:
                os.close(fd)
        if sent < len(frame):
            worker.outgoing = memoryview(frame)[sent:]
            self._rewatch(worker, _EPOLLIN | _EPOLLOUT)

    def _rewatch(self, worker: Worker, events: int) -> None:
        loop = self._server.loop
        loop.unwatch(worker.control.fileno())
        loop.watch(worker.control.fileno(), events, lambda events: self._on_ready(worker, events))

    def _open_stream(self, request: FileRequest) -> int:
        loop, box = self._server.loop, self._server.box
        syscall.lend_ids(box.uid, box.gid)
        try:
            reader, writer = os.pipe()
        finally:
            syscall.lend_ids(0, 0)
        if request.is_sending:
            os.set_blocking(reader, False)
            request.source = loop.sources[request.stream] = Source(loop, reader, request.stream, -1, None)
            return writer
        os.set_blocking(writer, False)
        request.sink = loop.sinks[request.stream] = Sink(loop, writer, request.stream)
        return reader

    def _on_ready(self, worker: Worker, events: int) -> None:
        if events & _EPOLLOUT and worker.outgoing:
            try:
                worker.outgoing = worker.outgoing[worker.control.send(worker.outgoing) :]
            except BlockingIOError:
                pass
            except OSError:
                self._fail(worker, wire.INTERNAL, "a worker is gone")
                return
            if not worker.outgoing:
                worker.outgoing = _NOTHING  # an empty rest of a frame holds all of it
                self._rewatch(worker, _EPOLLIN)
        if events & ~_EPOLLOUT:
            self._receive(worker)

    def _receive(self, worker: Worker) -> None:
        try:
            data = worker.control.recv(256 << 10)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._fail(worker, wire.INTERNAL, "a worker has ended")
            return
        incoming = worker.incoming
        incoming += data
        if len(incoming) >= 4 and len(incoming) >= 4 + HEADER.unpack_from(incoming)[0]:
            frame = bytes(incoming)
            incoming.clear()
            self._finish(worker, frame)

    def _finish(self, worker: Worker, frame: bytes) -> None:
        request, worker.request = worker.request, None
        if len(frame) > 4 + MAX_CONTROL_BYTES or request is None:
            raise AssertionError("a worker broke the rules")
        self._close_request(request, "")
        self._server.answer(request.id, frame)
        self._idle.append(worker)
        self._serve_waiting()

    def _close_request(self, request: FileRequest, error: str) -> None:
        if request.timer is not None:
            request.timer.cancel()
        if request.source is not None:
            if error:
                request.source.end(error)
            else:
                request.source.finish()
        if request.sink is not None:
            request.sink.abandon()
            self._server.loop.sinks.pop(request.stream, None)

    def _refuse(self, request: FileRequest, code: str, text: str) -> None:
        self._close_request(request, code)
        self._server.answer(request.id, wire.encode_error(request.id, code, text))

    def _fail(self, worker: Worker, code: str, text: str) -> None:
        """Kill a worker; its request, if any, is answered with the error."""
        request, worker.request = worker.request, None
        self._discard(worker)
        process.signal_process(worker.pid, process.SIGKILL)
        if request is not None:
            self._refuse(request, code, text)
        self._refill_after(_RETRY_S)  # a worker that cannot live must not be made in a tight circle

    def _discard(self, worker: Worker) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
        if worker.is_open:
            worker.is_open = False
            self._server.loop.unwatch(worker.control.fileno())
            worker.control.close()

    def _check(self, worker: Worker) -> None:
        """The time limit of a worker's request is over: was there progress, or is it the host that lets it wait?"""
        request = worker.request
        if request is None:
            return
        is_waiting_for_host, progress = False, 0
        if request.source is not None:
            is_waiting_for_host, progress = not request.source.has_credit, request.source.streamed
        elif request.sink is not None:
            is_waiting_for_host, progress = request.sink.is_starving, request.sink.written
        if is_waiting_for_host or progress != request.progress:
            request.progress = progress
            request.timer = self._server.loop.after(_STALL_S, lambda: self._check(worker))
        else:
            limit_s = _STALL_S if request.stream else _LIMIT_S
            self._fail(worker, wire.TIMEOUT, f"no answer within {limit_s:g} s")

    def reaped(self, pid: int) -> bool:
        """A child of the first process has ended; True when it was a worker."""
        worker = self._by_pid.pop(pid, None)
        if worker is None:
            return False
        if worker.is_open:
            self._receive(worker)
        if worker.is_open:
            self._fail(worker, wire.INTERNAL, "a worker was killed")
        return True
