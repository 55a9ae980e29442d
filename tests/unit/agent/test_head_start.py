"""The model is asked while the box starts; what it says waits for the box, and neither leaves the other behind."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.life_box import LifeBox
from tests.unit.agent.conftest import Done, RunAgent, call, finish, says
from tests.unit.tools.fake_box import Run

from corral.agent.budget import Limits
from corral.errors import EngineUnavailable, ModelError
from corral.llm import ScriptedModel, ScriptedReply
from corral.llm.scripted import ScriptedError
from corral.schema.events import RunFinished, Tokens
from corral.schema.messages import ModelReply, ModelRequest, Usage

SPENT = Usage(input_tokens=90, output_tokens=10)


class SlowModel(ScriptedModel):
    """Answers when it is let; notes what becomes of its requests."""

    def __init__(self, *replies: ScriptedReply) -> None:
        super().__init__(replies)
        self.asked, self.may_answer, self.answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ended_by: list[str] = []

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.ended_by.append("cancel")
            raise
        reply = await super().complete(request)
        self.answered.set()
        return reply


def kinds(done: Done) -> list[str]:
    return [event.kind.value for event in done.events]


async def test_the_model_is_asked_while_the_box_starts(run_agent: RunAgent) -> None:
    model = SlowModel(says(call("shell", command="make")), says(finish()))
    model.may_answer.set()
    ran_before: list[int] = []

    async def start() -> None:
        await model.answered.wait()  # never comes where the box is waited for first
        for _ in range(20):
            await asyncio.sleep(0)
        ran_before.append(len(box.calls))

    box = LifeBox(Run(), on_start=start)
    done = await run_agent(model, box=box)
    assert (done.end, box.steps) == (("finished", "done"), ["start", "kill_all", "dispose"])
    assert (ran_before, len(box.calls)) == ([0], 1)
    assert kinds(done)[:5] == ["run.started", "model.called", "model.answered", "call.parsed", "call.decided"]


async def test_a_box_that_is_ready_first_waits_for_the_answer(run_agent: RunAgent) -> None:
    model = SlowModel(says(finish()))

    async def start() -> None:
        asyncio.get_running_loop().call_soon(model.may_answer.set)

    done = await run_agent(model, box=LifeBox(on_start=start))
    assert (done.end, len(done.requests)) == (("finished", "done"), 1)


async def test_a_start_that_fails_ends_the_request(run_agent: RunAgent) -> None:
    model = SlowModel(says(finish()))

    async def start() -> None:
        await model.asked.wait()
        raise EngineUnavailable("no engine", hint="start one")

    done = await run_agent(model, box=LifeBox(on_start=start))
    assert model.ended_by == ["cancel"]
    assert (done.end, done.outcome.exit_code) == (("error", "no engine"), 3)
    assert kinds(done) == ["run.started", "model.called", "error.raised", "run.finished"]


async def test_an_answer_that_a_failed_start_left_unused_is_paid_for(run_agent: RunAgent) -> None:
    model = SlowModel(says(finish(), usage=SPENT, cost_usd=0.5))
    model.may_answer.set()

    async def start() -> None:
        await model.answered.wait()
        while any(task.get_coro().__qualname__ == "HeadStart._fetch" for task in asyncio.all_tasks()):  # type: ignore[union-attr]
            await asyncio.sleep(0.001)
        raise EngineUnavailable("no engine")

    done = await run_agent(model, box=LifeBox(on_start=start))
    (finished,) = done.payloads(RunFinished)
    assert (finished.steps, finished.tokens, finished.cost_usd) == (1, Tokens(input=90, output=10), 0.5)


async def test_a_cancel_ends_request_and_start(run_agent: RunAgent) -> None:
    model = SlowModel(says(finish()))

    async def start() -> None:
        await asyncio.Event().wait()

    box = LifeBox(on_start=start)
    task = asyncio.ensure_future(run_agent(model, box=box))
    await model.asked.wait()
    task.cancel()
    done = await task
    assert (model.ended_by, done.outcome.exit_code) == (["cancel"], 130)
    assert kinds(done) == ["run.started", "model.called", "run.finished"]


async def test_a_model_that_fails_first_leaves_no_box(run_agent: RunAgent) -> None:
    class Fails(SlowModel):
        async def complete(self, request: ModelRequest) -> ModelReply:
            self.answered.set()
            raise ModelError("no such model", code="bad_request")

    model = Fails(says())
    box = LifeBox(on_start=lambda: wait_for(model.answered))
    done = await run_agent(model, box=box)
    assert (done.end, box.steps) == (("model_unavailable", "no such model"), ["start", "kill_all", "dispose"])


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def test_an_answer_of_no_use_is_asked_for_again(run_agent: RunAgent) -> None:
    done = await run_agent([ScriptedReply(error=ScriptedError(code="empty_response")), says(finish())])
    assert (done.end, len(done.requests)) == (("finished", "done"), 2)


@pytest.mark.parametrize("limits", [Limits(cost_usd=0.0), Limits(tokens=0)])
async def test_nothing_is_asked_ahead_that_would_not_be_asked(run_agent: RunAgent, limits: Limits) -> None:
    done = await run_agent([says(finish())], limits=limits)
    assert (done.requests, kinds(done)) == ([], ["run.started", "run.finished"])
