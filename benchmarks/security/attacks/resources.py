"""Using more than one's share. ATTACK_LIMITS holds what the box is given; each attack aims well past it."""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import mmap
import os
import resource
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable

from .attack import Table, Unable
from .syscall import IS_X86, LIBC

RESOURCES = Table("resources")
MIB = 1 << 20
_PAST = 1.1


def _limit(name: str) -> int:
    limits = json.loads(os.environ.get("ATTACK_LIMITS", "{}"))
    if name not in limits:
        raise Unable(f"the host did not name the limit {name}")
    return int(limits[name])


def _park() -> None:
    """A child that takes a place and nothing else."""
    signal.pause()
    os._exit(0)


@RESOURCES("fork-bomb", "more processes than allowed")
def _() -> str | None:
    aim, children = int(_limit("pids") * _PAST), []
    try:
        while len(children) < aim:
            pid = os.fork()
            if pid == 0:
                _park()
            children.append(pid)
    except OSError:
        return None
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
    return f"{aim} processes"


@RESOURCES("thread-bomb", "more threads than allowed", timeout_s=20)
def _() -> str | None:
    aim, end = int(_limit("pids") * _PAST), threading.Event()
    threading.stack_size(64 << 10)
    try:
        for _ in range(aim):
            threading.Thread(target=end.wait, daemon=True).start()
    except RuntimeError:
        return None
    finally:
        end.set()
    return f"{aim} threads"


@RESOURCES("zombie-bomb", "processes that have ended and are not buried")
def _() -> str | None:
    aim = int(_limit("pids") * _PAST)
    for _ in range(aim):
        try:
            pid = os.fork()
        except OSError:
            return None
        if pid == 0:
            os._exit(0)
    return f"{aim} zombies"


def _touch(memory: mmap.mmap) -> None:
    for offset in range(0, len(memory), 4096):
        memory[offset] = 1


def _fill_memory(flags: int) -> str | None:
    """Pages faulted in by the kernel (MAP_POPULATE), 64 MiB at a time."""
    aim, kept = int(_limit("memory_bytes") * _PAST), []
    while len(kept) * 64 * MIB < aim:
        kept.append(mmap.mmap(-1, 64 * MIB, flags=flags | mmap.MAP_POPULATE))
        kept[-1][0] = 1
    return f"{aim // MIB} MiB"


@RESOURCES("memory", "more memory than allowed", needs="small", can_kill=True, timeout_s=40)
def _() -> str | None:
    return _fill_memory(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@RESOURCES("memory-shared", "the same, shared", needs="small", can_kill=True, timeout_s=40)
def _() -> str | None:
    return _fill_memory(mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)


@RESOURCES("memory-locked", "memory that is never paged out")
def _() -> str | None:
    size = 4 * MIB
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)):
        raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "4 MiB locked"


@RESOURCES("memory-lock-all", "all memory locked")
def _() -> str | None:
    if LIBC.mlockall(3) == 0:
        return "locked"
    raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@RESOURCES("memory-sysv", "shared memory that outlives its process", needs="small", can_kill=True, timeout_s=40)
def _() -> str | None:
    aim, made, size = int(_limit("memory_bytes") * _PAST), [], 256 * MIB
    LIBC.shmat.restype = ctypes.c_void_p
    try:
        while len(made) * size < aim:
            number = LIBC.shmget(0, ctypes.c_size_t(size), 0o1600)
            if number < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            made.append(number)
            address = LIBC.shmat(number, None, 0)
            LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), 23)  # MADV_POPULATE_WRITE
            _remove_later(number)
    finally:
        for number in made:
            LIBC.shmctl(number, 0, None)
    return f"{aim // MIB} MiB"


def _remove_later(number: int) -> None:
    LIBC.shmctl(number, 0, None)  # IPC_RMID: goes with the last who has it attached


@RESOURCES("memory-memfd", "a file that is memory", needs="small", can_kill=True, timeout_s=40)
def _() -> str | None:
    aim, kept = int(_limit("memory_bytes") * _PAST), []
    while len(kept) * 512 * MIB < aim:
        kept.append(os.memfd_create("attack"))
        os.posix_fallocate(kept[-1], 0, 512 * MIB)
    return f"{aim // MIB} MiB"


def _fill_place(place: str, name: str) -> str | None:
    """A file allocated past the size of a memory file system."""
    if not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, f"{place} is not writable")
    aim, written, files = int(_limit(name) * _PAST), 0, []
    try:
        while written < aim:
            file = tempfile.NamedTemporaryFile(dir=place)  # noqa: SIM115  # all of them stay until the end
            files.append(file)
            os.posix_fallocate(file.fileno(), 0, 16 * MIB)
            written += 16 * MIB
    finally:
        for file in files:
            file.close()
    return f"{written // MIB} MiB in {place}"


RESOURCES.add("fill-tmp", "fill /tmp", functools.partial(_fill_place, "/tmp", "tmp_bytes"), can_kill=True)
RESOURCES.add("fill-shm", "fill /dev/shm", functools.partial(_fill_place, "/dev/shm", "shm_bytes"), can_kill=True)


@RESOURCES("fill-home", "fill the home directory", can_kill=True)
def _() -> str | None:
    return _fill_place(os.environ.get("HOME") or "/root", "home_bytes")


@RESOURCES("fill-run", "fill /run, which belongs to the toolbox", can_kill=True)
def _() -> str | None:
    return _fill_place("/run", "run_bytes")


@RESOURCES("fill-dev", "fill /dev", can_kill=True)
def _() -> str | None:
    return _fill_place("/dev", "run_bytes")


def _fill_inodes(place: str, aim: int) -> str | None:
    made = 0
    folder = tempfile.mkdtemp(dir=place)
    try:
        while made < aim:
            os.close(os.open(f"{folder}/{made}", os.O_CREAT | os.O_WRONLY))
            made += 1
    finally:
        for number in range(made):
            os.unlink(f"{folder}/{number}")
        os.rmdir(folder)
    return f"{made} files in {place}"


@RESOURCES("inodes-tmp", "more files than /tmp may have", timeout_s=60)
def _() -> str | None:
    return _fill_inodes("/tmp", int(_limit("tmp_inodes") * _PAST))


@RESOURCES("inodes-shm", "more files than /dev/shm may have", timeout_s=60)
def _() -> str | None:
    return _fill_inodes("/dev/shm", int(_limit("shm_inodes") * _PAST))


@RESOURCES("open-files", "more open files than allowed")
def _() -> str | None:
    aim, soft_hard = int(_limit("open_files") * _PAST), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft_hard[1], soft_hard[1]))
    for _ in range(aim):
        try:
            os.dup(0)
        except OSError:
            return None
    return f"{aim} open files"


@RESOURCES("file-size", "a file larger than allowed", can_kill=True)
def _() -> str | None:
    with open("/workspace/large", "wb") as file:
        os.lseek(file.fileno(), _limit("file_bytes"), os.SEEK_SET)
        os.write(file.fileno(), b"x" * 4096)
    return "written past the limit"


@RESOURCES("file-sparse", "a file that claims a terabyte", can_kill=True)
def _() -> str | None:
    with open("/workspace/sparse", "wb") as file:
        os.ftruncate(file.fileno(), 1 << 40)
    os.unlink("/workspace/sparse")
    return "1 TiB"


@RESOURCES("core-dump", "leave memory on the disk, or with the host's crash handler")
def _() -> str | None:
    pid = os.fork()
    if pid == 0:
        soft_hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (soft_hard[1], soft_hard[1]))
        os.chdir("/workspace")
        os.abort()
    return "a core was dumped" if os.WCOREDUMP(os.waitpid(pid, 0)[1]) else None


@RESOURCES("message-queue", "a message queue: kernel memory counted for the host's user")
def _() -> str | None:
    library = ctypes.CDLL("librt.so.1", use_errno=True)
    if library.mq_open(b"/attack", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0:
        library.mq_unlink(b"/attack")
        return "made"
    raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@RESOURCES("pending-signals", "queue signals without end")
def _() -> str | None:
    aim = int(_limit("signals") * _PAST)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    value = ctypes.c_void_p(1)
    for _ in range(aim):
        if LIBC.sigqueue(os.getpid(), signal.SIGRTMIN, value):
            return None
    return f"{aim} queued"


@RESOURCES("priority-raise", "go before everybody else")
def _() -> str | None:
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return "nice -5"


@RESOURCES("real-time-deadline", "a processor share guaranteed by deadline, before everybody else")
def _() -> str | None:
    attributes = struct.pack("<IIQiIQQQ", 48, 6, 0, 0, 0, 1_000_000, 10_000_000, 10_000_000)
    if LIBC.syscall(ctypes.c_long(314 if IS_X86 else 274), 0, attributes, 0) == 0:
        return "deadline"
    failure = ctypes.get_errno()
    if failure == errno.EPERM:
        raise PermissionError(failure, os.strerror(failure))
    return f"the kernel answered {failure}"


@RESOURCES("io-real-time", "disk before everybody else")
def _() -> str | None:
    if LIBC.syscall(ctypes.c_long(251 if IS_X86 else 30), 1, 0, 1 << 13) == 0:
        return "real-time class"
    raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _lower_score(score: int) -> str | None:
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))
    return f"score {score}"


RESOURCES.add("oom-score-toolbox", "be spared rather than the toolbox", functools.partial(_lower_score, 499))


@RESOURCES(
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
    count, size = min(int(_limit("pids") * 0.9), 300), 3 * MIB
    children = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                _touch(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
                _park()
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


def _burn(seconds: float) -> float:
    """Processor seconds that eight processes got in this time."""
    children = []
    before = os.times()
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@RESOURCES("processor", "more processor than allowed", needs="slow", timeout_s=30)
def _() -> str | None:
    share = _limit("cpu_hundredths") / 100
    got = _burn(2.0) / 2
    return f"{got:.2f} s of processor in 1 s" if got > share * 1.3 else None


@RESOURCES("disk", "more disk than the workspace may take", needs="small", can_kill=True, timeout_s=30)
def _() -> str | None:
    """Written as fast as possible; what a watcher lets through on top of the limit is allowed for by the host."""
    aim, written, block = _limit("workspace_bytes") + 96 * MIB, 0, bytes(4 * MIB)
    number = 0
    try:
        while written < aim:
            with open(f"/workspace/fill-{number}", "wb", buffering=0) as file:
                for _ in range(4):
                    written += file.write(block)
            number += 1
    finally:
        for done in range(number + 1):
            if os.path.exists(f"/workspace/fill-{done}"):
                os.unlink(f"/workspace/fill-{done}")
    return f"{written // MIB} MiB"


@RESOURCES("inodes-workspace", "more files than the workspace may have", needs="small", can_kill=True, timeout_s=60)
def _() -> str | None:
    return _fill_inodes("/workspace", _limit("workspace_inodes") + 6000)


@RESOURCES("allocate", "reserve disk without writing", needs="small", can_kill=True, timeout_s=30)
def _() -> str | None:
    aim = _limit("workspace_bytes") + 96 * MIB
    with open("/workspace/reserved", "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, aim)
            time.sleep(2)  # a watcher needs a moment, and ends us then
            held = os.stat("/workspace/reserved").st_blocks * 512
        finally:
            os.unlink("/workspace/reserved")
    return f"{held // MIB} MiB" if held >= aim else None


@RESOURCES("output", "more output than anybody keeps", needs="host", path="output")
def _() -> str | None:
    block = b"x" * (1 << 16)
    for _ in range(_limit("output_bytes") * 5 // 4 // len(block)):
        os.write(1, block)
    return None


@RESOURCES("socket-buffers", "kernel memory by full socket buffers", needs="small", can_kill=True, timeout_s=30)
def _() -> str | None:
    """Each pair takes some hundred kilobytes that no limit of a process sees; the control group must."""
    aim, sent, kept = int(_limit("memory_bytes") * _PAST), 0, []
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
