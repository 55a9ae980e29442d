"""The container's first process: reads the host's frames, answers them, reaps, and ends the box when the host is gone.

One thread, one epoll loop. It never opens a path of the workspace, never decodes output, and never waits for anybody.
"""

import gc
import os
import sys
import time

from corral_protocol import PROTOCOL_VERSION
from corral_protocol.framing import CHUNK_TYPE, FrameDecoder, parse_chunk
from corral_toolbox import __version__, environment, ground
from corral_toolbox.call import Call
from corral_toolbox.channel import wire
from corral_toolbox.channel.request import ExecRequest
from corral_toolbox.file_pool import FilePool
from corral_toolbox.kernel import counter, disposition, landlock, notify, syscall, terminal
from corral_toolbox.kernel.oom_score import OomScore
from corral_toolbox.pool import Pool
from corral_toolbox.population import Population
from corral_toolbox.rest import Rest
from corral_toolbox.stats import build_stats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from corral_toolbox.forked.usage import Used
    from corral_toolbox.loop import Loop, Timer
    from corral_toolbox.tunnel import Tunnel

_READ_BYTES = 64 << 10
"""What the pipe from the engine holds."""
FIRST_LEASE_S = 60.0
"""Before the greeting says how long."""
EXIT_END, EXIT_LEASE, EXIT_TERM = 0, 75, 143


class End(Exception):
    """The box ends, with this exit status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


PROCESS_RECORD = "process_record"
"""The capability to tell what is started and connected to."""


class Box:
    """What `hello` told: whose commands run, where."""

    def __init__(self, raw: wire.Message) -> None:
        params = wire.Params(raw)
        protocol = params.take_int("protocol", None, 0, wire.MAX_ID)
        if protocol != PROTOCOL_VERSION:
            text = f"this toolbox speaks protocol {PROTOCOL_VERSION}, not {protocol}"
            raise wire.Refusal(wire.UNSUPPORTED, text, {"protocol": PROTOCOL_VERSION})
        # SECURITY: never 0: untrusted code is never root, not even a root without capabilities (test_server.py).
        self.uid = params.take_int("uid", None, 1, 0xFFFFFFFE)
        self.gid = params.take_int("gid", None, 1, 0xFFFFFFFE)
        self.workspace = params.take_name("workspace", "/workspace")
        self.home = params.take_name("home", "/home/box")
        env = params.take_env("env")
        self.lease_s = params.take_seconds("lease_s", 60.0) or 60.0
        self.spares = params.take_int("spare_supervisors", 2, 1, 64)
        self.max_calls = params.take_int("max_calls", 64, 1, 1024)
        is_watched = params.take_bool("watch", True)
        params.done()
        if not self.workspace.startswith(b"/") or not self.home.startswith(b"/"):
            raise wire.Refusal(wire.INVALID_ARGUMENT, "workspace and home must be absolute")
        search = env.get(b"PATH", environment.PATH)
        self.shell = environment.find_shell(search)
        self.programs = environment.list_programs(self.shell, search)
        self.env = environment.build_base(self.home, self.shell, env)
        self.why_unwatched = notify.explain_missing() if is_watched else "nobody asked for it"
        """Why processes and connections are not recorded; "" when they are."""
        self.has_trees = syscall.has_subreapers()
        """What a call starts stays below its supervisor. Else an orphan is this process's, and nobody knows whose."""
        self.roots: list[tuple[bytes, bool]] = [(self.workspace, True), (b"/tmp", True)]


class Server:
    box: Box
    pool: Pool
    files: FilePool
    population: Population
    rest: Rest
    _lease: "Timer"

    def __init__(self, loop: "Loop", open_files: int) -> None:
        self.loop = loop
        self.counters = counter.Counters()
        self.calls: dict[int, Call] = {}
        self.lingering: dict[int, Call] = {}
        self.used = (0, 0)
        """Processes that ran a program, and bytes written, of the calls of which nothing is left."""
        self._file_requests: set[int] = set()
        self._open_files = open_files
        self._decoder = FrameDecoder()
        # Kept: an allocation of this size is a mapping made and unmade for every message.
        self._incoming = memoryview(bytearray(_READ_BYTES))
        self._started_at = self._heard_at = time.monotonic()
        self._is_greeted = False
        self._tunnel: Tunnel | None = None
        self.watch_lease()
        self._methods: dict[str, Callable[[int, wire.Message], None]] = {
            wire.PING: self._ping,
            wire.EXEC: self._exec,
            wire.CANCEL: self._cancel,
            wire.FREEZE: self._freeze,
            wire.THAW: self._thaw,
            wire.KILL_ALL: self._kill_all,
            wire.STATS: self._stats,
            wire.LISTEN: self._listen,
            wire.DIAL: self._dial,
        }

    # Frames in.

    def on_readable(self, _: int) -> None:
        try:
            size = os.readv(0, [self._incoming])
        except BlockingIOError:
            return
        except OSError as error:
            raise End(EXIT_END, f"reading from the host: {error}") from None
        if not size:
            raise End(EXIT_END, "the host has closed the channel")
        self._heard_at = time.monotonic()
        for payload in self._decoder.feed(self._incoming[:size]):
            if payload[0] == CHUNK_TYPE:
                stream, chunk = parse_chunk(payload)
                sink = self.loop.sinks.get(stream)
                if sink is not None:  # else its reader has gone, and the host does not know yet
                    sink.put(chunk)
            else:
                self._on_message(payload)

    def _on_message(self, payload: bytes) -> None:
        message = wire.parse_message(payload)
        method, params, request_id = message.get("method"), message.get("params", {}), message.get("id")
        if type(method) is not str or type(params) is not dict:
            raise wire.Violation("a message without method or with params that are no object")
        if request_id is None:
            self._on_notice(method, params)
            return
        if type(request_id) is not int or not 0 <= request_id <= wire.MAX_ID:
            raise wire.Violation(f"not an id: {request_id!r:.100}")
        if request_id in self.calls or request_id in self.lingering or request_id in self._file_requests:
            raise wire.Violation(f"id {request_id} is in use")
        try:
            self._dispatch(request_id, method, params, payload)
        except wire.Refusal as refusal:
            self.answer(request_id, wire.encode_error(request_id, refusal.code, str(refusal), refusal.details))

    def _dispatch(self, request_id: int, method: str, params: wire.Message, payload: bytes) -> None:
        if method == wire.HELLO:
            self._hello(request_id, params)
        elif not self._is_greeted:
            raise wire.Refusal(wire.INVALID_ARGUMENT, "hello comes first")
        elif method in wire.FILE_METHODS:
            self._file_request(request_id, method, params, payload)
        elif method in self._methods:
            self._methods[method](request_id, params)
        else:
            raise wire.Refusal(wire.UNKNOWN_METHOD, f"no method is called {method!r:.100}")

    def _on_notice(self, method: str, params: wire.Message) -> None:
        stream = params.get("stream")
        if method == wire.CREDIT:
            count = params.get("bytes")
            if type(stream) is not int or type(count) is not int or not 0 < count <= wire.MAX_ID:
                raise wire.Violation("a credit that is none")
            source = self.loop.sources.get(stream)
            if source is not None:
                source.add_credit(count)
        elif method == wire.CLOSE:
            sink = self.loop.sinks.get(stream) if type(stream) is int else None
            if sink is not None:
                sink.close()
        elif method == wire.GO:
            request_id = params.get("id")
            call = self.calls.get(request_id) if type(request_id) is int else None
            if call is not None:
                call.go()
        elif method in (wire.SIGNAL, wire.RESIZE):
            self._steer(method, params)
        elif method == wire.RESET and self._tunnel is not None and type(stream) is int:
            self._tunnel.reset(stream)

    def _steer(self, method: str, params: wire.Message) -> None:
        """A signal or a size for a command that runs; one that is over is no error."""
        try:
            taken = wire.Params(params)
            call = self.calls.get(taken.take_int("id", None, 0, wire.MAX_ID))
            if method == wire.SIGNAL:
                number = taken.take_int("signal", None, 1, 31)
                if call is not None:
                    call.signal(number)
            else:
                rows, columns = (taken.take_int(side, None, 1, terminal.MAX_SIDE) for side in ("rows", "columns"))
                if call is not None:
                    call.resize(rows, columns)
            taken.done()
        except wire.Refusal as refusal:
            raise wire.Violation(f"{method}: {refusal}") from None

    def answer(self, request_id: int, frame: bytes) -> None:
        self._file_requests.discard(request_id)
        self.loop.outbox.put_control(frame)

    def _reply(self, request_id: int, result: wire.Message) -> None:
        self.answer(request_id, wire.encode_result(request_id, result))

    # Methods.

    def _hello(self, request_id: int, params: wire.Message) -> None:
        if self._is_greeted:
            raise wire.Refusal(wire.INVALID_ARGUMENT, "hello was said already")
        box = Box(params)
        # SECURITY: test_an_image_cannot_lead_the_boxs_directories_over_the_toolbox
        if fault := ground.find_fault():
            raise wire.Refusal(wire.UNSUPPORTED, fault)
        try:
            environment.write_accounts(box.uid, box.gid, box.home, box.shell)
            environment.make_home(box.uid, box.gid, box.home)
            score = OomScore()
        except OSError as error:
            raise wire.Refusal(wire.IO_ERROR, f"cannot use {error.filename!r}: {error.strerror}") from None
        # SECURITY: before anything is forked, or that is not held (test_landlock.py). Without /proc: there a command
        # could make itself worthier of memory than this process (tests/security/test_attacks.py).
        is_confined = landlock.confine([box.workspace, box.home, b"/tmp", b"/dev/shm"], [b"/dev"])
        self.box = box
        self.pool = Pool(self.loop, box, self._open_files, score)
        self.files = FilePool(self)
        self.population = Population(self.loop, self.pool, self.files, has_trees=box.has_trees)
        self.rest = Rest(self.loop, self.pool, self.files, self.population)
        self._is_greeted = True
        self._reply(
            request_id,
            {
                "protocol": PROTOCOL_VERSION,
                "version": __version__,
                "boot_id": counter.read_boot_id(),
                "python": sys.version.split()[0],
                "has_shell": wire.show_name(box.shell),
                "workspace_root": environment.list_root(box.workspace, box.uid, box.gid),
                "capabilities": [
                    *("exec", "files", "freeze", "stats", "tunnel"),
                    *([] if box.why_unwatched else [PROCESS_RECORD]),
                    *(["landlock"] if is_confined else []),
                    *(["process_trees"] if box.has_trees else []),
                    *(["counters"] if self.counters.layout else []),
                    *(["host_kernel"] if syscall.has_file_ids() else []),
                    *(["filter"] if syscall.is_filtered() else []),
                    *box.programs,
                ],
                "cgroup": self.counters.layout,
            },
        )
        gc.freeze()  # forks share what exists now instead of copying it at the first collection
        self.pool.refill()
        self.files.refill()
        self.rest.postpone()
        self._lease.cancel()
        self.watch_lease()

    def watch_lease(self) -> None:
        """From the start: a box of a pool waits long for its greeting, which then names a lease of its own."""
        lease_s = self.box.lease_s if self._is_greeted else FIRST_LEASE_S
        left_s = self._heard_at + lease_s - time.monotonic()
        if left_s <= 0:
            raise End(EXIT_LEASE, f"nothing heard from the host for {lease_s:g} s")
        self._lease = self.loop.after(left_s, self.watch_lease)

    def _ping(self, request_id: int, params: wire.Message) -> None:
        wire.Params(params).done()
        room = counter.read_room(self.box.workspace)
        self._reply(
            request_id,
            {
                "uptime_s": round(time.monotonic() - self._started_at, 3),
                "used_bytes": room[0],
                "used_inodes": room[1],
                "free_bytes": room[2],
            },
        )

    def _exec(self, request_id: int, params: wire.Message) -> None:
        request = ExecRequest(params)
        if self.population.is_frozen:
            raise wire.Refusal(wire.BUSY, "the box is frozen")
        if len(self.calls) >= self.box.max_calls:
            raise wire.Refusal(wire.BUSY, f"{self.box.max_calls} calls are running")
        if request.shell and not self.box.shell:
            raise wire.Refusal(wire.UNSUPPORTED, "this image has no shell")
        for stream in (request.stdin, request.stdout, request.stderr):
            self._check_stream(stream)
        self.rest.postpone()
        call = self.calls[request_id] = Call(self, request_id, request)
        try:
            call.start()
        except OSError as error:
            call.refuse(*_explain_start(error))

    def _check_stream(self, stream: int) -> None:
        if stream and not self.loop.is_stream_free(stream):
            raise wire.Refusal(wire.INVALID_ARGUMENT, f"stream {stream} is in use")

    def _file_request(self, request_id: int, method: str, params: wire.Message, payload: bytes) -> None:
        stream: object = 0
        if method in wire.SENDING or method in wire.RECEIVING:
            stream = params.get("stream")
            if type(stream) is not int or not 0 < stream <= 0xFFFFFFFF:
                raise wire.Refusal(wire.INVALID_ARGUMENT, f"not a stream: {stream!r:.100}")
            self._check_stream(stream)
        assert type(stream) is int
        self.rest.postpone()
        self._file_requests.add(request_id)
        self.files.submit(request_id, method, payload, stream)

    def _cancel(self, request_id: int, params: wire.Message) -> None:
        taken = wire.Params(params)
        target = taken.take_int("id", None, 0, wire.MAX_ID)
        taken.done()
        call = self.calls.get(target) or self.lingering.get(target)
        if call is not None:
            call.end(wire.KILLED)
        else:
            self.files.cancel(target)  # one that has just been answered is no error
        self._reply(request_id, {})

    def _listen(self, request_id: int, params: wire.Message) -> None:
        from corral_toolbox.tunnel import Tunnel  # late: a box without network has none of it

        taken = wire.Params(params)
        listeners, most = taken.take_int("listeners", None, 0, 8), taken.take_int("max_streams", None, 1, 1024)
        taken.done()
        if self._tunnel is not None:
            raise wire.Refusal(wire.INVALID_ARGUMENT, "the tunnel is open already")
        try:
            self._tunnel = Tunnel(self.loop, listeners, most)
        except OSError as error:
            raise wire.Refusal(wire.IO_ERROR, f"cannot listen on loopback: {error.strerror}") from None
        self._reply(request_id, {"ports": list(self._tunnel.ports)})

    def _dial(self, request_id: int, params: wire.Message) -> None:
        taken = wire.Params(params)
        stream = taken.take_int("stream", None, wire.FIRST_DIALED_STREAM, 0xFFFFFFFF)
        port = taken.take_int("port", None, 1, 0xFFFF)
        taken.done()
        self._check_stream(stream)
        if self._tunnel is None:
            raise wire.Refusal(wire.INVALID_ARGUMENT, "the tunnel is not open")

        def finish(problem: str) -> None:
            if problem:
                self.answer(request_id, wire.encode_error(request_id, wire.IO_ERROR, problem))
            else:
                self._reply(request_id, {})

        self._tunnel.dial(stream, port, finish)

    def _freeze(self, request_id: int, params: wire.Message) -> None:
        wire.Params(params).done()
        self.population.freeze(
            lambda stopped, running: self._reply(request_id, {"stopped": stopped, "unstoppable": running})
        )

    def _thaw(self, request_id: int, params: wire.Message) -> None:
        wire.Params(params).done()
        self.population.thaw()
        for call in list(self.calls.values()):
            call.thawed()
        self._reply(request_id, {})

    def _kill_all(self, request_id: int, params: wire.Message) -> None:
        wire.Params(params).done()
        for call in list(self.calls.values()):
            call.mark(wire.KILLED)

        def finish(is_empty: bool) -> None:
            if is_empty:
                self._reply(request_id, {})
            else:
                self.answer(request_id, wire.encode_error(request_id, wire.TIMEOUT, "processes are still dying"))

        self.population.kill_all(finish)

    def _stats(self, request_id: int, params: wire.Message) -> None:
        wire.Params(params).done()
        self._reply(request_id, build_stats(self))

    def count(self, used: "Used") -> None:
        """A call of which nothing is left."""
        self.used = self.used[0] + used[4], self.used[1] + used[3]

    def find_full(self) -> list[str]:
        """Which of the places that a command may write to have no room left."""
        box = self.box
        places = {"workspace": box.workspace, "tmp": b"/tmp", "home": box.home, "shm": b"/dev/shm"}
        return [name for name, path in places.items() if counter.is_full(path)]

    def on_signal(self, reader: int) -> None:
        try:
            numbers = os.read(reader, 4096)
        except BlockingIOError:
            return
        if disposition.SIGTERM in numbers:
            raise End(EXIT_TERM, "SIGTERM")
        if self._is_greeted:
            self.population.reap()


def _explain_start(error: OSError) -> tuple[str, str]:
    code = wire.PIDS_EXHAUSTED if isinstance(error, BlockingIOError) else wire.IO_ERROR
    return code, f"cannot start a process: {error.strerror}"
