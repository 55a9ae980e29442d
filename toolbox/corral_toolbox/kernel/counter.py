"""Counters of the box's cgroup and of the toolbox itself, as they can be read from inside."""

import os

ROOT = "/sys/fs/cgroup"
_V1, _V2 = f"{ROOT}/memory", ROOT


def _open_counter(*paths: str) -> int:
    for path in paths:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
    return -1


def _read_counter(fd: int) -> bytes:
    if fd < 0:
        return b""
    try:
        return os.pread(fd, 4096, 0)
    except OSError:
        return b""


def _find_field(text: bytes, name: bytes) -> int:
    for line in text.split(b"\n"):
        key, _, value = line.partition(b" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _parse_number(text: bytes) -> int:
    text = text.strip()
    return int(text) if text.isdigit() else 0


class Counters:
    """The cgroup files stay open: two reads per call, no look-up."""

    def __init__(self, root: str = ROOT) -> None:
        self.layout = ""
        if os.path.exists(f"{root}/cgroup.controllers"):
            self.layout = "v2"
        elif os.path.exists(f"{root}/memory"):
            self.layout = "v1"
        self._oom = _open_counter(f"{root}/memory/memory.oom_control", f"{root}/memory.events")
        self._pids = _open_counter(f"{root}/pids/pids.events", f"{root}/pids.events")

    def read_oom_kills(self) -> int:
        return _find_field(_read_counter(self._oom), b"oom_kill")

    def read_pids_refused(self) -> int:
        return _find_field(_read_counter(self._pids), b"max")


def read_room(path: bytes) -> tuple[int, int, int]:
    """Of a file system: bytes and inodes in use, and bytes left. Raises OSError."""
    found = os.statvfs(path)
    return (
        (found.f_blocks - found.f_bfree) * found.f_frsize,
        max(found.f_files - found.f_ffree, 0),
        found.f_bavail * found.f_frsize,
    )


def is_full(path: bytes) -> bool:
    """Whether nothing more can be written, or no more files be made, on the file system of a place."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    # Some file systems count no inodes at all.
    return not found.f_bavail or (found.f_files > 0 and not found.f_favail)


def _read_path(*paths: str) -> bytes:
    fd = _open_counter(*paths)
    try:
        return _read_counter(fd)
    finally:
        if fd >= 0:
            os.close(fd)


def read_memory_current() -> int:
    return _parse_number(_read_path(f"{_V1}/memory.usage_in_bytes", f"{_V2}/memory.current"))


def read_memory_peak() -> int:
    return _parse_number(_read_path(f"{_V1}/memory.max_usage_in_bytes", f"{_V2}/memory.peak"))


def read_cpu(root: str = ROOT) -> tuple[float, float]:
    """Processor seconds of the whole box, in user and in kernel mode."""
    for place in ("cpuacct", "cpu,cpuacct"):
        if user := _read_path(f"{root}/{place}/cpuacct.usage_user"):
            return _parse_number(user) / 1e9, _parse_number(_read_path(f"{root}/{place}/cpuacct.usage_sys")) / 1e9
    stat = _read_path(f"{root}/cpu.stat")
    return _find_field(stat, b"user_usec") / 1e6, _find_field(stat, b"system_usec") / 1e6


def read_tasks_peak(root: str = ROOT) -> int:
    """The most processes and threads at once, the toolbox's own included; 0 before Linux 6.1."""
    return _parse_number(_read_path(f"{root}/pids/pids.peak", f"{root}/pids.peak"))


def read_rss() -> int:
    """Resident bytes of this process."""
    fields = _read_path("/proc/self/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def read_pss(pids: list[int]) -> int:
    """Proportional bytes of these processes; 0 when the kernel refuses one of them."""
    total = 0
    for pid in pids:
        name = "self" if pid == os.getpid() else str(pid)
        text = _read_path(f"/proc/{name}/smaps_rollup")
        for line in text.split(b"\n"):
            if line.startswith(b"Pss:"):
                total += int(line.split()[1]) << 10
                break
        else:
            return 0
    return total


def read_boot_id() -> str:
    """The kernel's name for this start of the machine: the same inside and outside of a container."""
    return _read_path("/proc/sys/kernel/random/boot_id").strip().decode("ascii", "replace")
