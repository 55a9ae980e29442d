"""What is kept of a job's output, and how a flood is slowed down."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.errors import ToolError
from corral.sandbox.job import MAX_WAITING_BYTES, OutputRing, _Pace, start_job
from corral.testing import FakeConsole, FakeSandbox


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 50), st.integers(0, 200), st.integers(0, 60))
def test_a_ring_is_the_end_of_all_that_came(pieces: list[bytes], kept: int, offset: int, limit: int) -> None:
    ring = OutputRing(kept)
    for piece in pieces:
        ring.add(piece)
    whole = b"".join(pieces)
    assert (ring.total, ring.first) == (len(whole), max(0, len(whole) - kept))
    start = min(max(offset, ring.first), len(whole))
    assert ring.read(offset, limit) == (start, whole[start : start + limit])


def test_a_flood_is_slowed_down_and_a_burst_is_not() -> None:
    now = 100.0
    pace = _Pace(clock=lambda: now, seen_at=100.0)
    assert pace.spend(8 << 20) == 0.0
    assert pace.spend(2 << 20) == 2.0
    now = 103.0
    assert pace.spend(1 << 20) == 0.0


async def test_input_that_nobody_reads_is_bounded(tmp_path: Path) -> None:
    async def sleep(console: FakeConsole) -> int:
        return await console.signals.get()

    async with FakeSandbox(tmp_path, programs={"sleep": sleep}) as box:
        job = start_job(box, ["sleep"])
        job.write(bytes(MAX_WAITING_BYTES))
        with pytest.raises(ToolError, match="has not read"):
            job.write(b"x")
        await job.kill()
