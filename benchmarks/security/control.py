"""The same attacks where they ought to succeed: in a container as plain `docker run` makes it, and in one left open.

Nothing here touches the host: no namespace of its own but, in the open one, its name; every limit that an attack is to
pass is set, a little higher than ours.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import docker

from benchmarks.security.attacks import ATTACKS
from benchmarks.security.attacks.attack import Attack
from benchmarks.security.box import FIND_MARKS, SECRET, describe_host, find_left, find_mount, judge_marks, parse_lines
from benchmarks.security.workplace import Outcome, fingerprints, host_ends, judge_ends, make_workspace
from corral.sandbox.labels import RUN
from corral.sandbox.spec import GIB, MIB, Limits

_CUT_AFTER_S = 2.5
_WAIT = ["/usr/bin/python3", "-S", "-c", "import signal; signal.pause()"]
_LIMITS = Limits(workspace_bytes=64 * MIB, workspace_inodes=2000, cpus=0.2, memory_bytes=1024 * MIB)
_HIGHER = {"mem_limit": 6 * GIB, "memswap_limit": 6 * GIB, "pids_limit": 2000}
_PLAIN: dict[str, Any] = {**_HIGHER}
_OPEN: dict[str, Any] = {
    **_HIGHER,
    "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
    "uts_mode": "host",
    "cgroupns": "host",
    "shm_size": 512 * MIB,
    "device_cgroup_rules": ["a *:* rwm"],
    "ulimits": [
        docker.types.Ulimit(name="nofile", soft=8192, hard=8192),
        docker.types.Ulimit(name="core", soft=-1, hard=-1),
    ],
}
_UNMASKED = {"MaskedPaths": [], "ReadonlyPaths": []}
_DEVICES = (
    "mem",
    "port",
    "kmsg",
    "fuse",
    "net/tun",
    "loop-control",
    "kvm",
    "hwrng",
    "nvram",
    "tty0",
    "ttyS0",
    "loop0",
    "sda",
)
_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ"),
)
_OPEN_UP = (
    "mount -o remount,rw /sys; mount -t debugfs none /sys/kernel/debug; mkdir -p /mnt/cgroup;"
    "mount -t binfmt_misc none /proc/sys/fs/binfmt_misc; mount -t cgroup -o memory none /mnt/cgroup;"
    'for d in /sys/fs/cgroup/*; do mount -o remount,bind,rw $d; done; exec "$@"'
)
_RUN_OPEN = 'exec 9</usr/bin/id; exec setpriv --inh-caps +chown "$@"'
"""A descriptor and a capability are handed down."""
KINDS = {"plain": _PLAIN, "open": _OPEN, "gvisor": {**_HIGHER, "runtime": "runsc", "network_mode": "none"}}


class Control:
    """A container of one of these kinds beside a neighbour in the same network."""

    def __init__(self, engine: docker.DockerClient, folder: Path, image: str, kind: str) -> None:
        self._engine = engine
        self._image = image
        self._kind = kind
        self._name = f"attack-{kind}-{folder.name}"
        self._workspace = make_workspace(folder)
        host = describe_host(self._workspace, folder, _LIMITS)
        self._env = {**host, "HOME": "/root"}
        self.outcomes: dict[str, Outcome] = {}

    def attack(self, attacks: Sequence[Attack]) -> dict[str, Outcome]:
        before = fingerprints(self._workspace)
        with host_ends(self._workspace) as ends, self._started() as container:
            self._env |= ends
            self._attack_inside(container, attacks)
            self.outcomes |= self._cut(container, [attack for attack in attacks if attack.needs == "cut"])
            self.outcomes |= self._look_after(container, attacks)
            container.kill()
            plants = [attack for attack in attacks if attack.needs == "end"]
            self.outcomes |= judge_ends(plants, self.outcomes, before, fingerprints(self._workspace))
        return {attack.id: self.outcomes.get(attack.id, Outcome("unknown", "it said nothing")) for attack in attacks}

    @contextlib.contextmanager
    def _started(self) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            binds = [f"{self._workspace}:/workspace"]
            shared = {}
            if self._kind != "gvisor":  # which has a network of its own making, and none here
                world = self._start_world(stack)
                shared["network_mode"] = f"container:{world.id}"
            if self._kind == "open":
                binds.append(f"{self._workspace}:{self._workspace}")
                binds.append(f"{self._workspace}/host.sock:/var/run/docker.sock")
                shared["pid_mode"] = f"container:{world.id}"
            volume = self._engine.volumes.create(labels={RUN: self._name})
            stack.callback(volume.remove, force=True)
            api = self._engine.api
            config = api.create_host_config(binds=[*binds, f"{volume.name}:/data"], **shared, **KINDS[self._kind])
            command, environment = _WAIT, {}
            if self._kind == "open":
                config |= {**_UNMASKED, "CapAdd": _find_capabilities(), "Devices": _find_devices()}
                command, environment = ["/bin/sh", "-c", _OPEN_UP, "sh", *_WAIT], {"FORGOTTEN": SECRET}
            made = api.create_container(
                self._image,
                entrypoint=command,
                working_dir="/workspace",
                labels={RUN: self._name},
                environment=environment,
                host_config=config,
            )
            container = self._engine.containers.get(made["Id"])
            stack.callback(container.remove, force=True, v=True)
            container.start()
            yield container

    def _start_world(self, stack: contextlib.ExitStack) -> Any:
        world = self._engine.containers.run(
            self._image,
            entrypoint=["/usr/bin/python3", "-m", "attacks.world"],
            working_dir="/workspace",
            detach=True,
            network_mode="none",
            cap_add=["NET_ADMIN"],
            dns=["198.51.100.7"],
            sysctls={"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv4.ping_group_range": "0 2147483647"},
            volumes=[f"{self._workspace}:/workspace:ro"],
            environment={"PYTHONDONTWRITEBYTECODE": "1"},
            mem_limit=256 * MIB,
            labels={RUN: self._name},
        )
        stack.callback(world.remove, force=True, v=True)
        for _ in range(100):
            if b"ready" in world.logs():
                return world
            time.sleep(0.1)
        raise RuntimeError(f"the neighbour does not start: {world.logs().decode()}")

    def _attack_inside(self, container: Any, attacks: Sequence[Attack]) -> None:
        # Our image has its users where the toolbox writes them; here nobody does.
        container.exec_run(["sh", "-c", "mkdir -p /run/corral && touch /run/corral/passwd /run/corral/group"])
        ids = [attack.id for attack in attacks if attack.needs in ("", "end", "small", "slow", "calls")]
        command = ["python3", "-m", "attacks", *ids]
        if self._kind == "open":  # a descriptor is left open
            command = ["sh", "-c", _RUN_OPEN, "sh", *command]
        if ids:
            code, text = container.exec_run(command, environment=self._env, workdir="/workspace")
            self.outcomes |= parse_lines(text)
            for name in ids:
                self.outcomes.setdefault(name, Outcome("unknown", f"the suite ended with {code}"))
        self._attack_next(container, [attack.id for attack in attacks if attack.needs == "next"])
        if any(attack.id == "output" for attack in attacks):
            code = "from attacks import ATTACKS; ATTACKS['output'].run()"
            _, text = container.exec_run(["python3", "-c", code], environment=self._env, workdir="/workspace")
            arrived = f"{len(text) // MIB} MiB arrived"
            self.outcomes["output"] = Outcome("breach" if len(text) > 65 * MIB else "held", arrived)

    def _attack_next(self, container: Any, ids: Sequence[str]) -> None:
        """The next task in the container that is kept."""
        for phase in ("plant", "look") if ids else ():
            command = ["python3", "-m", "attacks", *ids]
            _, text = container.exec_run(
                command, environment={**self._env, "ATTACK_PHASE": phase}, workdir="/workspace"
            )
            self.outcomes |= parse_lines(text)

    def _cut(self, container: Any, attacks: Sequence[Attack]) -> dict[str, Outcome]:
        """The client goes away; what it has started is nobody's."""
        threads = [
            threading.Thread(
                target=container.exec_run,
                args=(["python3", "-m", "attacks", attack.id],),
                kwargs={"environment": self._env, "workdir": "/workspace", "detach": True},
            )
            for attack in attacks
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not attacks:
            return {}
        time.sleep(_CUT_AFTER_S + 1)
        _, text = container.exec_run(["python3", "-c", FIND_MARKS])
        return judge_marks(attacks, text.decode().split())

    def _look_after(self, container: Any, attacks: Iterable[Attack]) -> dict[str, Outcome]:
        """The one who started it has gone: nobody removes anything."""
        left = find_left(container.id, self._name, find_mount(container.id))
        return {
            attack.id: Outcome("breach", left[attack.path]) if left[attack.path] else Outcome("held")
            for attack in attacks
            if attack.path in left and attack.needs == "host"
        }


def _find_capabilities() -> list[str]:
    """Every capability that this machine has to give."""
    status = Path("/proc/self/status").read_text()
    bits = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd"))
    return [name for number, name in enumerate(_CAPABILITIES) if bits >> number & 1]


def _find_devices() -> list[dict[str, str]]:
    paths = [f"/dev/{name}" for name in _DEVICES if Path(f"/dev/{name}").exists()]
    return [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in paths]


def attack_control(folder: Path, image: str, ids: Iterable[str], kind: str) -> dict[str, Outcome]:
    """Every attack of `ids` in a control of that kind."""
    place = folder / kind
    place.mkdir()
    engine = docker.from_env(timeout=300)
    try:
        return Control(engine, place, image, kind).attack([ATTACKS[name] for name in ids])
    finally:
        engine.close()
