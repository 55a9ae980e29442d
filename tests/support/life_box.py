"""FakeBox with a life: started, killed, disposed, lost. Every step is noted, so that a test can hold their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from tests.unit.tools.fake_box import FakeBox, Run

from corral.errors import BoxLost
from corral.sandbox.base import BoxInfo
from corral.sandbox.spec import WorkspaceMode
from corral_protocol.message import Stats

INFO = BoxInfo(
    box_id="box-1",
    run_id="run-1",
    image="img",
    image_id="sha256:1",
    runtime="runc",
    mode=WorkspaceMode.OVERLAY,
    mode_reason="",
    mount_point="/workspace",
    uid=1000,
    gid=1000,
)

Step = Callable[[], Awaitable[None]]


async def nothing() -> None:
    return None


class LifeBox(FakeBox):
    """`on_start`, `on_kill` and `on_dispose` run inside these steps: raise, or wait, there."""

    def __init__(
        self, *runs: Run, on_start: Step = nothing, on_kill: Step = nothing, on_dispose: Step = nothing
    ) -> None:
        super().__init__(*runs)
        self.steps: list[str] = []
        self.counted = Stats(processes=1, zombies=0, calls=0, rss=0, pss=0)
        self._hooks = {"start": on_start, "kill_all": on_kill, "dispose": on_dispose}

    @property
    def info(self) -> BoxInfo:
        return INFO

    async def start(self) -> BoxInfo:
        await self._step("start")
        return INFO

    async def kill_all(self) -> None:
        await self._step("kill_all")

    async def dispose(self) -> None:
        if "dispose" not in self.steps:
            await self._step("dispose")

    async def stats(self) -> Stats:
        return self.counted

    async def freeze(self) -> None:
        self.steps.append("freeze")

    async def thaw(self) -> None:
        self.steps.append("thaw")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.dispose()

    async def _step(self, name: str) -> None:
        self.steps.append(name)
        await self._hooks[name]()

    def lose(self) -> None:
        """From here on every call finds the box gone."""
        self.raises = BoxLost("the container was removed", cause="killed")
