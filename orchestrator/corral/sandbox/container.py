"""The one place that says what a container of ours is. Pure: values in, the body of POST /containers/create out.

Everything here is hardening. A line that is marked has a test that fails without it, in tests/security/.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from corral.errors import ConfigError
from corral.resource import find_data
from corral.sandbox.entry import SANDBOX_ENTRY, Entry
from corral.sandbox.spec import MIB, RUNC, Limits, SandboxSpec

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOOLBOX_ENV = {
    # No locale archive mapped; Python speaks UTF-8 there by itself.
    # SECURITY: in every other locale the C library reads the image's tables, and loads the converters they name
    # (test_an_images_locale_does_not_reach_the_toolbox).
    "LC_ALL": "C",
    "MALLOC_ARENA_MAX": "1",  # threads wait for one another: an arena of its own is only memory
}
"""Commands do not inherit it: theirs is made by the toolbox."""
_CAPABILITIES = ("KILL", "SETGID", "SETPCAP", "SETUID")
_RUN_BYTES = 16 * MIB
_MIN_MEMORY = 128 * MIB
_MIN_PIDS = 32
_MIN_FILES = 256  # the shell tells its last directory on descriptor 251
HOSTS = "127.0.0.1 localhost box\n::1 localhost ip6-localhost ip6-loopback\n"
"""What /etc/hosts of a box says: the engine empties the image's."""
_SIGNALS = 4096  # queued ones; like message queues, counted per host uid
_QUEUES, _SEMAPHORES = "256", "250 32000 100 128"
_TASKS = 10
"""Of the host's, for one process of a runtime that runs processes by several (gVisor on ptrace: nine each)."""
_OOM_SCORE = 500
"""The kernel takes a box before anything of the host; commands in it have 1000, the toolbox this."""

# The engine's own list, and what else tells about the host or is a large surface for nothing.
_MASKED = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/sys/block",
    "/sys/bus",
    "/sys/class/dmi",
    "/sys/dev",
    "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/bpf",
    "/sys/fs/ext4",
    "/sys/fs/pstore",
    "/sys/hypervisor",
    "/sys/kernel/debug",
    "/sys/kernel/security",
    "/sys/kernel/tracing",
    "/sys/kernel/vmcoreinfo",
    "/sys/module",
    "/sys/power",
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def choose_name() -> str:
    return f"corral-{secrets.token_hex(8)}"


def fit_limits(limits: Limits, cpus: int, memory: int) -> Limits:
    """The limits as this machine can give them. Raises ConfigError for values no box can live with."""
    if (
        limits.memory_bytes < _MIN_MEMORY
        or limits.pids < _MIN_PIDS
        or limits.cpus <= 0
        or limits.open_files < _MIN_FILES
    ):
        raise ConfigError(
            "the box's limits are too small to start it",
            hint=f"at least {_MIN_MEMORY // MIB} MiB of memory, {_MIN_PIDS} processes and {_MIN_FILES} open files",
        )
    memory_bytes = max(min(limits.memory_bytes, memory // 2), _MIN_MEMORY)
    # The toolbox is the largest process at rest: full tmpfs mounts must not make it the kernel's victim.
    room = memory_bytes // 2 - _RUN_BYTES
    wanted = limits.tmp_bytes + limits.home_bytes + 2 * limits.shm_bytes  # once in /dev/shm, once System V
    share = min(1.0, room / max(wanted, 1))
    return replace(
        limits,
        memory_bytes=memory_bytes,
        cpus=min(limits.cpus, float(cpus)),
        tmp_bytes=_scale(limits.tmp_bytes, share),
        home_bytes=_scale(limits.home_bytes, share),
        shm_bytes=_scale(limits.shm_bytes, share),
    )


def _scale(size: int, share: float) -> int:
    return max(int(size * share) // 4096 * 4096, MIB)


def load_seccomp_profile(name: str = "default") -> str:
    """Our allow-list, as the text the engine wants. Raises FileNotFoundError when the installation is broken."""
    return (find_data("policies") / "seccomp" / f"{name}.json").read_text(encoding="utf-8")


def build_command_env(image_env: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """What commands in the box find: the image's variables, a PATH that works, then the caller's."""
    env = dict(item.partition("=")[::2] for item in image_env)
    for name in ("HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "HOSTNAME", "TERM", "SHLVL"):
        env.pop(name, None)
    places = [place for place in env.get("PATH", "").split(":") if place]
    env["PATH"] = ":".join(places + [place for place in PATH.split(":") if place not in places])
    return env | dict(own)


def build_config(
    spec: SandboxSpec,
    *,
    mount: Mapping[str, Any],
    marks: Mapping[str, str],
    seccomp: str,
    image_env: Sequence[str] = (),
    image_volumes: Sequence[str] = (),
    hosts_file: str = "",
    can_limit_ipc: bool = True,
    entry: Entry = SANDBOX_ENTRY,
) -> dict[str, Any]:
    """The box. `spec.limits` went through fit_limits(); `mount` is the workspace, `marks` are the labels.

    `hosts_file` is a file of ours on the engine's machine that names loopback. With it the engine's network set-up is
    left out: the runtime alone makes the namespace and its loopback, in 75 ms instead of 180, and the host's name
    server does not get into the box. Not `can_limit_ipc`: the kernel lets nobody set these bounds in a container whose
    user ids are mapped.
    """
    return {
        "Image": spec.image,
        "Labels": dict(marks),
        # The image may set all of these; none of it may reach the toolbox.
        "Entrypoint": list(entry.command),
        "Cmd": [],
        "User": "0:0",
        "WorkingDir": "/",
        "Env": _build_env(image_env),
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
        "Hostname": "box",
        "Domainname": "",
        "NetworkDisabled": bool(hosts_file),  # not "no isolation": a namespace without the engine's part in it
        # The channel. Once: a second attach would find a toolbox that talks to nobody we know.
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        "HostConfig": {
            "AutoRemove": True,
            "Runtime": spec.runtime,
            "Init": False,
            "LogConfig": {"Type": "none", "Config": {}},  # or every byte of the channel lands on the host's disk
            "RestartPolicy": {"Name": "no"},
            **_build_isolation(seccomp),
            **_build_limits(spec.limits, spec.runtime),
            "Mounts": [
                _mark_mount(mount, marks),
                *_cover_volumes(image_volumes, spec.mount_point, entry),
                *_name_loopback(hosts_file),
                *map(dict, entry.mounts),
            ],
            "Tmpfs": _build_tmpfs(spec.limits, entry),
            "ShmSize": spec.limits.shm_bytes,
            "Sysctls": _build_sysctls(spec.limits) if can_limit_ipc else {},
        },
    }


def _build_env(image_env: Sequence[str]) -> list[str]:
    # SECURITY: a name alone unsets it: LD_PRELOAD of an image would run in the toolbox (test_container_hardening).
    names = sorted({item.partition("=")[0] for item in image_env} - {"PATH", "", *_TOOLBOX_ENV})
    return [f"PATH={PATH}", *(f"{name}={value}" for name, value in _TOOLBOX_ENV.items()), *names]


def _build_isolation(seccomp: str) -> dict[str, Any]:
    return {
        # SECURITY: each of these is tested by name in test_container_hardening.
        "Privileged": False,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": list(_CAPABILITIES),
        "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp}"],
        "NetworkMode": "none",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "UsernsMode": "",
        "Devices": [],
        "Binds": [],
        "VolumesFrom": [],
        "MaskedPaths": list(_MASKED),
        "ReadonlyPaths": list(_READ_ONLY),
    }


def _build_limits(limits: Limits, runtime: str = RUNC) -> dict[str, Any]:
    ulimits = {
        "nofile": limits.open_files,
        "core": 0,
        "fsize": limits.file_bytes,
        "memlock": 64 << 10,
        "msgqueue": 0,  # POSIX queues are kernel memory counted per host uid
        "sigpending": _SIGNALS,
        "nice": 0,  # the engine's service may have been given more than it needs: nothing of it is handed on
        "rtprio": 0,
    }
    return {
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,  # equal: no swap
        "OomKillDisable": False,
        "OomScoreAdj": _OOM_SCORE,
        "PidsLimit": limits.pids if runtime == RUNC else limits.pids * _TASKS,
        "NanoCpus": int(limits.cpus * 1_000_000_000),
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in ulimits.items()],
    }


def _build_tmpfs(limits: Limits, entry: Entry) -> dict[str, str]:
    """Every writable place but the workspace, each with a size and a number of inodes."""
    common = "rw,nosuid,nodev"
    owner = "" if entry.home_owner is None else ",uid={},gid={}".format(*entry.home_owner)
    home = f"{common},exec,size={limits.home_bytes},nr_inodes={_count_inodes(limits.home_bytes)},mode=755{owner}"
    return {
        "/tmp": f"{common},exec,size={limits.tmp_bytes},nr_inodes={_count_inodes(limits.tmp_bytes)},mode=1777",
        entry.home: home,
        "/dev/shm": f"{common},noexec,size={limits.shm_bytes},nr_inodes={_count_inodes(limits.shm_bytes)},mode=1777",
        "/run": f"{common},noexec,size={_RUN_BYTES},nr_inodes=1024,mode=755",
    }


def _build_sysctls(limits: Limits) -> dict[str, str]:
    """Of the box's own IPC namespace. SECURITY: System V objects outlive their makers: with what they hold no kill for
    want of memory gets any back, and the toolbox is the last to be killed (tests/security/test_attacks.py)."""
    return {"kernel.shmall": str(limits.shm_bytes // 4096), "kernel.msgmni": _QUEUES, "kernel.sem": _SEMAPHORES}


def _count_inodes(size: int) -> int:
    # An inode of tmpfs costs about a kilobyte of kernel memory that `size` does not count.
    return max(1024, min(200_000, size // (8 << 10)))


def _mark_mount(mount: Mapping[str, Any], marks: Mapping[str, str]) -> dict[str, Any]:
    """The workspace's mount with our labels on its volume: that is how leftovers are found."""
    if mount.get("Type") != "volume":
        return dict(mount)
    options = dict(mount.get("VolumeOptions") or {})
    options["Labels"] = {**marks, **(options.get("Labels") or {})}
    return {**mount, "VolumeOptions": options}


def _cover_volumes(volumes: Sequence[str], mount_point: str, entry: Entry) -> list[dict[str, Any]]:
    # SECURITY: a VOLUME of the image would be a writable directory on the host's disk without any limit
    # (test_what_an_image_sets_does_not_reach_the_toolbox).
    taken = {mount_point, "/tmp", "/run", "/dev/shm", entry.home, *(mount["Target"] for mount in entry.mounts)}
    return [
        {"Type": "tmpfs", "Target": place, "TmpfsOptions": {"SizeBytes": 64 * MIB, "Mode": 0o755}}
        for place in sorted(set(volumes))
        if place.rstrip("/") not in taken
    ]


def _name_loopback(hosts_file: str) -> list[dict[str, Any]]:
    if not hosts_file:
        return []
    return [{"Type": "bind", "Source": hosts_file, "Target": "/etc/hosts", "ReadOnly": True}]
