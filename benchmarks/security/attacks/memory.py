"""More memory than one's share: by every door, and so that the toolbox is taken for it. Limits are in ATTACK_LIMITS."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import resource
import signal
import socket
from collections.abc import Callable

from .attack import MIB, PAST, Table, park, read_limit
from .syscall import LIBC

MEMORY = Table("resources")


def _touch(memory: mmap.mmap) -> None:
    for offset in range(0, len(memory), 4096):
        memory[offset] = 1


def _fill_memory(flags: int) -> str | None:
    """Pages faulted in by the kernel (MAP_POPULATE), 64 MiB at a time."""
    aim, kept = int(read_limit("memory_bytes") * PAST), []
    while len(kept) * 64 * MIB < aim:
        kept.append(mmap.mmap(-1, 64 * MIB, flags=flags | mmap.MAP_POPULATE))
        kept[-1][0] = 1
    return f"{aim // MIB} MiB"


@MEMORY("memory", "more memory than allowed", needs="small", can_kill=True, timeout_s=40)
def _() -> str | None:
    return _fill_memory(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@MEMORY("memory-shared", "the same, shared", needs="small", can_kill=True, timeout_s=40)
def _() -> str | None:
    return _fill_memory(mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)


@MEMORY("memory-locked", "memory that is never paged out")
def _() -> str | None:
    size = 4 * MIB
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)):
        raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "4 MiB locked"


@MEMORY("memory-lock-all", "all memory locked")
def _() -> str | None:
    if LIBC.mlockall(3) == 0:
        return "locked"
    raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@MEMORY(
    "memory-sysv",
    "shared memory that outlives its process, past every kill",
    needs="small",
    can_kill=True,
    timeout_s=40,
)
def _() -> str | None:
    aim, made, size = int(read_limit("memory_bytes") * PAST), [], 64 * MIB
    LIBC.shmat.restype = ctypes.c_void_p
    try:
        while len(made) * size < aim:
            made.append(_get(LIBC.shmget(0, ctypes.c_size_t(size), 0o1600)))
            address = LIBC.shmat(made[-1], None, 0)
            LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), 23)  # MADV_POPULATE_WRITE
            LIBC.shmdt(ctypes.c_void_p(address))
    finally:
        for number in made:
            LIBC.shmctl(number, 0, None)
    return f"{aim // MIB} MiB that belong to nobody"


@MEMORY("queues-sysv", "message queues that outlive their process", needs="small", timeout_s=30)
def _() -> str | None:
    aim, made, message = 2000, [], ctypes.create_string_buffer(b"\1" + bytes(8 + 8000))
    try:
        while len(made) < aim:
            made.append(_get(LIBC.msgget(0, 0o1600)))
            for _ in range(2):
                LIBC.msgsnd(made[-1], message, ctypes.c_size_t(8000), 0o4000)
    finally:
        for number in made:
            LIBC.msgctl(number, 0, None)
    return f"{len(made)} full queues"


@MEMORY("semaphores-sysv", "semaphores that outlive their process", needs="small", timeout_s=30)
def _() -> str | None:
    aim, made = 500, []
    try:
        while len(made) < aim:
            made.append(_get(LIBC.semget(0, 250, 0o1600)))
    finally:
        for number in made:
            LIBC.semctl(number, 0, 0)
    return f"{250 * len(made)} semaphores"


def _get(number: int) -> int:
    if number < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return number


@MEMORY("memory-memfd", "a file that is memory", needs="small", can_kill=True, timeout_s=40)
def _() -> str | None:
    aim, kept = int(read_limit("memory_bytes") * PAST), []
    while len(kept) * 512 * MIB < aim:
        kept.append(os.memfd_create("attack"))
        os.posix_fallocate(kept[-1], 0, 512 * MIB)
    return f"{aim // MIB} MiB"


@MEMORY("core-dump", "leave memory on the disk, or with the host's crash handler")
def _() -> str | None:
    pid = os.fork()
    if pid == 0:
        soft_hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (soft_hard[1], soft_hard[1]))
        os.chdir("/workspace")
        os.abort()
    return "a core was dumped" if os.WCOREDUMP(os.waitpid(pid, 0)[1]) else None


@MEMORY("message-queue", "a message queue: kernel memory counted for the host's user")
def _() -> str | None:
    library = ctypes.CDLL("librt.so.1", use_errno=True)
    if library.mq_open(b"/attack", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0:
        library.mq_unlink(b"/attack")
        return "made"
    raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _lower_score(score: int) -> str | None:
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))
    return f"score {score}"


MEMORY.add("oom-score-toolbox", "be spared rather than the toolbox", functools.partial(_lower_score, 499))


@MEMORY(
    "oom-toolbox",
    "have the kernel end the toolbox for memory that others use",
    needs="small",
    can_kill=True,
    timeout_s=60,
)
def _() -> str | None:
    """Many processes, each smaller than the toolbox and as worthy: then the toolbox is the largest."""
    for score in (-1000, 0, 500):
        try:
            _lower_score(score)
        except OSError:
            continue
        break
    count, size = min(int(read_limit("pids") * 0.9), 300), 3 * MIB
    children = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                _touch(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
                park()
            children.append(pid)
        own, first = max(_score_of(pid) for pid in children), _score_of(1)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    return f"the kernel gives the first process {first}, ours {own} at most" if first >= own else None


def _score_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/oom_score", encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return 0


@MEMORY("socket-buffers", "kernel memory by full socket buffers", needs="small", can_kill=True, timeout_s=30)
def _() -> str | None:
    """Each pair takes some hundred kilobytes that no limit of a process sees; the control group must."""
    aim, sent, kept = int(read_limit("memory_bytes") * PAST), 0, []
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    wanted: Callable[[int], bool] = lambda count: count < 1500  # noqa: E731
    while wanted(len(kept)) and sent < aim:
        try:
            ends = socket.socketpair()
        except OSError:
            break
        ends[0].setblocking(False)
        ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MIB)
        kept.append(ends)
        try:
            while True:
                sent += ends[0].send(bytes(64 << 10))
        except BlockingIOError:
            pass
    return f"{sent // MIB} MiB" if sent > aim else None
