"""Names of containers: whose they are when another has one already, and when the engine makes one late."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.unit.sandbox.test_engine import RawEngine, open_engine

from corral.errors import SandboxError
from corral.sandbox.box import Box
from corral.sandbox.janitor import Janitor


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[RawEngine]:
    engine = RawEngine(tmp_path / "e.sock")
    yield engine
    engine.close()


@pytest.fixture
def box(raw: RawEngine, tmp_path: Path) -> Iterator[Box]:
    nobody = os.open("/dev/null", os.O_WRONLY)
    yield Box(open_engine(tmp_path), Janitor(nobody))
    os.close(nobody)


def find_names(raw: RawEngine) -> list[str]:
    return [parse_qs(urlsplit(path).query)["name"][0] for path in raw.paths if "/containers/create" in path]


async def test_a_name_that_is_taken_is_tried_anew_with_another(raw: RawEngine, box: Box) -> None:
    raw.answer = lambda path: (409, '{"message":"Conflict. The container name is already in use"}')
    with pytest.raises(SandboxError, match="already in use"):
        await box.open({"Image": "x"})
    names = find_names(raw)
    assert (len(names), len(set(names))) == (3, 3)
    await box.close()
    assert not [path for path in raw.paths if path.startswith(f"/v1.41/containers/{names[-1]}")]  # it is somebody's


async def test_a_container_that_is_made_late_is_removed_by_its_name_and_not_made_twice(
    raw: RawEngine, box: Box
) -> None:
    asked = threading.Event()

    def answer(path: str) -> tuple[int, str]:
        if "/containers/create" in path:
            asked.set()
            time.sleep(0.3)
        return 201, '{"Id":"c1"}'

    raw.answer = answer
    opening = asyncio.ensure_future(box.open({"Image": "x"}))
    await asyncio.to_thread(asked.wait, 5)
    opening.cancel()
    await asyncio.wait((opening,))
    await box.close()
    (name,) = find_names(raw)
    asked_for = [path.split("?")[0] for path in raw.paths if "create" not in path and "/events" not in path]
    assert asked_for == [f"/v1.41/containers/{name}"]
