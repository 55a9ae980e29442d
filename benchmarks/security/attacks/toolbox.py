"""The trusted processes in the container, the first one before all: read, steer, end, imitate or slow them down."""

from __future__ import annotations

import ctypes
import errno
import functools
import glob
import os
import resource
import time
from collections.abc import Callable

from .attack import Table, Unable
from .syscall import call, reach

TOOLBOX = Table("integrity")


def _targets() -> list[int]:
    """The first process, and every other one of root's that is not one of ours."""
    ours, pid = {os.getpid()}, os.getppid()
    while pid > 1:
        ours.add(pid)
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        try:
            number, owner = int(path[6:]), os.stat(path).st_uid
        except OSError:
            continue
        if owner == 0 and number not in ours:
            found.append(number)
    return sorted({1, *found})


def _each(attempt: Callable[[int], object]) -> str | None:
    """The attempt against every target; None only when each refused."""
    refused: OSError | None = None
    for pid in _targets():
        try:
            answer = attempt(pid)
        except ProcessLookupError:
            continue
        except OSError as error:
            refused = error
        else:
            return f"process {pid}: {answer}"
    if refused is not None:
        raise refused
    return None


def _read(name: str, pid: int) -> str:
    """Read a file of /proc/PID; mem and pagemap need no more than opening."""
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    try:
        if name not in ("mem", "pagemap"):
            os.read(descriptor, 64)
    finally:
        os.close(descriptor)
    return "read"


def _follow(name: str, pid: int) -> str:
    path = f"/proc/{pid}/{name}"
    if name in ("fd", "map_files"):
        return f"{len(os.listdir(path))} names"
    return os.readlink(path)


def _write(name: str, pid: int) -> str:
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_WRONLY)
    os.close(descriptor)
    return "opened for writing"


for _name, _what in (
    ("mem", "its memory"), ("environ", "its environment"), ("auxv", "its addresses"), ("maps", "its memory map"),
    ("smaps", "its memory in detail"), ("pagemap", "its pages"), ("stack", "its kernel stack"),
    ("syscall", "what it waits for"), ("io", "what it reads and writes"), ("personality", "its personality"),
):  # fmt: skip
    TOOLBOX.add(f"toolbox-read-{_name}", f"read {_what}", functools.partial(_each, functools.partial(_read, _name)))
for _name, _what in (
    ("fd", "list its descriptors"), ("map_files", "list its mapped files"), ("root", "its root"),
    ("cwd", "its directory"), ("exe", "its program"), ("ns/mnt", "its namespaces"),
):  # fmt: skip
    TOOLBOX.add(
        f"toolbox-link-{_name.replace('/', '-')}",
        f"follow {_what}",
        functools.partial(_each, functools.partial(_follow, _name)),
    )
for _name, _what in (
    ("mem", "its memory"), ("oom_score_adj", "make it the kernel's first victim"), ("coredump_filter", "its dumps"),
    ("clear_refs", "its page counters"), ("uid_map", "its users"), ("setgroups", "its groups"),
    ("autogroup", "its share"),
    ("fd/0", "its input: speak for the orchestrator"), ("fd/1", "its output: forge a reply"),
    ("fd/2", "its crash log"), ("loginuid", "its audit id"),
):  # fmt: skip
    TOOLBOX.add(
        f"toolbox-write-{_name.replace('/', '')}",
        f"write {_what}",
        functools.partial(_each, functools.partial(_write, _name)),
    )


@TOOLBOX("toolbox-kill", "signal it")
def _() -> str | None:
    return _each(lambda pid: os.kill(pid, 0))


@TOOLBOX("toolbox-kill-threads", "signal any of its threads")
def _() -> str | None:
    def attempt(pid: int) -> str:
        refused: OSError = ProcessLookupError(errno.ESRCH, "gone")
        for task in os.listdir(f"/proc/{pid}/task"):
            try:
                call("tgkill", pid, int(task), 0)
            except OSError as error:
                refused = error
            else:
                return f"thread {task}"
        raise refused

    return _each(attempt)


@TOOLBOX("toolbox-kill-race", "signal a thread of a supervisor while it starts a command", needs="calls", timeout_s=30)
def _() -> str | None:
    """The supervisor lends its second thread the user's ids for a moment: hit that moment."""
    until = time.monotonic() + 4
    while time.monotonic() < until:
        for pid in _targets():
            try:
                tasks = [int(task) for task in os.listdir(f"/proc/{pid}/task")]
            except OSError:
                continue
            stop = time.monotonic() + 0.05
            while time.monotonic() < stop:
                for task in tasks:
                    for attempt in (
                        functools.partial(call, "tkill", task, 0),
                        functools.partial(os.setpriority, os.PRIO_PROCESS, task, 19),
                    ):
                        try:
                            attempt()
                        except OSError:
                            continue
                        return f"thread {task} of process {pid}: {attempt.args[0]}"
    return None


@TOOLBOX("toolbox-queue-signal", "queue a signal with a value")
def _() -> str | None:
    info = (ctypes.c_int * 32)(0, 0, -1)  # SI_QUEUE
    return _each(lambda pid: call("rt_sigqueueinfo", pid, 0, ctypes.create_string_buffer(bytes(info), 128)))


@TOOLBOX("toolbox-pidfd-signal", "signal it by descriptor")
def _() -> str | None:
    return _each(lambda pid: call("pidfd_send_signal", os.pidfd_open(pid), 0, 0, 0))


@TOOLBOX("toolbox-pidfd-take", "take its trust line by descriptor")
def _() -> str | None:
    return _each(lambda pid: call("pidfd_getfd", os.pidfd_open(pid), 0, 0))


@TOOLBOX("toolbox-trace", "trace it")
def _() -> str | None:
    return _each(lambda pid: call("ptrace", 0x4206, pid, 0, 0))  # PTRACE_SEIZE: does not stop it


@TOOLBOX("toolbox-vm-read", "read its memory without /proc")
def _() -> str | None:
    def attempt(pid: int) -> str:
        mine = ctypes.create_string_buffer(8)
        local = (ctypes.c_size_t * 2)(ctypes.addressof(mine), 8)
        remote = (ctypes.c_size_t * 2)(4096, 8)  # nothing is mapped there: EFAULT says we were let in
        try:
            call("process_vm_readv", pid, ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0)
        except OSError as error:
            if error.errno != errno.EFAULT:
                raise
        return "let in"

    return _each(attempt)


@TOOLBOX("toolbox-limits", "change its limits")
def _() -> str | None:
    def attempt(pid: int) -> str:
        now = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, now)
        return f"open files {now}"

    return _each(attempt)


@TOOLBOX("toolbox-nice", "slow it down")
def _() -> str | None:
    return _each(lambda pid: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)))


@TOOLBOX("toolbox-affinity", "push it onto one processor")
def _() -> str | None:
    return _each(lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)))


@TOOLBOX("toolbox-idle", "give it idle time only")
def _() -> str | None:
    return _each(lambda pid: os.sched_setscheduler(pid, os.sched_getscheduler(pid), os.sched_param(0)))


@TOOLBOX("toolbox-io-priority", "give it no disk time")
def _() -> str | None:
    return _each(lambda pid: call("ioprio_set", 1, pid, 2 << 13 | 4))


@TOOLBOX("toolbox-enter", "enter its namespaces by descriptor")
def _() -> str | None:
    return _each(lambda pid: call("setns", os.pidfd_open(pid), 0x40000000))


@TOOLBOX("toolbox-compare", "compare its kernel objects with ours")
def _() -> str | None:
    return _each(lambda pid: call("kcmp", pid, os.getpid(), 1, 0, 0))


@TOOLBOX("toolbox-migrate", "move its memory")
def _() -> str | None:
    nodes = (ctypes.c_ulong * 1)(1)
    address = ctypes.addressof(nodes)
    return _each(lambda pid: call("migrate_pages", pid, 64, address, address))


@TOOLBOX("toolbox-madvise", "page its memory out")
def _() -> str | None:
    def attempt(pid: int) -> str:
        remote = (ctypes.c_size_t * 2)(0, 0)
        return reach("process_madvise", os.pidfd_open(pid), ctypes.addressof(remote), 1, 21, 0)

    return _each(attempt)


@TOOLBOX("inherited-descriptors", "find a descriptor that was left open in us")
def _() -> str | None:
    known = set(os.environ.get("ATTACK_FDS", "").split(","))
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and name not in known:
            try:
                return f"{name}: {os.readlink(f'/proc/self/fd/{name}')}"
            except OSError:
                continue
    return None


_FILES = {
    "main": ("/opt/corral/toolbox/__main__.py", "the toolbox's own code"),
    "protocol": ("/opt/corral/toolbox/corral_protocol/__init__.py", "its protocol"),
    "bash-env": ("/opt/corral/toolbox/corral_toolbox/bash_env.sh", "what every shell reads"),
    "python": ("/usr/bin/python3.11:/usr/bin/python3", "its interpreter"),
    "os-module": ("/usr/lib/python3*/os.py", "the library it imports"),
    "libc": ("/lib/x86_64-linux-gnu/libc.so.6:/lib/aarch64-linux-gnu/libc.so.6", "the C library"),
    "shell": ("/bin/bash", "the shell of every call"),
    "passwd": ("/etc/passwd", "the users"),
    "group": ("/etc/group", "the groups"),
    "hosts": ("/etc/hosts", "names of hosts"),
    "hostname": ("/etc/hostname", "the name of the box"),
    "profile": ("/etc/bash.bashrc:/etc/profile", "what shells read"),
}  # fmt: skip
_NEW = {
    "toolbox": ("/opt/corral/toolbox/shadow.py", "a module beside the toolbox"),
    "bytecode": ("/opt/corral/toolbox/__pycache__/shadow.pyc", "compiled code beside it"),
    "sitecustomize": ("/usr/lib/python3/dist-packages/sitecustomize.py", "code at every start of Python"),
    "pth": ("/usr/local/lib/python3.11/dist-packages/x.pth", "the same by a path file"),
    "preload": ("/etc/ld.so.preload", "a library in every program"),
    "run": ("/run/shadow", "a file among the box's own"),
    "run-corral": ("/run/corral/shadow", "a file beside its users"),
    "cron": ("/etc/cron.d/shadow:/etc/shadow-cron", "a timed job"),
    "init": ("/etc/init.d/shadow:/etc/systemd/system/shadow.service", "a service"),
    "home-of-root": ("/root/.bashrc-shadow", "what root reads"),
}


def _append(paths: str) -> str | None:
    refused: OSError = FileNotFoundError(errno.ENOENT, "no such file")
    for pattern in paths.split(":"):
        for path in glob.glob(pattern):
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
            except OSError as error:
                refused = error
                if error.errno == errno.ETXTBSY:  # it runs: replace it
                    os.rename(path, f"{path}.attack")
                    os.rename(f"{path}.attack", path)
                    return f"{path} can be replaced"
            else:
                return f"{path} is writable"
    raise refused


def _create(paths: str) -> str | None:
    refused: OSError = FileNotFoundError(errno.ENOENT, "no such directory")
    for path in paths.split(":"):
        if path.startswith("/run/corral/") and os.getuid() == 0:
            os.makedirs("/run/corral", exist_ok=True)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except OSError as error:
            refused = error
        else:
            os.unlink(path)
            return f"{path} made"
    raise refused


def _fill() -> None:
    for name, (path, what) in _FILES.items():
        TOOLBOX.add(f"change-{name}", f"change {what}", functools.partial(_append, path))
    for name, (path, what) in _NEW.items():
        TOOLBOX.add(f"plant-{name}", f"put down {what}", functools.partial(_create, path))


_fill()


@TOOLBOX("replace-toolbox", "move the toolbox away and put another in its place")
def _() -> str | None:
    code = "/opt/corral/toolbox/__main__.py"
    if not os.path.isfile(code):
        raise Unable("no toolbox in this image")
    os.rename(code, f"{code}.away")
    os.rename(f"{code}.away", code)
    return "moved"


@TOOLBOX("trusted-xattr", "set an attribute that only the host's overlay may set")
def _() -> str | None:
    with open("/workspace/xattr", "wb"):
        os.setxattr("/workspace/xattr", "trusted.overlay.opaque", b"y")
    return "set"


@TOOLBOX("immutable", "make a file that cannot be removed")
def _() -> str | None:
    with open("/workspace/immutable", "wb") as file:
        flags = ctypes.create_string_buffer(bytes([0x10, 0, 0, 0, 0, 0, 0, 0]), 8)
        call("ioctl", file.fileno(), 0x40086602, flags)  # FS_IOC_SETFLAGS
        flags = ctypes.create_string_buffer(bytes(8), 8)
        call("ioctl", file.fileno(), 0x40086602, flags)
    return "immutable"
