"""Using more than one's share. ATTACK_LIMITS holds what the box is given; each attack aims well past it."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import resource
import signal
import struct
import tempfile
import threading
import time

from .attack import MIB, PAST, Table, park, read_limit
from .syscall import IS_X86, LIBC

RESOURCES = Table("resources")


@RESOURCES("fork-bomb", "more processes than allowed")
def _() -> str | None:
    aim, children = int(read_limit("pids") * PAST), []
    try:
        while len(children) < aim:
            pid = os.fork()
            if pid == 0:
                park()
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
    aim, end = int(read_limit("pids") * PAST), threading.Event()
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
    aim = int(read_limit("pids") * PAST)
    for _ in range(aim):
        try:
            pid = os.fork()
        except OSError:
            return None
        if pid == 0:
            os._exit(0)
    return f"{aim} zombies"


def _fill_place(place: str, name: str) -> str | None:
    """A file allocated past the size of a memory file system."""
    if not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, f"{place} is not writable")
    aim, written, files = int(read_limit(name) * PAST), 0, []
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
    return _fill_inodes("/tmp", int(read_limit("tmp_inodes") * PAST))


@RESOURCES("inodes-shm", "more files than /dev/shm may have", timeout_s=60)
def _() -> str | None:
    return _fill_inodes("/dev/shm", int(read_limit("shm_inodes") * PAST))


@RESOURCES("open-files", "more open files than allowed")
def _() -> str | None:
    aim, soft_hard = int(read_limit("open_files") * PAST), resource.getrlimit(resource.RLIMIT_NOFILE)
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
        os.lseek(file.fileno(), read_limit("file_bytes"), os.SEEK_SET)
        os.write(file.fileno(), b"x" * 4096)
    return "written past the limit"


@RESOURCES("file-sparse", "a file that claims a terabyte", can_kill=True)
def _() -> str | None:
    with open("/workspace/sparse", "wb") as file:
        os.ftruncate(file.fileno(), 1 << 40)
    os.unlink("/workspace/sparse")
    return "1 TiB"


@RESOURCES("pending-signals", "queue signals without end")
def _() -> str | None:
    aim = int(read_limit("signals") * PAST)
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
    share = read_limit("cpu_hundredths") / 100
    got = _burn(2.0) / 2
    return f"{got:.2f} s of processor in 1 s" if got > share * 1.3 else None


@RESOURCES("disk", "more disk than the workspace may take", needs="small", can_kill=True, timeout_s=30)
def _() -> str | None:
    """Written as fast as possible; what a watcher lets through on top of the limit is allowed for by the host."""
    aim, written, block = read_limit("workspace_bytes") + 96 * MIB, 0, bytes(4 * MIB)
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
    return _fill_inodes("/workspace", read_limit("workspace_inodes") + 6000)


@RESOURCES("allocate", "reserve disk without writing", needs="small", can_kill=True, timeout_s=30)
def _() -> str | None:
    aim = read_limit("workspace_bytes") + 96 * MIB
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
    for _ in range(read_limit("output_bytes") * 5 // 4 // len(block)):
        os.write(1, block)
    return None
