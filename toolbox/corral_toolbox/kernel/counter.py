"""Counters of the box's cgroup and of the toolbox itself, as they can be read from inside."""

import os

_V1 = "/sys/fs/cgroup/memory"
_V2 = "/sys/fs/cgroup"


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

    def __init__(self) -> None:
        self.layout = ""
        if os.path.exists(f"{_V2}/cgroup.controllers"):
            self.layout = "v2"
        elif os.path.exists(_V1):
            self.layout = "v1"
        self._oom = _open_counter(f"{_V1}/memory.oom_control", f"{_V2}/memory.events")
        self._pids = _open_counter(f"{_V2}/pids/pids.events", f"{_V2}/pids.events")

    def read_oom_kills(self) -> int:
        return _find_field(_read_counter(self._oom), b"oom_kill")

    def read_pids_refused(self) -> int:
        return _find_field(_read_counter(self._pids), b"max")


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


def read_cpu_s() -> float:
    """Processor time of the whole box."""
    nanoseconds = _read_path(f"{_V2}/cpuacct/cpuacct.usage", f"{_V2}/cpu,cpuacct/cpuacct.usage")
    if nanoseconds:
        return _parse_number(nanoseconds) / 1e9
    return _find_field(_read_path(f"{_V2}/cpu.stat"), b"usage_usec") / 1e6


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
