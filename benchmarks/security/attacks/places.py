"""Files of the kernel: what must not be written, what tells about the host, and devices."""

from __future__ import annotations

import functools
import glob
import os
import socket
import stat

from .attack import Table, Unable

PLACES = Table("privilege")
_WRITE = {
    "core-pattern": ("/proc/sys/kernel/core_pattern", "a program of ours run by the host's kernel at a crash"),
    "helpers": ("/proc/sys/kernel/modprobe:/proc/sys/kernel/poweroff_cmd", "the same at a module load or power-off"),
    "sysrq": ("/proc/sysrq-trigger:/proc/sys/kernel/panic", "reboot, kill or crash the host"),
    "binfmt": ("/proc/sys/fs/binfmt_misc", "an interpreter of ours for every program"),
    "randomize": ("/proc/sys/kernel/randomize_va_space", "address randomisation off"),
    "drop-caches": ("/proc/sys/vm/drop_caches", "slow the whole host down"),
    "overcommit": ("/proc/sys/vm/overcommit_memory", "memory rules of the host"),
    "per-user": ("/proc/sys/fs/inotify/max_user_watches", "what each user of the host may have"),
    "hostname-file": ("/proc/sys/kernel/hostname", "rename the machine"),
    "dmesg-restrict": ("/proc/sys/kernel/dmesg_restrict", "open the kernel log"),
    "file-max": ("/proc/sys/fs/file-max", "open files of the whole host"),
    "protected-links": ("/proc/sys/fs/protected_symlinks", "a defence of the host off"),
    "ip-forward": ("/proc/sys/net/ipv4/ip_forward", "route packets"),
    "irq": ("/proc/irq/default_smp_affinity", "move the host's interrupts"),
    "thp": ("/sys/kernel/mm/transparent_hugepage/enabled", "memory of the whole host"),
    "uevent-seqnum": ("/sys/kernel/mm/ksm/run", "merge the host's memory"),
    "module-parameter": ("/sys/module/*/parameters/*", "parameters of drivers"),
    "power": ("/sys/power/state", "send the host to sleep"),
    "release-agent": ("/sys/fs/cgroup/*/release_agent:/mnt/*/release_agent", "a program of ours run by the host"),
    "memory-limit": ("/sys/fs/cgroup/memory/memory.limit_in_bytes:/sys/fs/cgroup/memory.max", "one's own memory limit"),
    "pids-limit": ("/sys/fs/cgroup/pids/pids.max:/sys/fs/cgroup/pids.max", "one's own process limit"),
    "cpu-limit": ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us:/sys/fs/cgroup/cpu.max", "one's own processor limit"),
    "devices-allow": ("/sys/fs/cgroup/devices/devices.allow", "devices allowed to this container"),
    "cgroup-procs": ("/sys/fs/cgroup/*/cgroup.procs:/sys/fs/cgroup/cgroup.procs", "move between groups"),
    "sysfs-block": ("/sys/block/*/queue/scheduler", "the host's disks"),
}
_READ = {
    "kcore": ("/proc/kcore:/proc/kpagecgroup", "the kernel's memory"),
    "kallsyms": ("/proc/kallsyms", "the kernel's addresses"),
    "kmsg": ("/proc/kmsg", "the kernel's log"),
    "keys": ("/proc/keys", "kernel keys"),
    "key-users": ("/proc/key-users", "who has kernel keys"),
    "iomem": ("/proc/iomem", "the memory map"),
    "ioports": ("/proc/ioports", "ports"),
    "cmdline": ("/proc/cmdline", "how the host was started"),
    "interrupts": ("/proc/interrupts", "interrupts: a clock for keystrokes"),
    "timer-list": ("/proc/timer_list", "timers and kernel addresses"),
    "vmallocinfo": ("/proc/vmallocinfo", "kernel addresses"),
    "slabinfo": ("/proc/slabinfo", "kernel objects"),
    "pagetypeinfo": ("/proc/pagetypeinfo", "the host's memory"),
    "kpageflags": ("/proc/kpageflags", "every page of the host"),
    "kpagecount": ("/proc/kpagecount", "how often each is mapped"),
    "diskstats": ("/proc/diskstats", "what the host's disks do"),
    "partitions": ("/proc/partitions", "the host's disks"),
    "config": ("/proc/config.gz", "how the kernel was built"),
    "firmware": ("/sys/firmware/*", "firmware tables"),
    "block": ("/sys/block/*", "disks"),
    "modules": ("/sys/module/*", "modules"),
    "bus": ("/sys/bus/*", "buses and what is on them"),
    "power-state": ("/sys/power/*", "power"),
    "debugfs": ("/sys/kernel/debug/*:/sys/kernel/security/*", "debugging interfaces"),
    "vmcoreinfo": ("/sys/kernel/vmcoreinfo", "where the kernel's notes are"),
    "fs-ext4": ("/sys/fs/ext4/*", "the host's file systems"),
}
_DEVICES = {
    "memory": ("/dev/mem:/dev/port:/dev/kmsg", "the host's memory, ports or log"),
    "fuse": ("/dev/fuse", "a file system of one's own"),
    "tun": ("/dev/net/tun", "a network of one's own"),
    "loop": ("/dev/loop-control", "files as disks"),
    "kvm": ("/dev/kvm:/dev/vhost*", "virtual machines"),
    "console": ("/dev/tty0:/dev/ttyS0:/dev/console", "the host's console"),
}


def _find(patterns: str) -> list[str]:
    return [path for pattern in patterns.split(":") for path in sorted(glob.glob(pattern))]


def _open_any(patterns: str, flags: int) -> str | None:
    """Opened is enough: nothing is ever written, the host would feel it."""
    refused: OSError = FileNotFoundError(2, "there is no such file")
    for path in _find(patterns)[:50]:
        target = os.path.join(path, "register") if path.endswith("binfmt_misc") else path
        try:
            os.close(os.open(target, flags | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            refused = error
        else:
            return f"{path} opened"
    raise refused


def _read_any(patterns: str) -> str | None:
    refused: OSError = FileNotFoundError(2, "there is nothing")
    for path in _find(patterns):
        try:
            if os.path.isdir(path):
                return f"{path} is there"
            with open(path, "rb", buffering=0) as file:
                os.set_blocking(file.fileno(), False)
                found = file.read(64)
        except OSError as error:
            refused = error
        else:
            if found or found is None:  # None: it would have waited for the next line
                return f"{path} answers"
    if _find(patterns):
        return None
    raise refused


def _fill() -> None:
    for name, (path, what) in _WRITE.items():
        PLACES.add(f"write-{name}", f"write: {what}", functools.partial(_open_any, path, os.O_WRONLY))
    for name, (path, what) in _READ.items():
        PLACES.add(f"read-{name}", f"read: {what}", functools.partial(_read_any, path))
    for name, (path, what) in _DEVICES.items():
        PLACES.add(f"device-{name}", f"open: {what}", functools.partial(_open_any, path, os.O_RDWR))


_fill()


@PLACES("device-disk", "read the host's disk")
def _() -> str | None:
    disks = [path for path in glob.glob("/dev/*") if os.path.exists(path) and stat.S_ISBLK(os.stat(path).st_mode)]
    refused: OSError = FileNotFoundError(2, "there is no block device")
    for path in disks:
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError as error:
            refused = error
        else:
            return f"{path} opened"
    raise refused


@PLACES("device-made", "make a node of the null device and use it")
def _() -> str | None:
    path = "/workspace/made-null"
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.close(os.open(path, os.O_WRONLY))
    return "made and opened"


@PLACES("docker-socket", "the engine's socket")
def _() -> str | None:
    for path in (
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
    ):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except OSError:
                continue
            return f"{path} answers"
    return None


def _look_for(name: str) -> str | None:
    """Whether a text of the host, that the host itself tells us to look for, can be found anywhere in here."""
    wanted = os.environ.get(f"ATTACK_{name}")
    if not wanted:
        raise Unable("the host did not say what to look for")
    needle = bytes.fromhex(wanted)
    files = [
        "/proc/self/mountinfo", "/proc/self/cgroup", "/proc/sys/kernel/hostname", "/etc/hostname", "/etc/hosts",
        "/etc/resolv.conf", *glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline"),
    ]  # fmt: skip
    for path in files:
        try:
            with open(path, "rb") as file:
                found = file.read(1 << 20)
        except OSError:
            continue
        if needle in found.replace(wanted.encode(), b""):
            return f"in {path}"
    return None


@PLACES("see-hostname", "learn the host's name")
def _() -> str | None:
    name = bytes.fromhex(os.environ.get("ATTACK_HOSTNAME", "")).decode()
    if not name:
        raise Unable("the host did not say its name")
    for path in ("/proc/sys/kernel/hostname", "/etc/hostname", "/etc/hosts"):
        with open(path, encoding="utf-8", errors="replace") as file:
            if name in file.read().split():
                return f"in {path}"
    return None


for _name, _what in (
    ("SECRET", "find a variable of the orchestrator's environment"),
    ("HOSTPATH", "learn the workspace's path on the host"),
    ("RUNPATH", "learn where runs are kept on the host"),
):
    PLACES.add(f"see-{_name.lower()}", _what, functools.partial(_look_for, _name))


@PLACES("see-foreign-processes", "see processes of the host or of other containers")
def _() -> str | None:
    allowed = ("corral", "python3", "sleep", "bash", "sh", "attacks", "tini", "docker-init")
    for path in glob.glob("/proc/[0-9]*/comm"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                name = file.read().strip()
        except OSError:
            continue
        if name not in allowed:
            return f"{name} ({path})"
    return None


@PLACES("reach-by-host-path", "open the workspace by its path on the host")
def _() -> str | None:
    path = bytes.fromhex(os.environ.get("ATTACK_HOSTPATH", ""))
    if not path:
        raise Unable("the host did not say its path")
    return f"{len(os.listdir(path))} names"


@PLACES("writable-root", "write into the system's own directories")
def _() -> str | None:
    for place in ("/usr", "/etc", "/", "/var", "/opt", "/root", "/dev"):
        try:
            with open(f"{place}/corral-attack", "wb"):
                os.unlink(f"{place}/corral-attack")
        except OSError:
            continue
        return f"{place} is writable"
    return None


@PLACES("home-writable", "write into the home directory")
def _() -> str | None:
    path = os.path.join(os.path.expanduser("~"), "attack")
    with open(path, "wb"):
        os.unlink(path)
    return "written"


@PLACES("see-overlay-path", "learn where the overlay's directories are on the host")
def _() -> str | None:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        return "in the mount table" if "upperdir=/" in file.read() else None


@PLACES("resolv-conf", "find a resolver's configuration")
def _() -> str | None:
    return "there is one" if os.path.exists("/etc/resolv.conf") else None
