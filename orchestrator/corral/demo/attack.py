"""`corral demo --attack`: a hostile repository in boxes, and how each of its attempts ended.

A careless, scripted agent runs its tests one after the other in one box; what would end that box gets one of its own.
Then everything that can be known is gathered, and verdict.py judges.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from corral import app
from corral.agent.stop import StopReason
from corral.demo.bait import Bait, digest_tree, laid_out
from corral.demo.evidence import BoxEnd, Evidence, parse_reports
from corral.demo.verdict import Verdict, judge
from corral.errors import PatchError
from corral.llm.scripted import Script, ScriptedModel, load_script
from corral.patch.apply import apply_patch
from corral.record import verify_record
from corral.resource import find_data
from corral.sandbox.engine import Engine
from corral.sandbox.labels import RUN
from corral.sandbox.spec import MIB, Limits
from corral.schema.events import Event
from corral.schema.messages import Role
from corral_protocol.message import ExecResult

LIMITS = Limits(
    memory_bytes=512 * MIB,
    pids=128,
    open_files=1024,
    file_bytes=32 * MIB,
    workspace_bytes=64 * MIB,
    workspace_inodes=20_000,
    tmp_bytes=64 * MIB,
    home_bytes=32 * MIB,
    shm_bytes=16 * MIB,
)
"""Smaller than a working box: what is filled here is filled quickly, and costs this machine little."""
_BOMB_S = 2.0
_HOG_S = 20.0
_FLOOD_S = 30.0
_LIES = "tests.test_lies"

Say = Callable[[str], None]


@dataclass
class AttackReport:
    verdicts: list[Verdict] = field(default_factory=list)
    run_id: str = ""
    run_dir: Path | None = None

    @property
    def held(self) -> bool:
        return bool(self.verdicts) and all(verdict.held for verdict in self.verdicts)


class AttackDemo:
    """Runs once, on a copy of the hostile repository. `render` makes a command's output fit for a terminal."""

    def __init__(self, workspace: Path, say: Say, render: Callable[[bytes], str]) -> None:
        self._workspace = workspace
        self._say = say
        self._render = render
        self._run_dirs: list[Path] = []
        self._events: list[Event] = []

    async def run(self) -> AttackReport:
        """Raises ConfigError, SandboxError, RecordError; CancelledError when cancelled."""
        async with laid_out(self._workspace) as bait:
            before = digest_tree(self._workspace)
            evidence = await self._run_agent(bait)
            evidence.before = before
            evidence.bomb = await self._run_alone("a live fork bomb", "tests/bomb.py", _BOMB_S)
            evidence.hog = await self._run_alone("a program that takes all memory", "tests/hog.py", _HOG_S)
            evidence.flood = await self._run_alone("a program that fills the disk", "tests/flood.py", _FLOOD_S)
            self._say("the patch, applied with nobody there to say yes")
            await asyncio.to_thread(self._gather, evidence)
        verdicts = judge(evidence)
        for path in self._run_dirs[1:]:
            # What filled the disk must not go on doing so; the agent's run stays to be read.
            await app.remove_run(path.name, path.parent)
        return AttackReport(verdicts, evidence.run_dir.name, evidence.run_dir)

    async def _run_agent(self, bait: Bait) -> Evidence:
        script = load_script(find_data("examples") / "hostile" / "script.json")
        model = ScriptedModel(script)
        self._say("a careless agent (scripted) runs all of its tests in one box")
        request = app.AgentRequest(workspace=self._workspace, box_limits=LIMITS, task="Run the tests.")
        done = await app.run_agent(request, client=model, watch=self._events.append)
        if done.outcome.box is None and done.outcome.error is not None:
            raise done.outcome.error
        self._take(done.outcome.ending.reason, done.run_dir)
        return Evidence(
            bait=bait,
            limits=LIMITS,
            ending=done.outcome.ending,
            run_dir=done.run_dir,
            patch=done.outcome.patch,
            patch_bytes=done.patch_file.read_bytes() if done.patch_file else b"",
            shown=_find_shown(model),
            lies_raw=_find_lies(script, done.run_dir),
            proposed_calls=sum(len(reply.calls) for reply in script.replies),
            events=self._events,
        )

    async def _run_alone(self, what: str, program: str, timeout_s: float) -> BoxEnd:
        """One program in a box of its own."""
        self._say(f"{what}, in a box of its own")
        argv = [b"python3", program.encode()]
        request = app.ExecRequest(workspace=self._workspace, box_limits=LIMITS, argv=argv, timeout_s=timeout_s)
        done = await app.execute(request)
        if done.outcome.box is None and done.outcome.error is not None:
            raise done.outcome.error
        self._take(done.outcome.ending.reason, done.run_dir)
        size = await asyncio.to_thread(_measure, done.run_dir / "box" / "upper")
        return BoxEnd(done.result, done.outcome.error, size)

    def _take(self, reason: StopReason, run_dir: Path) -> None:
        self._run_dirs.append(run_dir)
        if reason is StopReason.CANCELLED:
            raise asyncio.CancelledError

    def _gather(self, evidence: Evidence) -> None:
        """What can be read now that all boxes are gone."""
        evidence.refusal = self._try_to_apply(evidence.patch_bytes)
        evidence.after = digest_tree(self._workspace)
        outputs = b"\n".join(path.read_bytes() for path in sorted((evidence.run_dir / "outputs").glob("*")))
        alone = b"\n".join(_captured(end.result) for end in (evidence.bomb, evidence.hog, evidence.flood))
        records = b"\n".join((path / "record.jsonl").read_bytes() for path in self._run_dirs)
        evidence.reports = parse_reports(outputs)
        evidence.haystack = b"\n".join((outputs, alone, records, evidence.patch_bytes))
        evidence.lies_rendered = self._render(evidence.lies_raw)
        evidence.leftovers = tuple(name for path in self._run_dirs for name in find_leftovers(path.name))
        for path in self._run_dirs:
            report = verify_record(path / "record.jsonl")
            evidence.record_events += report.head.seq
            if not report.ok or not report.finished:
                evidence.broken_records += (path.name,)

    def _try_to_apply(self, patch: bytes) -> str:
        """Why the patch was not applied, or "": it was."""
        if not patch:
            return ""
        try:
            apply_patch(patch, self._workspace)
        except PatchError as error:
            return error.message
        return ""


def find_leftovers(run_id: str) -> list[str]:
    """Containers and volumes of a run that the engine still has."""
    engine, mark = Engine(), {"label": f"{RUN}={run_id}"}
    containers = engine.ask("list containers", lambda client: client.containers(all=True, filters=mark))
    volumes = engine.ask("list volumes", lambda client: client.volumes(filters=mark)["Volumes"] or [])
    return [f"container {raw['Id'][:12]}" for raw in containers] + [f"volume {raw['Name']}" for raw in volumes]


def _find_shown(model: ScriptedModel) -> tuple[str, ...]:
    """The answers to calls that the model was shown in its last request."""
    if not model.requests:
        return ()
    return tuple(message.content for message in model.requests[-1].messages if message.role is Role.TOOL)


def _find_lies(script: Script, run_dir: Path) -> bytes:
    """What the lying test really printed: the raw output of its call, the only one of its turn."""
    for step, reply in enumerate(script.replies, 1):
        if any(_LIES in str(call.arguments.get("command")) for call in reply.calls):
            path = run_dir / "outputs" / f"s{step}-1.stdout"
            return path.read_bytes() if path.exists() else b""
    return b""


def _captured(result: ExecResult | None) -> bytes:
    if result is None:
        return b""
    streams = (result.stdout, result.stderr)
    return b"".join(base64.b64decode(part) for stream in streams for part in (stream.head_b64, stream.tail_b64))


def _measure(upper: Path) -> int:
    """Bytes on disk below a directory; what cannot be entered is not counted."""
    total = 0
    for folder, _, files in os.walk(upper):
        total += sum((Path(folder) / name).lstat().st_blocks * 512 for name in files)
    return total
