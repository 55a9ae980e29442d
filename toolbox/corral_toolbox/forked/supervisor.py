"""One supervisor per call, forked and locked down before the call comes.

It starts the command, reaps everything below it and tells the first process, out of band, how the command ended. It is
a subreaper and runs no untrusted code. When a call left nothing behind it waits for the next one, otherwise it stays
until the last descendant has gone, and ends.

All of that is done by its second thread, which is under the filter that the command inherits. The first answers what
the filter asks, and keeps it as the record of what ran. Real, effective and saved ids of both stay root's: nothing
untrusted can signal either, trace it or change its limits.
"""

import _socket
import _thread
import marshal
import os
import resource

from corral_toolbox.forked.child import CONTROL_FD, tell_crash
from corral_toolbox.forked.command import Instruction, NotStarted, start_command
from corral_toolbox.forked.observer import Batch, Observer
from corral_toolbox.forked.usage import NOTHING, Usage, Used
from corral_toolbox.kernel import disposition, notify, process, syscall
from corral_toolbox.kernel.ending import Endings
from corral_toolbox.kernel.spawn import Starter

# What it tells the first process, as marshalled tuples.
READY = "ready"  # it waits for a call
STARTED = "started"  # pid of the command
BROKEN = "broken"  # errno, text: no process can be had, and it ends
ENDED = "ended"  # batch or None; wait status, is anything left, how many of it live, what was used
GONE = "gone"  # batch or None; what everything used, at its end
EVENTS = "events"  # batch
NOTICE = "notice"  # text
NOT_STARTED = "not_started"  # exit code, text

GO = b"go"
"""What it is told of a call that is held: now."""
MAX_MESSAGE = 32 << 10
"""Largest instruction sent in the message itself; a larger one travels in a memfd."""
_NICE = 15
"""Against 280 live forkers a 10 KB read took up to 500 ms at 5 and 30 ms at 19. It counts inside the box only: the
box as a whole has its share of the machine by its cgroup. A command has it from the thread that starts it."""
_STACK_BYTES = 256 << 10


def _tell(*message: "str | float | Batch | Used | None") -> None:
    os.write(CONTROL_FD, marshal.dumps(message))


def run_supervisor(open_files: int, uid: int, gid: int, watches: bool, keeps_orphans: bool) -> None:
    """Serve calls, one after the other, until the first process closes the socket or a call leaves something behind."""
    if keeps_orphans:
        syscall.set_subreaper()
    try:
        _lock_down(open_files)
        starter = Starter()
    except OSError as error:
        _tell(BROKEN, error.errno, f"cannot lock commands down: {error}")
        return
    _thread.stack_size(_STACK_BYTES)
    observer = Observer(uid, lambda batch: _tell(EVENTS, batch), Endings(open_files // 2))
    _thread.start_new_thread(_serve_calls, (starter, observer, watches))
    if watches:
        # Only to look: real, effective and saved ids stay, by which the kernel judges who may touch this process.
        syscall.lend_ids(uid, gid)
    try:
        observer.run()
    except BrokenPipeError:
        os._exit(0)


def _serve_calls(starter: Starter, observer: Observer, watches: bool) -> None:
    """The second thread. It ends the process."""
    status = 70
    try:
        if watches:
            # SECURITY: before the first command, or that runs unseen (test_process_record.py).
            observer.open(notify.install(starter.ticket), knows_command=bool(starter.ticket))
        control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CONTROL_FD)
        # Kept: an allocation of this size is a mapping made and unmade for every message.
        buffer = memoryview(bytearray(MAX_MESSAGE))
        _rehearse(starter, observer)
        os.nice(_NICE)
        _tell(READY)
        while _serve(control, buffer, starter, observer):
            pass
        status = 0
    except BrokenPipeError:  # the first process does not want this one any more
        status = 0
    except BaseException as error:  # the last word of a thread that has nobody to raise to
        tell_crash(error)
    finally:
        os._exit(status)


def _serve(control: _socket.socket, buffer: memoryview, starter: Starter, observer: Observer) -> bool:
    """One call, from its instruction to its end; False when there will be no other."""
    received = _receive(control, buffer)
    if received is None:
        return False
    instruction, files = received
    observer.begin()
    gate = _Gate(control, is_open=not instruction[-1])
    try:
        child = start_command(
            instruction, files, starter, lambda text: _tell(NOTICE, text), observer.attempt, gate.wait
        )
    except NotStarted as error:
        gate.wait()
        observer.begin()
        _tell(NOT_STARTED, error.exit_code, str(error))
        _tell(ENDED, None, error.exit_code << 8, False, 0, NOTHING)
        return True
    except OSError as error:
        _tell(BROKEN, error.errno, f"cannot start a process: {error.strerror}")
        return False
    finally:
        for fd in files:
            os.close(fd)
    _tell(STARTED, child)
    return _watch(child, observer)


class _Gate:
    """Where a command that is held waits until the host lets it start."""

    def __init__(self, control: _socket.socket, *, is_open: bool) -> None:
        self._control = control
        self._is_open = is_open

    def wait(self) -> None:
        """Ends this process when the first does not want the call any more."""
        if self._is_open:
            return
        # SECURITY: nothing of the call has started by now, so that its record comes first
        # (test_a_held_command_starts_when_it_is_told).
        if self._control.recv(len(GO)) != GO:
            os._exit(0)
        self._is_open = True


def _receive(control: _socket.socket, buffer: memoryview) -> tuple[Instruction, list[int]] | None:
    """The next instruction with its descriptors; None when the first process wants no more."""
    size, ancillary, _, _ = control.recvmsg_into([buffer], 1024, _socket.MSG_CMSG_CLOEXEC)
    if not size:
        return None
    files = [
        int.from_bytes(payload[i : i + 4], "little")
        for _, _, payload in ancillary
        for i in range(0, len(payload) - len(payload) % 4, 4)
    ]
    instruction = marshal.loads(buffer[:size])  # noqa: S302  # written by the first process, nobody else holds the socket
    if instruction is None:
        memory = files.pop(0)
        instruction = marshal.loads(_read_all(memory))  # noqa: S302
        os.close(memory)
    return instruction, files


def _read_all(fd: int) -> bytes:
    parts = []
    offset = 0
    while part := os.pread(fd, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _watch(child: int, observer: Observer) -> bool:
    """Reap until nothing is left below; True when nothing was left already as the command ended."""
    usage = Usage(observer)
    while True:
        pid, status = usage.reap(0)
        if pid == child:
            break
    try:
        while usage.reap(os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        _tell(ENDED, observer.take(), status, False, 0, usage.total())
        return True
    left = process.count_descendants(os.getpid())
    _tell(ENDED, observer.take(), status, True, left, usage.total())
    try:
        while True:
            usage.reap(0)
    except ChildProcessError:
        _tell(GONE, observer.take(), usage.total())
    return False


def _lock_down(open_files: int) -> None:
    """What a command may inherit because its supervisor never runs a program: done once, not once a call."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))
    # SECURITY: no capability can come back through a program (test_exec_isolation.py).
    syscall.drop_bounding_set()
    syscall.clear_inheritable()
    syscall.set_no_new_privs()
    os.setgroups([])
    disposition.reset_before_exec()


def _rehearse(starter: Starter, observer: Observer) -> None:
    """Use once what a call will use: memory that a fork shares is copied at the first touch, now instead of then."""
    facts = (b"/proc/self/none", [b"sh"], {b"PATH": b"/"}, b"/", b"/", 0o022, 1, 1, (), False)
    instruction = marshal.loads(marshal.dumps(facts))  # noqa: S302
    try:
        start_command(instruction, [], starter, lambda text: None, observer.attempt, lambda: None)
    except NotStarted:
        pass
