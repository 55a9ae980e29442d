"""What a supervisor does while its call runs: answers the notices of everything below it, and keeps what they told.

The thread that answers is not under the filter; the one that starts commands is, and waits inside such a start.
"""

import _thread
import os
import select

from corral_toolbox.channel import wire
from corral_toolbox.forked import claim
from corral_toolbox.kernel import notify
from corral_toolbox.kernel.ending import Endings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_EVENTS = 32_768
"""Kept per call; a build of 20,000 processes is a large one."""
MAX_BYTES = 12 << 20
_BATCH_BYTES = 8 << 10
_MESSAGE_BYTES = 24 << 10
"""One more event of at most 33 KB (8 KB of text, each byte six in JSON for the worst case) stays under 64 KiB."""
_DELAY_MS = 20
_NAMES = {notify.CONNECT: "connect", notify.BIND: "bind", notify.SOCKET: "socket"}
_EXECS = (notify.EXECVE, notify.EXECVEAT)
_HIDDEN = (notify.SENDMSG, notify.SENDMMSG)
"""Only with the flag that makes them connect: no program needs it, and the kernel offers it to few."""
_EOPNOTSUPP = 95

_MESSAGE_ENDS = 256

Batch = tuple[list[bytes], int, list[bytes]]
"""Events as JSON, only its pid for the command itself, which the first process can describe; dropped so far; ends of
processes as JSON."""


class Observer:
    """Run by the supervisor's first thread; what has a name here is called by the second, the one that starts commands.

    `tell` takes what was kept on to the first process.
    """

    def __init__(self, uid: int, tell: "Callable[[Batch], None]", endings: Endings) -> None:
        self._endings = endings
        """Of all but the command itself, whose end its supervisor tells."""
        self._uid = uid
        """Of everything below: without privileges it cannot change."""
        self._listener = -1
        self._tell = tell
        self._is_open = _thread.allocate_lock()
        self._is_open.acquire()
        self._lock = _thread.allocate_lock()
        """Held from a notice to its event: when a process has ended, all that it did has been kept."""
        self._has_call = False
        """Before there is one, only a rehearsal runs, and a call that is on its way must not be told of it."""
        self._knows_command = False
        """The command passes without a notice: it is known from the one who starts it."""
        self._reset()

    def begin(self) -> None:
        """A new call, or the last one came to nothing: nothing runs below."""
        with self._lock:
            self._has_call = True
            self._reset()

    def _reset(self) -> None:
        self._fixed: dict[bytes, str] = {}
        self._is_expected = False
        self._batch: list[wire.Message | int] = []
        """Encoded when nobody waits; a pid stands for the command itself."""
        self._batch_bytes = 0
        self._count = 0
        self._bytes = 0
        self._dropped = 0
        self._told_dropped = 0
        self._command = 0
        self._is_new = False
        self._ends: list[bytes] = []
        self._programs = self._programs_peak = 0
        self._endings.forget()
        self._missed: dict[int, tuple[int, wire.Message]] = {}
        """Threads that look for a program along PATH: where their argv is, and the event that may come to nothing."""

    def open(self, listener: int, *, knows_command: bool) -> None:
        """From here on calls are trapped, and answered."""
        self._listener = listener
        self._knows_command = knows_command
        self._is_open.release()

    def attempt(self, start: "Callable[[], int]") -> int:
        """Try to start the command: nothing else runs, and an earlier try came to nothing. Returns its pid."""
        with self._lock:
            self._batch.clear()
            if self._knows_command:
                pid = start()  # what the program does at once waits for the lock: the command comes first
                if self._has_call:
                    self._note_command(pid)
                return pid
            self._is_expected = True
        return start()

    def run(self) -> None:
        """Answer notices for good."""
        self._is_open.acquire()
        busy, idle = select.poll(), select.poll()
        busy.register(self._listener, select.POLLIN)
        idle.register(self._listener, select.POLLIN)
        # Only when nothing is to be told soon: an end that is told with the next batch wakes nobody for itself.
        idle.register(self._endings.poll_fd, select.POLLIN)
        while True:
            is_waited_for = bool(self._batch or self._missed or self._ends or self._dropped != self._told_dropped)
            ready = busy.poll(_DELAY_MS) if is_waited_for else idle.poll()
            with self._lock:  # also while it tells: what is of this call must not come after its end
                if any(fd == self._listener for fd, _ in ready):
                    self._serve()
                elif ready:
                    self._collect_ends()
                elif batch := self._take():
                    self._tell(batch)

    def count_programs(self) -> tuple[int, int]:
        """Processes that ran a program since the call began, and the most of them at once."""
        return self._programs, self._programs_peak

    def take(self) -> "Batch | None":
        """What was not told yet."""
        with self._lock:
            return self._take()

    def _take(self) -> "Batch | None":
        for _, event in self._missed.values():
            self._keep(event)
        self._missed.clear()
        self._collect_ends()
        rest = self._encode()
        ends, self._ends = self._ends, []
        if not rest and not ends and self._dropped == self._told_dropped:
            return None
        self._told_dropped = self._dropped
        while len(ends) > _MESSAGE_ENDS:  # after what they did: nothing of it is told later
            self._tell((rest, self._dropped, ends[:_MESSAGE_ENDS]))
            rest, ends = [], ends[_MESSAGE_ENDS:]
        return rest, self._dropped, ends

    def _collect_ends(self) -> None:
        for pid, lived_s, status in self._endings.collect():
            if status is None:
                how = b""
            elif os.WIFSIGNALED(status):
                how = b',"signal":%d' % os.WTERMSIG(status)
            else:
                how = b',"exit_code":%d' % os.WEXITSTATUS(status)
            self._ends.append(b'{"pid":%d,"lived_s":%.3f%s}' % (pid, lived_s, how))

    def _encode(self) -> list[bytes]:
        """What was kept, told as far as it fills messages; returns the rest."""
        events, self._batch, self._batch_bytes = self._batch, [], 0
        message: list[bytes] = []
        size = 0
        for event in events:
            encoded = b"%d" % event if isinstance(event, int) else wire.encode_json(event)
            self._bytes += len(encoded)
            message.append(encoded)
            size += len(encoded) + 8
            if size >= _MESSAGE_BYTES:
                self._told_dropped = self._dropped
                self._tell((message, self._dropped, []))
                message, size = [], 0
        return message

    def _serve(self) -> None:
        notice = notify.receive(self._listener)
        if notice is None:
            return
        number, thread, call, arguments = notice
        is_exec = call in _EXECS
        if is_exec and self._is_expected:
            # Until it has started it shares this process's memory, which is not to be read.
            self._is_expected = False
            notify.let_go_on(self._listener, number)
            if self._has_call:
                self._note_command(thread)
            return
        if self._count >= MAX_EVENTS or self._bytes >= MAX_BYTES:
            self._answer(number, call)
            self._dropped += 1
            return
        event = self._look(thread, call, arguments)
        # SECURITY: a thread that was killed meanwhile has left its number to another, and that was read
        # (test_process_record.py).
        goes_on = self._answer(number, call)
        if self._is_new:
            self._is_new = False
            self._note_program()
        if goes_on and event is not None:
            self._sort(thread, arguments[1] if call == notify.EXECVE else 0, event, is_exec)

    def _note_command(self, pid: int) -> None:
        self._command = pid
        self._programs = self._programs_peak = 1
        self._keep(pid)

    def _note_program(self) -> None:
        """One more process than before runs a program; nobody waits for this."""
        self._programs += 1
        if self._endings.count >= self._programs_peak:
            self._collect_ends()
            self._programs_peak = max(self._programs_peak, 1 + self._endings.count)

    def _answer(self, number: int, call: int) -> bool:
        if call in _HIDDEN:
            return notify.refuse(self._listener, number, _EOPNOTSUPP)
        return notify.let_go_on(self._listener, number)

    def _look(self, thread: int, call: int, arguments: tuple[int, ...]) -> "wire.Message | None":
        pid, parent = claim.read_identity(thread)
        event: wire.Message | None = None
        try:
            if call == notify.SOCKET:
                event = claim.describe_socket(arguments)
            else:
                memory = claim.Memory(thread)
                try:
                    if call in _EXECS:
                        event = claim.read_exec(memory, thread, call, arguments, self._fixed)
                    else:
                        event = claim.read_connection(memory, thread, call, arguments)
                finally:
                    memory.close()
                if event is None:
                    return None
        except OSError:
            event = {"mark": claim.UNREADABLE}
        if call in _HIDDEN:
            event["errno"] = _EOPNOTSUPP
        if call in _EXECS and pid not in (0, self._command):
            self._is_new = self._endings.watch(pid)
        kind = "exec" if call in _EXECS else _NAMES.get(call, "send")
        return {"kind": kind, "pid": pid, "parent": parent, "uid": self._uid, **event}

    def _sort(self, thread: int, argv_at: int, event: "wire.Message", is_exec: bool) -> None:
        if is_exec:
            earlier = self._missed.pop(thread, None)
            # The same argv at the same address in the same thread: the next directory of PATH. A program that had
            # started would have its arguments elsewhere.
            if earlier is not None and (earlier[0] != argv_at or not argv_at):
                self._keep(earlier[1])
            if event.get("mark") == claim.NOT_FOUND and len(self._missed) < 64:
                self._missed[thread] = (argv_at, event)
                return
        self._keep(event)

    def _keep(self, event: "wire.Message | int") -> None:
        self._count += 1
        self._batch.append(event)
        self._batch_bytes += 64 if isinstance(event, int) else _estimate(event)
        if self._batch_bytes < _BATCH_BYTES:
            return
        self._collect_ends()
        if rest := self._encode():
            self._told_dropped = self._dropped
            self._tell((rest, self._dropped, []))


def _estimate(event: "wire.Message") -> int:
    """About what it takes, so that what was kept stays small until it is told."""
    size = 128
    for value in event.values():
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, list):
            size += sum(map(len, value))
    return size
