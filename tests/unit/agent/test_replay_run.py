"""A recorded run, run again without its model."""

from __future__ import annotations

from tests.support.life_box import LifeBox
from tests.unit.agent.conftest import Done, RunAgent, call, finish, says
from tests.unit.tools.fake_box import Run

from corral.llm import ReplayModel, ScriptedReply
from corral.llm.scripted import ScriptedError
from corral.schema.events import ModelAnswered, ToolFinished

SCRIPT = [
    says(call("read_file", path="a"), text="first"),
    ScriptedReply(error=ScriptedError(code="empty_response")),
    says(call("shell", command="pytest"), call("list_files"), cost_usd=0.1),
    says(text="words only"),
    says(call("write_file", path="b", overwrite=True, content="x")),
    says(finish("done")),
    says(finish("done now")),
]


def box(stamp: str) -> LifeBox:
    """Outputs as they differ from run to run: times, temporary names, addresses."""
    out = f"1 failed in {stamp}.7 s\n/tmp/pytest-{stamp}/x at 0x{stamp}\n".encode()
    return LifeBox(Run(stdout=out, exit_code=1), Run(exit_code=1), Run())


def facts(done: Done) -> list[object]:
    answers = [(one.text, one.calls, one.tokens, one.cost_usd) for one in done.payloads(ModelAnswered)]
    return [done.end, answers, [(one.tool, one.status) for one in done.payloads(ToolFinished)]]


async def test_a_replay_goes_the_same_way_without_divergence(run_agent: RunAgent) -> None:
    first = await run_agent(SCRIPT, box=box("3"), files={"a": b"x\n"}, until="make")
    assert first.end == ("finished", "done now")
    model = ReplayModel.from_events(first.events)
    again = await run_agent(model, box=box("41"), files={"a": b"x\n"}, until="make")
    assert (model.diverged, facts(again)) == (0, facts(first))


async def test_a_replay_on_other_files_is_told(run_agent: RunAgent) -> None:
    first = await run_agent(SCRIPT, box=box("3"), files={"a": b"x\n"}, until="make")
    model = ReplayModel.from_events(first.events)
    await run_agent(model, box=box("3"), files={"a": b"other words\n"}, until="make")
    assert model.diverged == 6  # all but the first request hold the file


async def test_a_replay_that_needs_more_than_was_recorded_stops(run_agent: RunAgent) -> None:
    first = await run_agent(SCRIPT[:1] + SCRIPT[-1:], files={"a": b"x\n"})
    model = ReplayModel.from_events(first.events)
    done = await run_agent(model, box=LifeBox(Run(exit_code=1)), files={"a": b"x\n"}, until="make")
    assert done.end[0] == "model_unavailable"
    assert "the recorded run has 2 answers, and this run asks for one more" in done.end[1]
