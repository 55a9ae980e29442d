"""One exec: from its request through the running command to its answer, and what it left in the background."""

import _socket
import marshal
import os
import time

from corral_protocol.name import encode_name
from corral_toolbox import environment
from corral_toolbox.channel import wire
from corral_toolbox.channel.stream import Capture, Sink, Source
from corral_toolbox.forked import claim, usage
from corral_toolbox.forked.supervisor import GO, MAX_MESSAGE
from corral_toolbox.kernel import syscall, terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_toolbox.channel.request import ExecRequest
    from corral_toolbox.forked.command import CallFacts, Instruction
    from corral_toolbox.forked.observer import Batch
    from corral_toolbox.forked.usage import Used
    from corral_toolbox.loop import Timer
    from corral_toolbox.pool import Supervisor
    from corral_toolbox.server import Server

_MAX_CWD = 4096
_GRACE_S = 2.0
"""How long an ended tree may take to vanish before its call is answered all the same."""
_END_PATIENCE_S = 0.05
"""The outputs of a command end just before it does: its answer can tell of that, too."""
_EAGAIN = 11


class _Pipe:
    """One pipe between a command and this process."""

    __slots__ = ("numbers", "ours", "stream", "theirs")

    def __init__(self, ours: int, theirs: int, numbers: tuple[int, ...], stream: int) -> None:
        self.ours = ours
        self.theirs = theirs
        self.numbers = numbers
        """Where the command finds its end."""
        self.stream = stream


class Call:
    def __init__(self, server: "Server", request_id: int, request: "ExecRequest") -> None:
        self.id = request_id
        self.notices: list[str] = []
        self._server = server
        self._request = request
        self._supervisor: Supervisor | None = None
        self._started_at = time.monotonic()
        self._oom_kills = 0
        self._pids_refused = 0
        self._sources: list[Source] = []
        self._sink: Sink | None = None
        self._pid = 0
        self._terminal: Source | None = None
        self._cwd_fd = -1
        self._cwd = b""
        self._reason = ""
        """Why the toolbox ended it: `timeout` or `killed`."""
        self._not_started: int | None = None
        self._wait_status: int | None = None
        self._background = 0
        self._unsent = 0
        self.used = usage.NOTHING
        """As far as it is known."""
        self._is_draining = False
        self.is_answered = False
        self._timer: Timer | None = None
        self._is_held = request.hold
        self._is_due = False
        if not request.hold:
            self._start_clock()

    def _start_clock(self) -> None:
        self._started_at = time.monotonic()
        if self._request.timeout_s is not None:
            self._timer = self._server.loop.after(self._request.timeout_s, self._on_timeout)

    # From request to running.

    def start(self) -> None:
        """Hand the command to a waiting supervisor. Raises OSError when no process can be had.

        Everything that can wait until the command is on its way does.
        """
        self._facts, shell_fd = self._build_facts()
        pipes = self._open_pipes(shell_fd)
        theirs = [pipe.theirs for pipe in pipes]
        try:
            self._hand_over((*self._facts, tuple(pipe.numbers for pipe in pipes), self._is_held), theirs)
        except OSError:
            for pipe in pipes:
                os.close(pipe.ours)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self._attach(pipes)
        # Read so late: a program has not even been loaded by now.
        self._oom_kills = self._server.counters.read_oom_kills()
        self._pids_refused = self._server.counters.read_pids_refused()

    def _hand_over(self, instruction: "Instruction", files: list[int]) -> None:
        while True:
            supervisor = self._server.pool.take()
            try:
                _send(supervisor.control, instruction, files)
            except BrokenPipeError:
                self._server.pool.discard(supervisor)
            else:
                self._supervisor = supervisor
                supervisor.call = self
                supervisor.is_held = self._is_held
                return

    def go(self) -> None:
        """The host lets it start; in a box that is frozen, as soon as that ends."""
        supervisor = self._supervisor
        if not self._is_held or supervisor is None:
            return
        self._is_due = self._server.population.is_frozen
        if self._is_due:
            return
        self._is_held = supervisor.is_held = False
        self._start_clock()
        if supervisor.is_open:
            try:
                supervisor.control.send(GO)
            except BrokenPipeError:
                pass  # its end is told by wait

    def thawed(self) -> None:
        if self._is_due:
            self.go()

    def _let_loose(self) -> None:
        """Its command is held and will never start: the supervisor ends, and nothing ran."""
        supervisor, self._supervisor, self._is_held = self._supervisor, None, False
        if supervisor is not None:
            supervisor.call = None
            self._server.pool.discard(supervisor)

    def _build_facts(self) -> tuple["CallFacts", int]:
        box, request = self._server.box, self._request
        env = dict(box.env)
        env.update(request.env)
        environment.trust_mount_point(env, box.workspace)
        path, argv, shell_fd = b"", request.argv, -1
        if request.shell:
            path = box.shell
            argv, shell_fd = environment.build_shell_call(path, argv[0], env)
        cwd = os.path.normpath(os.path.join(box.workspace, request.cwd))
        return (path, argv, env, cwd, box.workspace, request.umask, box.uid, box.gid), shell_fd

    def _open_pipes(self, shell_fd: int) -> list["_Pipe"]:
        request, box = self._request, self._server.box
        wanted = [(request.stdout, (1, 2) if request.merge_stderr else (1,))]
        if not request.merge_stderr:
            wanted.append((request.stderr, (2,)))
        if request.rows:
            wanted = []
        # Owned by the untrusted user, so that its programs can open /dev/stdout and /dev/stderr by name.
        syscall.lend_ids(box.uid, box.gid)
        try:
            pipes = [_Pipe(*os.pipe(), numbers, stream) for stream, numbers in wanted]
            if request.rows:
                ends = terminal.open_terminal(request.rows, request.columns)
                pipes.append(_Pipe(*ends, (0, 1, 2), request.stdout))
            elif request.stdin:
                theirs, ours = os.pipe()
                pipes.append(_Pipe(ours, theirs, (0,), request.stdin))
            if shell_fd >= 0:
                pipes.append(_Pipe(*os.pipe(), (shell_fd,), 0))
        finally:
            syscall.lend_ids(0, 0)
        return pipes

    def _attach(self, pipes: list["_Pipe"]) -> None:
        loop, request = self._server.loop, self._request
        for pipe in pipes:
            os.set_blocking(pipe.ours, False)
            if request.rows and request.stdin and 0 in pipe.numbers:
                self._sink = loop.sinks[request.stdin] = Sink(loop, os.dup(pipe.ours), request.stdin)
            if pipe.numbers == (0,):
                self._sink = loop.sinks[pipe.stream] = Sink(loop, pipe.ours, pipe.stream)
            elif pipe.numbers[0] <= 2:
                capture = Capture(request.head_bytes, request.tail_bytes)
                source = Source(loop, pipe.ours, pipe.stream, request.stream_limit, capture, _END_PATIENCE_S)
                self._sources.append(source)
                if request.rows:
                    self._terminal = source
                if pipe.stream:
                    loop.sources[pipe.stream] = source
            else:
                self._cwd_fd = pipe.ours

    # What its supervisor tells.

    def on_broken(self, error: int, text: str) -> None:
        """The child could not be made: nothing ran."""
        self._supervisor = None
        code = wire.PIDS_EXHAUSTED if error == _EAGAIN else wire.INTERNAL
        self.refuse(code, text)

    def on_started(self, pid: int) -> None:
        """Its process exists; a call that was ended before could not be killed before."""
        self._pid = pid
        if self._reason:
            self._kill_tree()

    def on_not_started(self, exit_code: int, text: str) -> None:
        self._not_started = exit_code
        self.notices.append(text)

    def on_events(self, supervisor: int, batch: "Batch | None") -> None:
        """What was started and connected to since the last time, for the host."""
        if batch is None:
            return
        events, dropped, ends = batch
        if self._server.loop.outbox.is_control_congested:
            self._unsent += len(events)
            events, ends = [], []
        events = [self._describe_command(supervisor, int(event)) if event.isdigit() else event for event in events]
        self._server.loop.outbox.put_control(wire.encode_events(self.id, events, dropped + self._unsent, ends))

    def _describe_command(self, supervisor: int, pid: int) -> bytes:
        """The command itself, which nobody can look into before it has started: as it was asked for."""
        path, argv, _, cwd, _, _, uid, _ = self._facts
        shown, is_cut = claim.bound_argv(argv)
        event: wire.Message = {
            "kind": "exec",
            "pid": pid,
            "parent": supervisor,
            "uid": uid,
            "path": encode_name((path or argv[0])[: claim.MAX_PATH]),
            "argv": [encode_name(word) for word in shown],
            "cwd": encode_name(cwd[: claim.MAX_PATH]),
        }
        if is_cut:
            event["cut"] = True
        return wire.encode_json(event)

    def on_ended(self, status: int, is_left: bool, background: int, used: "Used") -> None:
        """The command's own process has ended."""
        self._wait_status, self._background = status, background
        self.used = used
        self._read_cwd()
        if not is_left:
            self.on_gone(used)
        elif self._reason:
            pass  # its tree is dying: on_gone follows, or the grace ends
        elif self._request.kill_background:
            self._kill_tree()
        else:
            if self._terminal is not None and not self._terminal.has_ended:
                terminal.settle(self._terminal.fd)
            for source in self._sources:
                source.mark_backlog()
            self._drain()

    def on_gone(self, used: "Used | None" = None) -> None:
        """Nothing of it lives any more; without an `ended` before, its supervisor was killed from outside."""
        self._supervisor = None
        self._server.lingering.pop(self.id, None)
        self._background = 0
        self.used = used or self.used
        self._server.count(self.used)
        if self._wait_status is None and not self._reason:
            self._reason = wire.KILLED
            self.notices.append("its supervisor was killed")
        if self._sink is not None:
            self._sink.abandon()
            self._server.loop.sinks.pop(self._sink.stream, None)
        for source in self._sources:
            source.finish()
        if not self.is_answered:
            self._drain()

    def _read_cwd(self) -> None:
        """What the shell told about its last directory: a claim, bounded and never resolved here."""
        if self._cwd_fd < 0:
            return
        try:
            text = os.read(self._cwd_fd, _MAX_CWD + 2)
        except BlockingIOError:
            text = b""
        os.close(self._cwd_fd)
        self._cwd_fd = -1
        if text.startswith(b"/") and text.endswith(b"\n") and len(text) <= _MAX_CWD + 1 and b"\0" not in text:
            self._cwd = text[:-1]

    # What the host asks of it while it runs.

    def signal(self, number: int) -> None:
        """To the process group in the foreground of its terminal, or to the command's own."""
        if not self._pid or self._wait_status is not None or self._reason:
            return
        source = self._terminal
        group = terminal.find_foreground(source.fd) if source is not None and not source.has_ended else 0
        # SECURITY: 0 and 1 would be this process's own group, and everybody (test_a_signal_reaches_the_job_alone).
        group = group if group > 1 else self._pid
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            pass

    def resize(self, rows: int, columns: int) -> None:
        if self._terminal is not None and not self._terminal.has_ended:
            terminal.resize(self._terminal.fd, rows, columns)

    # From its end to the answer.

    def end(self, reason: str) -> None:
        """Kill its whole tree; the answer follows when it has gone."""
        if self.is_answered:
            self._kill_tree()
        elif self._wait_status is not None and self._is_draining:
            self._answer()  # the host gives no credit for the rest
        elif self._is_held:
            self._reason = reason
            self._let_loose()
            self.on_gone()
        elif not self._reason:
            self._reason = reason
            self._kill_tree()

    def mark(self, reason: str) -> None:
        """Its processes are being killed by somebody else; the answer follows when they have gone."""
        if self._is_held:
            self.end(reason)
        elif self._wait_status is None and not self._reason:
            self._reason = reason
            self._set_timer(_GRACE_S)

    def _kill_tree(self) -> None:
        if self._supervisor is not None:
            self._server.population.kill_tree(self._supervisor.pid)
            self._set_timer(_GRACE_S)

    def _set_timer(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._server.loop.after(delay_s, self._on_timeout)

    def _on_timeout(self) -> None:
        if self.is_answered:
            return
        if self._reason or self._wait_status is not None:
            self._answer()  # the grace is over, or the host gives no credit for the rest
        else:
            self.end(wire.TIMEOUT)

    def _drain(self) -> None:
        """Deliver what was written until now, as far as the host's credit goes; then answer."""
        self._is_draining = True
        for source in self._sources:
            source.on_change = self._check_drained
            source.drain()
        self._check_drained()

    def _check_drained(self) -> None:
        if self.is_answered:
            return
        if all(source.has_ended or not (source.backlog or source.is_last) for source in self._sources):
            self._answer()

    def refuse(self, code: str, text: str) -> None:
        """Answer with an error: the command never ran."""
        self._close()
        for source in self._sources:
            source.end()
            source.tell_end()
        if self._sink is not None:
            self._sink.abandon()
            self._server.loop.sinks.pop(self._sink.stream, None)
        self._server.answer(self.id, wire.encode_error(self.id, code, text))

    def _close(self) -> None:
        self.is_answered = True
        self._server.calls.pop(self.id, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._cwd_fd >= 0:
            os.close(self._cwd_fd)
            self._cwd_fd = -1

    def _answer(self) -> None:
        self._close()
        result = self._build_result()
        for source in self._sources:
            source.capture = None
            source.on_change = None
        if self._supervisor is not None:
            self._server.lingering[self.id] = self
        self._server.answer(self.id, wire.encode_result(self.id, result))
        self._server.pool.refill()

    def _build_result(self) -> wire.Message:
        status, exit_code, number = wire.EXITED, 0, 0
        if self._wait_status is not None:
            if os.WIFSIGNALED(self._wait_status):
                status, number = wire.SIGNALED, os.WTERMSIG(self._wait_status)
            else:
                exit_code = os.WEXITSTATUS(self._wait_status)
        if self._not_started is not None:
            status, exit_code = wire.NOT_STARTED, self._not_started
        if self._reason:
            status = self._reason
        counters = self._server.counters
        user_s, system_s, max_rss, written, programs, programs_peak = self.used
        captures = [
            source.capture.report(source.streamed, source.take_end())
            for source in self._sources
            if source.capture is not None
        ]
        return {
            "status": status,
            "exit_code": exit_code,
            "signal": number,
            "cwd": encode_name(self._cwd),
            "notices": self.notices,
            "stdout": captures[0],
            "stderr": captures[1] if len(captures) > 1 else _NOTHING,
            "duration_s": round(time.monotonic() - self._started_at, 6),
            "background": self._background,
            "oom_kills": counters.read_oom_kills() - self._oom_kills,
            "pids_refused": counters.read_pids_refused() - self._pids_refused,
            "user_s": round(user_s, 6),
            "system_s": round(system_s, 6),
            "max_rss": max_rss,
            "written_bytes": written,
            "programs": programs,
            "programs_peak": programs_peak,
            "full": self._server.find_full() if status != wire.EXITED or exit_code else [],
        }


_NOTHING: wire.Message = {"head_b64": "", "tail_b64": "", "total_bytes": 0, "streamed_bytes": 0, "closed": False}


def _send(control: _socket.socket, instruction: "Instruction", files: list[int]) -> None:
    data = marshal.dumps(instruction)
    memory = -1
    if len(data) > MAX_MESSAGE:
        memory = os.memfd_create("corral-call")
        os.write(memory, data)
        data, files = marshal.dumps(None), [memory, *files]
    try:
        payload = b"".join(fd.to_bytes(4, "little") for fd in files)
        control.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, payload)])
    finally:
        if memory >= 0:
            os.close(memory)
