"""What a run holds of a pool's box: nothing before the start, then that box and no other, until it gives it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.errors import EngineUnavailable
from corral.sandbox.base import Sandbox
from corral.sandbox.fake import FakeCall, FakeOutcome, FakeSandbox
from corral.sandbox.pool.pooled import PooledSandbox
from corral.sandbox.spec import SandboxSpec
from corral_protocol.message import ExecStatus


class FakePool:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.given: list[SandboxSpec] = []
        self.back: list[Sandbox] = []

    async def obtain(self, spec: SandboxSpec) -> FakeSandbox:
        self.given.append(spec)
        if self.error is not None:
            raise self.error
        box = FakeSandbox(spec.workspace, self.answer, run_id=spec.run_id)
        await box.start()
        return box

    async def dispose(self, box: Sandbox) -> None:
        self.back.append(box)
        await box.dispose()

    def answer(self, call: FakeCall) -> FakeOutcome:
        return FakeOutcome(stdout=b"said\n")


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    return SandboxSpec(tmp_path, tmp_path / "run", "run-1")


async def test_calls_reach_the_box_that_was_given(spec: SandboxSpec) -> None:
    pool = FakePool()
    async with PooledSandbox(spec, pool) as box:
        result = await box.shell("anything")
        assert (result.status, box.info.run_id, pool.given) == (ExecStatus.EXITED, "run-1", [spec])
        assert not pool.back
    assert len(pool.back) == 1


async def test_nothing_can_be_asked_before_the_start_nor_started_twice(spec: SandboxSpec) -> None:
    box = PooledSandbox(spec, FakePool())
    with pytest.raises(RuntimeError, match="not been started"):
        await box.shell("true")
    await box.start()
    with pytest.raises(RuntimeError, match="started once"):
        await box.start()
    await box.dispose()


async def test_a_start_that_fails_gives_nothing_back(spec: SandboxSpec) -> None:
    pool = FakePool(EngineUnavailable("no engine"))
    box = PooledSandbox(spec, pool)
    with pytest.raises(EngineUnavailable):
        await box.start()
    await box.dispose()
    assert pool.back == []
    with pytest.raises(RuntimeError, match="started once"):
        await box.start()
