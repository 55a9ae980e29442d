"""One supervisor per call: a subreaper whose command child is forked, locked down and waiting before the call comes.

It reaps everything below it and tells the first process, out of band, how the command ended. It runs no untrusted
code and reads nothing: the instruction goes straight to the child. When a call left nothing behind it forks the next
child and is a spare again, otherwise it stays until the last descendant has gone, and ends.
"""

import _socket
import marshal
import os
import resource

from corral_toolbox.forked.child import CONTROL_FD, tell_crash
from corral_toolbox.kernel import disposition, process, syscall

# What supervisor and child tell the first process, as marshalled tuples.
READY = "ready"  # pid of the command child
BROKEN = "broken"  # text: no child could be made
ENDED = "ended"  # wait status, is anything left below, how many of it live, processor seconds, largest resident size
GONE = "gone"  # processor seconds, largest resident size: of everything, at its end
NOTICE = "notice"  # text
NOT_STARTED = "not_started"  # exit code, text

MAX_MESSAGE = 128 << 10
"""Largest instruction sent in the message itself; a larger one travels in a memfd."""
_NICE = 15
"""Against 280 live forkers a 10 KB read took up to 500 ms at 5 and 30 ms at 19. It counts inside the box only: the
box as a whole has its share of the machine by its cgroup."""
_ENOENT, _ENOTDIR = 2, 20

CallFacts = tuple[
    bytes,  # path of the program, b"" to look argv[0] up
    list[bytes],  # argv
    dict[bytes, bytes],  # environment
    bytes,  # directory
    bytes,  # workspace: where to go when the directory's parents are gone, too
    int,  # umask
    int,  # uid
    int,  # gid
]
Instruction = tuple[bytes, list[bytes], dict[bytes, bytes], bytes, bytes, int, int, int, tuple[tuple[int, ...], ...]]
"""CallFacts, then for each descriptor sent along the numbers the program finds it at."""


def _tell(*message: str | float | None) -> None:
    os.write(CONTROL_FD, marshal.dumps(message))


def run_supervisor(open_files: int) -> None:
    """Serve calls, one after the other, until the first process closes the socket or a call leaves something behind."""
    syscall.set_subreaper()
    try:
        _lock_down(open_files)
    except OSError as error:
        _tell(BROKEN, error.errno, f"cannot lock commands down: {error}")
        return
    while True:
        try:
            child = os.fork()
        except OSError as error:
            _tell(BROKEN, error.errno, f"cannot fork: {error.strerror}")
            return
        if not child:
            _run_child()
        try:
            _tell(READY, child)
            if not _watch(child):
                return
        except BrokenPipeError:  # the first process does not want this spare any more
            return


class _Usage:
    """What the reaped descendants used."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.max_rss = 0

    def reap(self, options: int) -> tuple[int, int]:
        """wait4: (pid, status); pid 0 when nobody is ready. Raises ChildProcessError when nobody is left."""
        pid, status, usage = os.wait4(-1, options)
        self.cpu_s += usage.ru_utime + usage.ru_stime
        self.max_rss = max(self.max_rss, usage.ru_maxrss << 10)
        return pid, status


def _watch(child: int) -> bool:
    """Reap until nothing is left below; True when the next child may be forked: a clean end.

    After a signal it may not: a child that was killed before it read its instruction left that for its successor.
    """
    usage = _Usage()
    while True:
        pid, status = usage.reap(0)
        if pid == child:
            break
    try:
        while usage.reap(os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        _tell(ENDED, status, False, 0, usage.cpu_s, usage.max_rss)
        return os.WIFEXITED(status)
    _tell(ENDED, status, True, process.count_descendants(os.getpid()), usage.cpu_s, usage.max_rss)
    try:
        while True:
            usage.reap(0)
    except ChildProcessError:
        _tell(GONE, usage.cpu_s, usage.max_rss)
    return False


def _run_child() -> None:
    """The command's process: everything that does not depend on the call, then wait for it, then become it."""
    try:
        _set_apart()
        _rehearse()
        control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CONTROL_FD)
        _await_call(control)
    except BaseException as error:  # the last word of a process that has nobody to raise to
        tell_crash(error)
    finally:
        process.signal_process(os.getpid(), process.SIGKILL)  # never an exit code: `_watch` takes that for a clean end


def _lock_down(open_files: int) -> None:
    """What the child may inherit because the supervisor never runs a program: done once, not once a call."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))
    # SECURITY: no capability can come back through a program (test_exec_isolation.py).
    syscall.drop_bounding_set()
    syscall.clear_inheritable()
    syscall.set_no_new_privs()
    os.setgroups([])
    disposition.reset_before_exec()


def _set_apart() -> None:
    """What only the child may have: the kernel's first victim, less processor time, a session of its own."""
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"1000")
    finally:
        os.close(fd)
    os.setsid()
    os.dup2(0, 2)
    os.nice(_NICE)


def _rehearse() -> None:
    """Use once what the call will use: memory that a fork shares is copied at the first touch, now instead of then."""
    facts = (b"", [b"sh"], {b"PATH": b"/"}, b"/", b"/", 0o022, 0, 0, ((0,),))
    _, argv, env, cwd, _, umask, uid, gid, places = marshal.loads(marshal.dumps(facts))  # noqa: S302
    for numbers in places:
        os.dup2(0, numbers[0])
    os.umask(umask)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _has_ids(uid, gid)
    syscall.read_capabilities()
    os.chdir(cwd)
    try:
        os.execve(b"/proc/self/nothing", argv, env)  # noqa: S606
    except OSError:
        pass


def _await_call(control: _socket.socket) -> None:
    data, ancillary, _, _ = control.recvmsg(MAX_MESSAGE, 1024, _socket.MSG_CMSG_CLOEXEC)
    if not data:
        os._exit(0)
    files = [
        int.from_bytes(payload[i : i + 4], "little")
        for _, _, payload in ancillary
        for i in range(0, len(payload) - len(payload) % 4, 4)
    ]
    instruction = marshal.loads(data)  # noqa: S302  # written by the first process, nobody else holds the socket
    if instruction is None:
        memory = files.pop(0)
        instruction = marshal.loads(_read_all(memory))  # noqa: S302
        os.close(memory)
    _become(instruction, files)


def _read_all(fd: int) -> bytes:
    parts = []
    offset = 0
    while part := os.pread(fd, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _become(instruction: Instruction, files: list[int]) -> None:
    path, argv, env, cwd, workspace, umask, uid, gid, places = instruction
    for fd, numbers in zip(files, places, strict=True):
        for number in numbers:
            os.dup2(fd, number)
    os.umask(umask)
    _drop_ids(uid, gid)
    env[b"PWD"] = _enter(cwd, workspace)
    _execute(path, argv, env)


def _drop_ids(uid: int, gid: int) -> None:
    # SECURITY: the command runs as the untrusted user and cannot go back (test_exec_isolation.py).
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if not uid or not _has_ids(uid, gid) or syscall.read_capabilities():
        raise PermissionError("privileges were not dropped")


def _has_ids(uid: int, gid: int) -> bool:
    return os.getresuid() == (uid, uid, uid) and os.getresgid() == (gid, gid, gid) and not os.getgroups()


def _enter(cwd: bytes, workspace: bytes) -> bytes:
    """Change directory as the untrusted user; when that fails, to the nearest parent that lets it in."""
    place = cwd
    while True:
        try:
            os.chdir(place)
        except OSError as error:
            reason = "was removed" if error.errno in (_ENOENT, _ENOTDIR) else f"cannot be entered ({error.strerror})"
        else:
            break
        if place == b"/":
            raise OSError("no directory can be entered")
        place = os.path.dirname(place)
        if place == b"/" and workspace != cwd:
            place = workspace
            workspace = cwd
    if place != cwd:
        _tell(NOTICE, f"cwd {reason}, now in {place.decode('utf-8', 'backslashreplace')}")
    return place


def _execute(path: bytes, argv: list[bytes], env: dict[bytes, bytes]) -> None:
    name = path or argv[0]
    if b"/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(place, name) for place in env.get(b"PATH", b"").split(b":") if place]
    failure = OSError(_ENOENT, "not found")
    for candidate in candidates:
        try:
            os.execve(candidate, argv, env)  # noqa: S606  # what the box is for
        except OSError as error:
            if error.errno not in (_ENOENT, _ENOTDIR) and failure.errno == _ENOENT:
                failure = error
    shown = name.decode("utf-8", "backslashreplace")
    if failure.errno == _ENOENT:
        why = "or its interpreter is missing" if b"/" in name else "in PATH"
        _tell(NOT_STARTED, 127, f"no such program: {shown!r} ({why})")
        os._exit(127)
    _tell(NOT_STARTED, 126, f"cannot run {shown!r}: {failure.strerror}")
    os._exit(126)
