"""A box over several: a bomb costs the call and what ran, not the work; anything else ends it as ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from corral.errors import BoxLost, SandboxError, ToolError
from corral.sandbox.base import NO_VARIABLES, BoxInfo, Sink
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.fake import FakeCall, FakeOutcome, FakeSandbox
from corral.sandbox.lasting import MAX_RENEWALS, LastingSandbox, make_lasting
from corral.sandbox.spec import MAX_STREAMS, Limits, SandboxSpec, WorkspaceMode
from corral_protocol.message import Exec, ExecResult

LOST = {
    b"bomb": BoxLost("the box ran out of processes", cause="pids_exhausted"),
    b"eat": BoxLost("the box ran out of memory", cause="oom"),
    b"kill": BoxLost("the box was killed from outside", cause="killed"),
}


LATE = ("bomb", "eat", "true")


class MortalBox(FakeSandbox):
    """Ends for good at some commands, as a box does."""

    def __init__(self, spec: SandboxSpec, world: World) -> None:
        super().__init__(spec.workspace, self._answer, run_id=spec.run_id)
        self.spec = spec
        self._world = world
        self._end: BoxLost | None = None
        self.serve: object = None
        self.max_streams = 0

    async def open_tunnel(
        self, serve: object, *, variables: Mapping[str, str] = NO_VARIABLES, max_streams: int = MAX_STREAMS
    ) -> None:
        self.serve, self.max_streams = serve, max_streams
        self._variables = {"HTTP_PROXY": f"box {self._world.boxes.index(self)}", **variables}

    def _answer(self, call: FakeCall) -> FakeOutcome:
        if self._end is None:
            self._end = LOST.get(call.argv[0].split()[-1])
        if self._end is not None:
            raise self._end
        return FakeOutcome()

    async def _run(self, params: Exec, sinks: Mapping[str, Sink], stdin: bytes) -> ExecResult:
        if params.argv[0].startswith("late"):
            await asyncio.sleep(0.01)
        return await super()._run(params, sinks, stdin)

    async def start(self) -> BoxInfo:
        if self._world.is_full and self is not self._world.boxes[0]:
            raise SandboxError("no room")
        return await super().start()

    @property
    def info(self) -> BoxInfo:
        return replace(super().info, **self._world.looks)

    async def dispose(self) -> None:
        self._world.log.append(f"dispose {self._world.boxes.index(self)}")
        await super().dispose()


class World:
    """Makes the boxes, and knows them."""

    def __init__(self) -> None:
        self.boxes: list[MortalBox] = []
        self.log: list[str] = []
        self.looks: dict[str, object] = {"runtime": "runsc", "mode": WorkspaceMode.OVERLAY, "warnings": ()}
        self.is_full = False

    def make(self, spec: SandboxSpec) -> MortalBox:
        self.log.append(f"make {len(self.boxes)}")
        self.boxes.append(MortalBox(spec, self))
        return self.boxes[-1]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def open_box(world: World, tmp_path: Path) -> Callable[[], LastingSandbox]:
    spec = SandboxSpec(tmp_path, tmp_path, "run", runtime="runsc", limits=Limits(wall_s=100))
    return lambda: LastingSandbox(spec, make=world.make)


@pytest.mark.parametrize("command", ["bomb", "eat"])
async def test_a_bomb_costs_its_call_and_a_new_box_goes_on(
    command: str, open_box: Callable[[], LastingSandbox], world: World, tmp_path: Path
) -> None:
    async with open_box() as box:
        await box.write_file("kept", b"x")
        with pytest.raises(ToolError, match="was replaced by a new one") as told:
            await box.shell(command)
        assert (told.value.code, told.value.__cause__) == ("box_lost", LOST[command.encode()])
        assert (await box.read_file("kept")).size == 1
        assert (await box.shell("true")).exit_code == 0
        assert len(box.info.warnings) == 1 and LOST[command.encode()].message in box.info.warnings[0]
    # The old one is gone before there is a new one.
    assert world.log == ["make 0", "dispose 0", "make 1", "dispose 1"]
    assert world.boxes[1].spec.mode is WorkspaceMode.OVERLAY
    assert (world.boxes[1].spec.limits.wall_s or 0) < 100


async def test_calls_at_the_same_time_share_the_new_box(open_box: Callable[[], LastingSandbox], world: World) -> None:
    async with open_box() as box:
        done = await asyncio.gather(*(box.shell(f"late {one}") for one in LATE), return_exceptions=True)
        assert all(isinstance(one, ToolError) for one in done)
        assert (await box.shell("true")).exit_code == 0
    assert len(world.boxes) == 2


async def test_it_ends_after_so_many_bombs(open_box: Callable[[], LastingSandbox], world: World) -> None:
    async with open_box() as box:
        for _ in range(MAX_RENEWALS):
            with pytest.raises(ToolError):
                await box.shell("bomb")
        with pytest.raises(BoxLost):
            await box.shell("bomb")
    assert len(world.boxes) == 1 + MAX_RENEWALS


@pytest.mark.parametrize(
    "looks", [{"mode": WorkspaceMode.COPY}, {"capabilities": ("host_kernel",)}, {"runtime": "runc"}]
)
async def test_no_new_box_where_the_changes_are_gone_or_the_kernel_is_the_hosts(
    looks: dict[str, object], open_box: Callable[[], LastingSandbox], world: World
) -> None:
    world.looks |= looks
    async with open_box() as box:
        with pytest.raises(BoxLost):
            await box.shell("bomb")
    assert len(world.boxes) == 1


async def test_any_other_end_is_the_end(open_box: Callable[[], LastingSandbox], world: World) -> None:
    async with open_box() as box:
        with pytest.raises(BoxLost, match="killed"):
            await box.shell("kill")
    assert len(world.boxes) == 1


async def test_without_a_new_box_the_end_is_told_as_it_was(
    open_box: Callable[[], LastingSandbox], world: World
) -> None:
    async with open_box() as box:
        world.is_full = True
        with pytest.raises(BoxLost) as told:
            await box.shell("bomb")
        assert (told.value.cause, str(told.value.__cause__)) == ("pids_exhausted", "no room")


async def test_a_time_limit_of_the_caller_does_not_leave_half_a_box(
    open_box: Callable[[], LastingSandbox], world: World
) -> None:
    async with open_box() as box:
        call = asyncio.ensure_future(box.shell("bomb"))
        while len(world.boxes) < 2:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait((call,))
        assert (await box.shell("true")).exit_code == 0


def test_only_another_runtime_needs_it(tmp_path: Path) -> None:
    spec = SandboxSpec(tmp_path, tmp_path, "run")
    kinds = [type(make_lasting(replace(spec, runtime=runtime))) for runtime in ("runc", "runsc")]
    assert kinds == [DockerSandbox, LastingSandbox]


async def test_a_new_box_has_the_tunnel_of_the_old_one(open_box: Callable[[], LastingSandbox], world: World) -> None:
    async def serve(stream: object) -> None:
        raise AssertionError("nobody connects")

    async with open_box() as box:
        await box.open_tunnel(serve, variables={"TOKEN": "placeholder"}, max_streams=7)
        with pytest.raises(ToolError):
            await box.shell("bomb")
    opened = [(one.serve, one.max_streams) for one in world.boxes]
    assert opened == [(serve, 7), (serve, 7)]
    assert box._variables == {"HTTP_PROXY": "box 1", "TOKEN": "placeholder"}
