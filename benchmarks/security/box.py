"""The attacks in corral's own box: as an ordinary command of an ordinary run, with the defaults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import docker

from benchmarks.security.attacks import ATTACKS
from benchmarks.security.attacks.attack import Attack
from benchmarks.security.attacks.daemon import MARK
from benchmarks.security.workplace import Outcome, fingerprints, host_ends, judge_ends, make_workspace
from corral.errors import BoxLost, ToolError
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.labels import RUN
from corral.sandbox.spec import MIB, RUNC, Limits, SandboxSpec

_CUT_AFTER_S = 2.5
_ANSWER_S = 5.0
_ONE_BY_ONE = ("resources",)
SLOW = Limits(cpus=0.2)
SMALL = Limits(workspace_bytes=64 * MIB, workspace_inodes=2000, memory_bytes=1024 * MIB)
SECRET = "corral-attack-secret-" + secrets.token_hex(8)
FIND_MARKS = (
    "import glob\n"
    "for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
    "    try:\n"
    "        words = open(path, 'rb').read().split(b'\\0')\n"
    "    except OSError:\n"
    "        continue\n"
    f"    print(*[w.decode() for w in words if w.startswith(b'{MARK}-')], sep='\\n')\n"
)


def describe_host(workspace: Path, runs: Path, limits: Limits) -> dict[str, str]:
    """What attacks are told of the host, so that they know what to look for."""
    told: dict[str, float] = {name: value for name, value in asdict(limits).items() if value is not None}
    told |= {
        "run_bytes": 16 * MIB,
        "tmp_inodes": 65536,
        "shm_inodes": 8192,
        "signals": 4096,
        "output_bytes": 64 * MIB,
        "cpu_hundredths": limits.cpus * 100,
    }
    texts = {"HOSTNAME": socket.gethostname(), "SECRET": SECRET, "HOSTPATH": str(workspace), "RUNPATH": str(runs)}
    hidden = {f"ATTACK_{name}": text.encode().hex() for name, text in texts.items()}
    return {"ATTACK_LIMITS": json.dumps(told), "PYTHONDONTWRITEBYTECODE": "1", **hidden}


def parse_lines(text: bytes) -> dict[str, Outcome]:
    """What the runner in the container printed."""
    found = {}
    for line in text.decode("utf-8", "replace").splitlines():
        try:
            told = json.loads(line)
            found[str(told["id"])] = Outcome(str(told["verdict"]), str(told["reason"]))
        except (ValueError, KeyError, TypeError):
            continue
    return found


class Trial:
    """One box and the attacks that go into it."""

    def __init__(self, folder: Path, image: str, *, limits: Limits | None = None, runtime: str = RUNC) -> None:
        self._workspace = make_workspace(folder)
        run_dir = folder / f"run-{secrets.token_hex(4)}"
        run_dir.mkdir(mode=0o700)
        self._spec = SandboxSpec(self._workspace, run_dir, run_dir.name, image=image, runtime=runtime)
        if limits is not None:
            self._spec = replace(self._spec, limits=limits)
        self._env: dict[str, str] = {}
        self.outcomes: dict[str, Outcome] = {}

    async def attack(self, attacks: Sequence[Attack]) -> dict[str, Outcome]:
        before = fingerprints(self._workspace)
        os.environ["CORRAL_ATTACK_SECRET"] = SECRET
        plants = [attack for attack in attacks if attack.needs == "end"]
        with host_ends(self._workspace) as ends:
            remaining = list(attacks)
            while remaining:
                box_id, mount = await self._attack_box(remaining, ends)
                remaining = [a for a in remaining if a.id not in self.outcomes and a.needs not in ("host", "end")]
            await self._attack_next([attack for attack in attacks if attack.needs == "next"], ends)
            self.outcomes |= judge_ends(plants, self.outcomes, before, fingerprints(self._workspace))
        self.outcomes |= await asyncio.to_thread(self._look_after, attacks, box_id, mount)
        return {attack.id: self.outcomes.get(attack.id, Outcome("unknown", "it said nothing")) for attack in attacks}

    async def _attack_box(self, attacks: Sequence[Attack], ends: dict[str, str]) -> tuple[str, str]:
        """One box, until all is done or one attack has ended it. The box's id, and where its root was mounted."""
        async with DockerSandbox(self._spec) as box:
            host = describe_host(self._workspace, self._spec.run_dir, box.info.limits)
            self._env = {**host, **ends}
            mount = await asyncio.to_thread(find_mount, box.info.box_id)
            try:
                await self._attack_inside(box, attacks)
            except BoxLost:
                self._spec = self._spec_of_next()
            return box.info.box_id, mount

    async def _attack_next(self, attacks: Sequence[Attack], ends: dict[str, str]) -> None:
        """What was planted looks for itself in a second box over the same workspace."""
        planted = [attack for attack in attacks if self.outcomes[attack.id].verdict == "planted"]
        if planted:
            self._spec = self._spec_of_next()
            async with DockerSandbox(self._spec) as box:
                self._env |= {**ends, "ATTACK_PHASE": "look"}
                await self._run(box, planted)

    def _spec_of_next(self) -> SandboxSpec:
        run_dir = self._spec.run_dir.with_name(f"run-{secrets.token_hex(4)}")
        run_dir.mkdir(mode=0o700)
        return replace(self._spec, run_dir=run_dir, run_id=run_dir.name)

    async def _attack_inside(self, box: DockerSandbox, attacks: Sequence[Attack]) -> None:
        together = [a for a in attacks if a.needs in ("", "end", "next") and a.family not in _ONE_BY_ONE]
        if together:
            await self._run(box, together)
        for attack in attacks:
            if attack.family in _ONE_BY_ONE and attack.needs in ("", "small", "slow"):
                await self._run(box, [attack])
                await self._ask(box, attack)
        if any(attack.needs == "calls" for attack in attacks):
            await self._race(box, [attack for attack in attacks if attack.needs == "calls"])
        if any(attack.id == "output" for attack in attacks):
            self.outcomes["output"] = await self._flood(box)
        await self._cut(box, [attack for attack in attacks if attack.needs == "cut"])

    async def _run(self, box: DockerSandbox, attacks: Sequence[Attack]) -> None:
        text = bytearray()
        argv: list[bytes | str] = ["python3", "-m", "attacks", *(attack.id for attack in attacks)]
        longest = 30 + sum(attack.timeout_s for attack in attacks)
        try:
            result = await box.exec(argv, env=self._env, timeout_s=longest, stdout=lambda part: text.extend(part))
        except ToolError as error:
            self.outcomes |= {a.id: Outcome("unknown", f"not run: {error.message}") for a in attacks}
            return
        except BoxLost as error:
            # Ended by us for passing a limit of the workspace is how that limit holds; any other end is the attacker's.
            verdict = "held" if error.cause == "disk_full" else "breach"
            self.outcomes |= {a.id: Outcome(verdict, f"the box was ended: {error.message}") for a in attacks}
            raise
        self.outcomes |= parse_lines(bytes(text))
        for attack in attacks:
            if attack.id not in self.outcomes and attack.can_kill and result.oom_kills:
                self.outcomes[attack.id] = Outcome("held", "ended for want of memory, with its caller")
            elif attack.id not in self.outcomes and attack.can_kill and result.signal:
                self.outcomes[attack.id] = Outcome("held", f"its command was ended by signal {result.signal}")

    async def _ask(self, box: DockerSandbox, attack: Attack) -> None:
        """After something that uses the box up: does the toolbox still answer?"""
        try:
            async with asyncio.timeout(_ANSWER_S):
                result = await box.exec(["true"])
            if result.exit_code == 0:
                return
            reason = f"`true` ended with {result.exit_code}"
        except (TimeoutError, ToolError) as error:
            reason = str(error) or f"no answer for {_ANSWER_S:g} s"
        self.outcomes[attack.id] = Outcome("breach", f"the toolbox no longer serves: {reason}")

    async def _race(self, box: DockerSandbox, attacks: Sequence[Attack]) -> None:
        running = asyncio.ensure_future(self._run(box, attacks))
        while not running.done():
            await asyncio.gather(*(box.shell("true") for _ in range(4)))
        await running

    async def _flood(self, box: DockerSandbox) -> Outcome:
        got = 0

        def count(part: memoryview) -> None:
            nonlocal got
            got += len(part)

        code = "from attacks import ATTACKS; ATTACKS['output'].run()"
        await box.exec(["python3", "-c", code], env=self._env, timeout_s=60, stdout=count)
        return Outcome("breach" if got > 65 * MIB else "held", f"{got // MIB} MiB arrived")

    async def _cut(self, box: DockerSandbox, attacks: Sequence[Attack]) -> None:
        """Each in a call of its own, all at once; then what is left of any."""
        calls = [
            box.exec(["python3", "-m", "attacks", attack.id], env=self._env, timeout_s=_CUT_AFTER_S)
            for attack in attacks
        ]
        try:
            await asyncio.gather(*calls)
        except BoxLost as error:
            self.outcomes |= {
                attack.id: Outcome("unknown", f"the box was ended: {error.message}") for attack in attacks
            }
            raise
        if attacks:
            text = bytearray()
            await box.exec(["python3", "-c", FIND_MARKS], stdout=lambda part: text.extend(part))
            self.outcomes |= judge_marks(attacks, text.decode().split())

    def _look_after(self, attacks: Iterable[Attack], box_id: str, mount: str) -> dict[str, Outcome]:
        left = find_left(box_id, self._spec.run_id, mount)
        return {
            attack.id: Outcome("breach", left[attack.path]) if left[attack.path] else Outcome("held", "nothing is left")
            for attack in attacks
            if attack.path in left and attack.needs == "host"
        }


def judge_marks(attacks: Iterable[Attack], marks: Iterable[str]) -> dict[str, Outcome]:
    alive = set(marks)
    return {
        attack.id: Outcome("breach", "it runs on") if attack.path in alive else Outcome("held", "gone with its call")
        for attack in attacks
    }


def find_mount(container_id: str) -> str:
    """Where the engine has mounted the container's root, on the host."""
    with contextlib.closing(docker.from_env()) as engine:
        found = engine.api.inspect_container(container_id)
    return str(((found.get("GraphDriver") or {}).get("Data") or {}).get("MergedDir") or container_id)


def find_left(container_id: str, run_id: str, mount: str) -> dict[str, str]:
    """What is there of a container once its owner has gone, by kind; "" where nothing is."""
    with contextlib.closing(docker.from_env()) as engine:
        containers = [c["Id"] for c in engine.api.containers(all=True)]
        volumes = engine.api.volumes(filters={"label": f"{RUN}={run_id}"})["Volumes"] or []
    processes = [path for path in Path("/proc").glob("[0-9]*/cgroup") if _mentions(path, container_id)]
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    return {
        "container": "it is in the engine's list" if container_id in containers else "",
        "volume": f"{len(volumes)} volumes" if volumes else "",
        "process": f"{len(processes)} processes" if processes else "",
        "mount": "in the host's table" if mount in mounts or run_id in mounts else "",
    }


def _mentions(path: Path, text: str) -> bool:
    try:
        return text in path.read_text(errors="replace")
    except OSError:
        return False


async def attack_box(folder: Path, image: str, ids: Iterable[str], *, runtime: str = RUNC) -> dict[str, Outcome]:
    """Every attack of `ids` against boxes with the default configuration (three: two have small limits), but for the
    runtime."""
    attacks = [ATTACKS[name] for name in ids]
    small = [attack for attack in attacks if attack.needs == "small"]
    slow = [attack for attack in attacks if attack.needs == "slow"]
    usual = [attack for attack in attacks if attack.needs not in ("small", "slow")]
    found: dict[str, Outcome] = {}
    for name, part, limits in (("box", usual, None), ("small", small, SMALL), ("slow", slow, SLOW)):
        if part:
            (folder / name).mkdir()
            found |= await Trial(folder / name, image, limits=limits, runtime=runtime).attack(part)
    return found
