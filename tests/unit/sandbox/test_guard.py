"""Who may hold a box still, and that nobody's command is refused for a moment's sake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from corral.errors import BoxLost, ToolError
from corral.sandbox import guard
from corral.sandbox.guard import Stillness, describe_breach
from corral.sandbox.workspace import Breach
from corral_protocol.message import Method


class Toolbox:
    """Notes what it is asked, in order; each step can be made to fail or to take long."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.on_freeze: Callable[[], object] = lambda: None
        self.freeze_s = 0.0
        self.still = Stillness(self._freeze, self._thaw)

    async def _freeze(self) -> None:
        self.heard.append("freeze")
        await asyncio.sleep(self.freeze_s)
        self.on_freeze()

    async def _thaw(self) -> None:
        self.heard.append("thaw")

    async def ask(self, method: Method) -> None:
        await self.still.admit(method)
        self.heard.append(method.value)


def fail(error: Exception) -> Callable[[], object]:
    def step() -> object:
        raise error

    return step


async def test_what_comes_in_a_moment_waits_for_its_end() -> None:
    box = Toolbox()
    async with box.still.moment():
        waiting = [asyncio.ensure_future(box.ask(method)) for method in (Method.EXEC, Method.FREEZE)]
        await box.ask(Method.WRITE)  # file tools go on
        await asyncio.sleep(0.01)
        box.heard.append("looked")
    await asyncio.gather(*waiting)
    assert box.heard == ["freeze", "file.write", "looked", "thaw", "exec", "freeze"]


async def test_a_box_that_somebody_froze_stays_frozen() -> None:
    box = Toolbox()
    await box.ask(Method.FREEZE)
    async with box.still.moment():
        box.heard.append("looked")
    await box.ask(Method.THAW)
    async with box.still.moment():
        box.heard.append("looked")
    assert box.heard == ["freeze", "looked", "thaw", "freeze", "looked", "thaw"]


async def test_a_thaw_in_a_moment_counts_after_it() -> None:
    box = Toolbox()
    await box.ask(Method.FREEZE)
    async with box.still.moment():
        thawing = asyncio.ensure_future(box.ask(Method.THAW))
        await asyncio.sleep(0.01)
        box.heard.append("looked")
    await thawing
    assert box.heard == ["freeze", "looked", "thaw"]


async def test_a_toolbox_without_time_to_answer_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_FREEZE_S", 0.02)
    box = Toolbox()
    box.freeze_s = 0.2
    async with asyncio.timeout(5), box.still.moment():
        box.heard.append("looked")
    assert box.heard == ["freeze", "looked", "thaw"]


@pytest.mark.parametrize("error", [BoxLost("gone"), ToolError("no", code="timeout")])
async def test_a_box_that_cannot_be_held_is_looked_at_all_the_same(error: Exception) -> None:
    box = Toolbox()
    box.on_freeze = fail(error)
    async with box.still.moment():
        box.heard.append("looked")
    assert box.heard == ["freeze", "looked", "thaw"]


async def test_a_moment_that_is_cancelled_lets_the_box_go_on() -> None:
    box = Toolbox()

    async def look() -> None:
        async with box.still.moment():
            await asyncio.sleep(60)

    looking = asyncio.ensure_future(look())
    await asyncio.sleep(0.01)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    await box.ask(Method.EXEC)
    assert box.heard == ["freeze", "thaw", "exec"]


@pytest.mark.parametrize(
    ("breach", "words", "setting"),
    [
        (Breach("bytes", 12, 10), "passed a limit of the workspace: 12 bytes, limit 10", "limits.workspace_size"),
        (Breach("inodes", 12, 10), "passed a limit of the workspace: 12 inodes, limit 10", "limits.workspace_inodes"),
        (Breach("disk", 3 << 20, 5 << 20), "nearly full: 3.0 MiB are left, 5.0 MiB are to stay", "limits.min_free"),
    ],
)
def test_every_breach_says_which_setting_raises_it(breach: Breach, words: str, setting: str) -> None:
    told = describe_breach(breach)
    assert told.cause == "disk_full"
    assert words in told.message
    assert told.hint is not None and setting in told.hint
