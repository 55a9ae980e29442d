"""What is saved by starting a box before it is asked for: from a pool, and beside the first call of a model."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tarfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from docker import APIClient

from benchmarks.place import Place, create_plain, drop_nothing_dirty, open_client
from benchmarks.run import Contender, Options, alternate, main
from benchmarks.table import Group, Row, compare
from corral.agent.run import Ending, Run, describe_start
from corral.agent.session import AgentSession
from corral.agent.stop import StopReason
from corral.llm import ScriptedCall, ScriptedModel, ScriptedReply
from corral.patch.export import Exporter
from corral.policy import PolicyEngine, SessionPolicy
from corral.record import RecordLog
from corral.sandbox.base import Sandbox
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.pool import Pool, PoolPlan
from corral.sandbox.spec import SandboxSpec
from corral.schema.messages import ModelReply, ModelRequest
from corral.schema.policy import PolicySession, Preset
from corral.store.removal import remove_tree
from corral.tools.outputs import OutputStore

MODEL_S = 0.5
RUNS = 20
CALLS = 3
MakeBox = Callable[[SandboxSpec], Sandbox]

NOTE = """\
A box of a filled pool, handed out over a workspace until `shell true` has answered, beside one that is started then. A
model that takes half a second for its first answer, until the first call of that answer has ended, beside the same with
the box started first. Then twenty runs, so many at once, each a box over 20 files, three calls and the changes read
out, beside what docker-py does for the same: create, start, put_archive, three exec_run, get_archive, remove. A pool's
boxes are out of reach at their end and removed behind the caller; of all others the removal is counted. Late boxes take
root; for others the pool's boxes are kept, which costs the engine's removal."""


async def measure(options: Options) -> Group:
    place = options.place
    small = place.make_tree("small")
    files = 5_000 if options.quick else 50_000
    large = place.make_tree("large", files=files, file_bytes=2_000)
    drop_nothing_dirty()
    rows = await _first_results(options, small, large, f"{files:,} files")
    rows += await _head_start(options, small)
    rows += await _throughput(options, small)
    return Group("pool", "Boxes ahead of time", NOTE, rows)


async def _first_results(options: Options, small: Path, large: Path, size: str) -> list[Row]:
    place = options.place
    async with contextlib.AsyncExitStack() as stack:
        pools = [await stack.enter_async_context(_make_pool(place, tree, 4)) for tree in (small, large)]
        found = await alternate(
            options.rounds(15, 5),
            {
                "small": _first_result(place, small, pools[0]),
                "large": _first_result(place, large, pools[1]),
                "cold": _first_result(place, small),
            },
            pause_s=0.5,
        )
    return [
        compare(
            "first result from the pool, 20 files",
            found["small"],
            "a start then",
            found["cold"],
            limit=1 / 10,
            aim=1 / 30,
        ),
        compare(f"the same, {size}", found["large"], "a start then", found["cold"], limit=1 / 10, aim=1 / 30),
    ]


def _make_pool(place: Place, workspace: Path, size: int) -> Pool:
    spec = SandboxSpec(workspace, Path(), "", image=place.image)
    return Pool(PoolPlan(spec, place.root / "pools", remove_tree, DockerSandbox, is_for_one=True, size=size))


def _first_result(place: Place, workspace: Path, pool: Pool | None = None) -> Contender:
    async def contender() -> float:
        if pool is not None:
            await pool.wait_filled()
            await asyncio.sleep(0.2)  # what is made behind is not charged
        began = time.perf_counter()
        with place.run_dir() as run_dir:
            spec = place.spec(workspace, run_dir)
            async with DockerSandbox(spec) if pool is None else pool.make(spec) as box:
                result = await box.shell("true")
                seconds = time.perf_counter() - began
                assert pool is None or "pool" in box.info.facts, pool.problem
        assert result.exit_code == 0, result
        return seconds

    return contender


class SlowModel(ScriptedModel):
    """Takes its time for the first answer."""

    async def complete(self, request: ModelRequest, on_text: object = None) -> ModelReply:
        if not self.requests:
            await asyncio.sleep(MODEL_S)
        return await super().complete(request)


async def _head_start(options: Options, workspace: Path) -> list[Row]:
    engine = PolicyEngine.load_preset(Preset.AUTO)
    found = await alternate(
        options.rounds(10, 4),
        {
            "ahead": _agent(options.place, workspace, engine, is_ahead=True),
            "after": _agent(options.place, workspace, engine, is_ahead=False),
            "model": _sleep,
        },
        pause_s=0.2,
    )
    return [
        compare(
            "first call of the first answer, box started meanwhile",
            found["ahead"],
            "the model alone, 0.5 s",
            found["model"],
            limit=1.15,
        ),
        compare("the same, box started before", found["after"], "the model alone, 0.5 s", found["model"]),
    ]


async def _sleep() -> float:
    began = time.perf_counter()
    await asyncio.sleep(MODEL_S)
    return time.perf_counter() - began


def _agent(place: Place, workspace: Path, engine: PolicyEngine, *, is_ahead: bool) -> Contender:
    async def contender() -> float:
        call = ScriptedReply(calls=(ScriptedCall(name="shell", arguments={"command": "true"}),))
        end = ScriptedReply(calls=(ScriptedCall(name="finish", arguments={"summary": "done"}),))
        with place.run_dir() as run_dir, contextlib.closing(RecordLog.open(run_dir.record)) as record:
            model = SlowModel([call, end])
            box = DockerSandbox(place.spec(workspace, run_dir))
            session = AgentSession(
                task="nothing",
                client=model,
                decider=SessionPolicy(engine, PolicySession(id=run_dir.run_id)),
                record=record,
                outputs=OutputStore(run_dir.outputs),
                current_diff=_no_diff,
                mount_point="/workspace",
            )
            ended: list[float] = []

            async def body(sandbox: Sandbox) -> Ending:
                ending = await session(sandbox)
                ended.append(time.perf_counter())
                return ending

            started = describe_start(run_id=run_dir.run_id, door="run", goal="nothing", workspace=str(workspace))
            run = Run(record, box, _no_patch, started)
            began = time.perf_counter()
            outcome = await run.execute(body, ahead=session.ask_ahead(box) if is_ahead else None)
        assert outcome.ending.reason is StopReason.FINISHED, outcome
        return ended[0] - began

    return contender


async def _no_diff(sandbox: Sandbox) -> str:
    return ""


async def _no_patch(sandbox: Sandbox) -> None:
    return None


async def _throughput(options: Options, workspace: Path) -> list[Row]:
    place, rows = options.place, []
    for at_once in (1, 4, 8):
        async with _make_pool(place, workspace, RUNS) as pool:
            found = await alternate(
                options.rounds(3, 1),
                {
                    "pool": _burst(at_once, pool, lambda: _run_box(place, workspace, pool.make)),
                    "cold": _burst(at_once, None, lambda: _run_box(place, workspace, DockerSandbox)),
                    "docker": _burst(at_once, None, lambda: _run_plain(place, workspace)),
                },
                pause_s=1.0,
            )
        what = f"{RUNS} runs, {at_once} at once"
        rows += [
            compare(f"{what}, each box started then", found["cold"], "docker-py", found["docker"], limit=1 / 1.8),
            compare(f"{what}, from a filled pool", found["pool"], "docker-py", found["docker"], limit=1 / 6),
        ]
    return rows


def _burst(at_once: int, pool: Pool | None, run: Callable[[], Awaitable[None]]) -> Contender:
    async def contender() -> float:
        if pool is not None:
            await pool.wait_filled()
            await asyncio.sleep(0.5)
        turn = asyncio.Semaphore(at_once)

        async def one() -> None:
            async with turn:
                await run()

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(RUNS)))
        return time.perf_counter() - began

    return contender


async def _run_box(place: Place, workspace: Path, make: MakeBox) -> None:
    with place.run_dir() as run_dir:
        async with make(place.spec(workspace, run_dir)) as box:
            for number in range(CALLS):
                result = await box.shell(f"echo {number} >> made")
                assert result.exit_code == 0, result
            await box.kill_all()
            patch = await Exporter(workspace, run_dir.patch).export(box)
        assert patch is not None and [file.path for file in patch.files] == ["made"], patch


async def _run_plain(place: Place, workspace: Path) -> None:
    await asyncio.to_thread(_run_plain_blocking, place.image, workspace)


def _run_plain_blocking(image: str, workspace: Path) -> None:
    with open_client() as client:
        box = create_plain(client, image)
        try:
            client.start(box)
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(workspace, arcname=".")
            client.put_archive(box, "/workspace", packed.getvalue())
            for number in range(CALLS):
                _exec(client, box, ["sh", "-c", f"echo {number} >> /workspace/made"])
            stream, _ = client.get_archive(box, "/workspace")
            assert sum(map(len, stream)) > os.path.getsize(workspace / "d000/f000.txt")
        finally:
            client.remove_container(box, force=True, v=True)


def _exec(client: APIClient, box: str, command: list[str]) -> None:
    number = client.exec_create(box, command)["Id"]
    client.exec_start(number)
    assert client.exec_inspect(number)["ExitCode"] == 0


if __name__ == "__main__":
    main(measure)
