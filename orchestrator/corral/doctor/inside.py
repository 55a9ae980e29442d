"""What a box looks like from inside, asked by `corral doctor --sandbox`: this file's text is run there as it is.

It runs as the untrusted user with the standard library alone (`python3 -I -S -c TEXT`), changes nothing, and prints one
JSON object. The host judges; nothing here does.
"""

import ctypes
import errno
import glob
import json
import os
import resource
import socket
import stat

WIDE_OPEN = ""
"""What an attempt that succeeded is told as; a refused one by the name of its error."""

# x86_64, aarch64, arguments that do no harm if the call gets through.
CALLS = {
    "io_uring_setup": (425, 425, (1, 0)),
    "userfaultfd": (323, 282, (0,)),
    "bpf": (321, 280, (0, 0, 0)),
    "perf_event_open": (298, 241, (0, 0, 0, 0, 0)),
    "add_key": (248, 217, (0, 0, 0, 0, -3)),
    "keyctl": (250, 219, (0, -3, 0)),
    "memfd_secret": (447, 447, (0,)),
    "ptrace": (101, 117, (16, 0, 0, 0)),
    "process_vm_readv": (310, 270, (1, 0, 0, 0, 0, 0)),
    "pidfd_getfd": (438, 438, (-1, 0, 0)),
    "kcmp": (312, 272, (0, 0, 0, 0, 0)),
    "open_by_handle_at": (304, 265, (-1, 0, 0)),
    "mount": (165, 40, (0, 0, 0, 0, 0)),
    "fsopen": (430, 430, (0, 0)),
    "setns": (308, 268, (-1, 0)),
    "clone3": (435, 435, (0, 0)),
    "init_module": (175, 105, (0, 0, 0)),
    "kexec_load": (246, 104, (0, 1 << 20, 0, 0)),
    "quotactl": (179, 60, (0, 0, 0, 0)),
    "swapon": (167, 224, (0, 0)),
    "reboot": (169, 142, (0, 0, 0, 0)),
    "settimeofday": (164, 170, (0, 0)),
    "vmsplice": (278, 75, (-1, 0, 0, 0)),
    "fanotify_init": (300, 262, (0, 0)),
    "syslog": (103, 116, (10, 0, 0)),
}
NAMESPACES = {"mount": 0x20000, "user": 0x10000000, "net": 0x40000000, "pid": 0x20000000}
SOCKETS = {
    "packet": (17, 3, 0),
    "vsock": (40, 1, 0),
    "alg": (38, 5, 0),
    "raw": (2, 3, 1),
    "ping": (2, 2, 1),
    "netlink-audit": (16, 3, 9),
    "netlink-netfilter": (16, 3, 12),
    "xdp": (44, 3, 0),
}
MASKED = (
    *("/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/iomem", "/proc/cmdline", "/proc/interrupts"),
    *("/proc/timer_list", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/kpageflags", "/proc/diskstats"),
    *("/sys/firmware", "/sys/block", "/sys/module", "/sys/power", "/sys/kernel/debug", "/sys/kernel/security"),
)
READ_ONLY = (
    *("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches"),
    *("/proc/irq/default_smp_affinity", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/*/cgroup.procs"),
    *("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"),
)
SYSTEM = ("/", "/usr", "/etc", "/opt", "/var", "/root", "/dev", "/run", "/opt/corral/toolbox", "/run/corral")
ADDRESSES = (("198.51.100.7", 443), ("169.254.169.254", 80), ("10.0.0.1", 22), ("2001:db8::7", 443))
ENGINE_SOCKETS = ("/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")
LIMITS = {"open_files": "NOFILE", "file_bytes": "FSIZE", "core": "CORE", "locked": "MEMLOCK", "queues": "MSGQUEUE"}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def attempt(action: "Callable[[], object]") -> str:
    """WIDE_OPEN, or the name of the error."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return WIDE_OPEN


def call(numbers: tuple[int, int], arguments: tuple[int, ...]) -> str:
    """A system call by its number: the name of its error."""
    library = ctypes.CDLL(None, use_errno=True)
    number = numbers[os.uname().machine == "aarch64"]
    if library.syscall(ctypes.c_long(number), *[ctypes.c_long(word) for word in arguments]) >= 0:
        return WIDE_OPEN
    return errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))


def look_at_kernel() -> dict[str, object]:
    calls = {name: call((x86, arm), words) for name, (x86, arm, words) in CALLS.items()}
    # In a process of its own: a namespace that is given after all is not ours to sit in.
    for name, flag in NAMESPACES.items():
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, call((272, 97), (flag,)).encode() or b"-")
            os._exit(0)
        os.waitpid(pid, 0)
        calls[f"unshare-{name}"] = os.read(reader, 64).decode().replace("-", WIDE_OPEN)
        os.close(reader)
        os.close(writer)
    sockets = {name: attempt(lambda kind=kind: socket.socket(*kind).close()) for name, kind in SOCKETS.items()}  # type: ignore[misc]
    return {"calls": calls, "sockets": sockets}


def look_at_myself() -> dict[str, object]:
    with open("/proc/self/status", encoding="ascii") as file:
        status = dict(line.rstrip("\n").split(":", 1) for line in file)
    with open("/proc/self/uid_map", encoding="ascii") as file:
        user_map = [int(word) for word in file.read().split()]
    names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{kind}"))[1] for name, kind in LIMITS.items()}
    return {
        "user_ids": sorted({*os.getresuid(), *os.getresgid(), *os.getgroups()}),
        "user_map": user_map,
        "status": {name: status.get(name, "?").strip() for name in names},
        "limits": limits,
        "descriptors": [name for name in os.listdir("/proc/self/fd") if int(name) > 2 and is_open(int(name))],
        "host_name": os.uname().nodename,
    }


def is_open(descriptor: int) -> bool:
    """Not the one that listed the directory, which has gone by now."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def look_at_files() -> dict[str, object]:
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
        mounts = [line.split()[1:4] for line in file if line.split()[2] == "tmpfs"]
    told = [path for path in MASKED if tells_something(path)]
    writable = [path for pattern in READ_ONLY for path in glob.glob(pattern) if os.access(path, os.W_OK)]
    return {
        "memory_files": [[place, options] for place, _, options in mounts if not place.startswith(("/proc/", "/sys/"))],
        "told": told,
        "writable": [*writable, *(path for path in SYSTEM if os.access(path, os.W_OK))],
        "set_id": find_set_id(),
        "devices": [path for path in glob.glob("/dev/*") if is_block(path)],
        "engine": [path for path in ENGINE_SOCKETS if os.path.exists(path)],
    }


def tells_something(path: str) -> bool:
    try:
        if os.path.isdir(path):
            return bool(os.listdir(path))
        with open(path, "rb") as file:
            return bool(file.read(16))
    except OSError:
        return False


def is_block(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False


def find_set_id() -> list[str]:
    found = []
    for place in ("/usr/bin", "/usr/sbin", "/usr/lib/openssh", "/usr/libexec"):
        for path in glob.glob(f"{place}/*"):
            try:
                mode = os.lstat(path).st_mode
            except OSError:
                continue
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                found.append(path)
    return sorted(found)[:20]


def look_at_network() -> dict[str, object]:
    with open("/proc/net/dev", encoding="ascii") as file:
        interfaces = [line.split(":")[0].strip() for line in file.readlines()[2:]]
    return {"interfaces": interfaces, "connections": {host: connect(host, port) for host, port in ADDRESSES}}


def connect(host: str, port: int) -> str:
    def dial() -> None:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.settimeout(0.5)
            probe.connect((host, port))

    return attempt(dial)


def look_at_toolbox() -> dict[str, object]:
    """The first process: whatever of it can be had."""

    def open_file(name: str, flags: int) -> str:
        return attempt(lambda: os.close(os.open(f"/proc/1/{name}", flags)))

    def change_limits() -> None:
        resource.prlimit(1, resource.RLIMIT_NOFILE, resource.prlimit(1, resource.RLIMIT_NOFILE))

    return {
        "toolbox": {
            "signal": attempt(lambda: os.kill(1, 0)),
            "memory": open_file("mem", os.O_RDONLY),
            "environment": open_file("environ", os.O_RDONLY),
            "descriptors": attempt(lambda: os.listdir("/proc/1/fd")),
            "input": open_file("fd/0", os.O_WRONLY),
            "output": open_file("fd/1", os.O_WRONLY),
            "root": attempt(lambda: os.readlink("/proc/1/root")),
            "limits": attempt(change_limits),
            "priority": attempt(lambda: os.setpriority(os.PRIO_PROCESS, 1, 19)),
        }
    }


def main() -> None:
    facts: dict[str, object] = {}
    for look in (look_at_myself, look_at_kernel, look_at_files, look_at_network, look_at_toolbox):
        facts |= look()
    os.write(1, json.dumps(facts).encode())


if __name__ == "__main__":
    main()
