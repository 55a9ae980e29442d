"""Every way a run can end: its reason, its exit code, whether the patch is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.life_box import LifeBox
from tests.unit.agent.conftest import Done, RunAgent, call, finish, says
from tests.unit.tools.fake_box import Run

from corral.agent.budget import Limits
from corral.agent.stop import EXIT_CODES, StopReason, is_complete
from corral.errors import ModelError, ToolError
from corral.llm import Script, ScriptedCall, ScriptedModel, ScriptedReply
from corral.llm.scripted import ScriptedError
from corral.schema.events import ErrorRaised, ModelAnswered, ModelCalled, RunFinished, ToolFinished, ToolStarted
from corral.schema.messages import ModelReply, ModelRequest, Usage
from corral.schema.policy import Preset


def again(reply: ScriptedReply) -> ScriptedModel:
    return ScriptedModel(Script(replies=(reply,), at_end="repeat"))


def end_in_record(done: Done) -> tuple[str, int, bool]:
    (finished,) = done.payloads(RunFinished)
    assert finished.steps == done.outcome.ending.steps
    return finished.stop_reason, finished.exit_code, finished.complete


def test_every_reason_has_an_exit_code_of_its_kind() -> None:
    assert set(EXIT_CODES) == set(StopReason)
    assert {reason for reason in StopReason if is_complete(reason)} == {StopReason.FINISHED}


async def test_finished(run_agent: RunAgent) -> None:
    done = await run_agent([says(call("read_file", path="a")), says(finish("all done"))], files={"a": b"x\n"})
    assert done.end == ("finished", "all done")
    assert end_in_record(done) == ("finished", 0, True)


async def test_finished_incomplete_with_a_call_of_unknown_state(run_agent: RunAgent) -> None:
    box = LifeBox()
    write = box.write_file
    stuck = [True]

    async def hang(path: str, content: bytes, **options: Any) -> Any:
        if stuck.pop():
            await asyncio.sleep(60)
        return await write(path, content, **options)

    box.write_file = hang  # type: ignore[method-assign]
    script = [says(call("write_file", path="a", content="1")), says(finish("I think so"))]
    done = await run_agent(script, box=box, timeouts_s=0.05)
    assert done.end == ("finished_incomplete", "I think so")
    assert end_in_record(done) == ("finished_incomplete", 0, False)


@pytest.mark.parametrize(("last", "reason"), [("list", "finished_incomplete"), ("kill", "finished")])
async def test_finished_incomplete_while_a_job_runs(run_agent: RunAgent, last: str, reason: str) -> None:
    box = LifeBox()

    async def run(*arguments: Any, **options: Any) -> Any:
        await asyncio.Event().wait()

    box.exec = run  # type: ignore[method-assign]
    job = {"job": "job-1"} if last == "kill" else {}
    script = [
        says(call("process", action="start", command="serve", wait_s=0)),
        says(call("process", action=last, **job)),
        says(finish("served")),
    ]
    done = await run_agent(script, box=box)
    assert done.end == (reason, "served")


async def test_what_was_unknown_is_settled_when_the_call_succeeds(run_agent: RunAgent) -> None:
    box = LifeBox()
    write = box.write_file
    stuck = [False, True]

    async def hang_once(path: str, content: bytes, **options: Any) -> Any:
        if stuck.pop():
            await asyncio.sleep(60)
        return await write(path, content, **options)

    box.write_file = hang_once  # type: ignore[method-assign]
    step = says(call("write_file", path="a", content="1"))
    done = await run_agent([step, step, says(finish("now"))], box=box, timeouts_s=0.05)
    assert done.end == ("finished", "now")


async def test_not_verified_after_two_returns_to_the_model(run_agent: RunAgent) -> None:
    box = LifeBox(*[Run(stdout=b"1 failed\n", exit_code=1)] * 3)
    done = await run_agent(again(says(finish())), box=box, until="make test")
    assert done.end == ("not_verified", "not_verified: the completion command did not succeed: exit code 1")
    assert end_in_record(done) == ("not_verified", 13, False)
    assert [args[0] for name, args in box.calls if name == "shell"] == ["make test"] * 3
    told = [message.content for message in done.requests[1].messages if message.call_id]
    assert "1 failed" in told[0] and "status: error" in told[0]


async def test_verified_on_the_second_try(run_agent: RunAgent) -> None:
    done = await run_agent(again(says(finish("ok"))), box=LifeBox(Run(exit_code=2), Run()), until="make test")
    assert done.end == ("finished", "ok")
    assert [one.success for one in done.payloads(ToolFinished) if one.tool == "until"] == [False, True]


async def test_step_limit(run_agent: RunAgent) -> None:
    done = await run_agent(
        [says(call("list_files", path=str(number))) for number in range(9)], limits=Limits(steps=3, failures=99)
    )
    assert done.end[0] == "step_limit"
    assert end_in_record(done) == ("step_limit", 10, False)
    assert len(done.requests) == 3


async def test_token_limit(run_agent: RunAgent) -> None:
    spend = Usage(input_tokens=60, output_tokens=1)
    script = [says(call("list_files", path=str(number)), usage=spend) for number in range(9)]
    done = await run_agent(script, limits=Limits(tokens=100))
    assert end_in_record(done) == ("token_limit", 10, False)
    (finished,) = done.payloads(RunFinished)
    assert (len(done.requests), finished.tokens.input, finished.tokens.output) == (2, 120, 2)


async def test_cost_limit(run_agent: RunAgent) -> None:
    script = [says(call("list_files", path=str(number)), cost_usd=0.04) for number in range(9)]
    done = await run_agent(script, limits=Limits(cost_usd=0.10))
    assert end_in_record(done) == ("cost_limit", 10, False)
    assert (len(done.requests), done.payloads(RunFinished)[0].cost_usd) == (3, pytest.approx(0.12))


async def test_time_limit(run_agent: RunAgent) -> None:
    now = iter(range(0, 1000, 4))
    script = [says(call("list_files", path=str(number))) for number in range(9)]
    done = await run_agent(script, limits=Limits(wall_s=10), clock=lambda: float(next(now)))
    assert end_in_record(done) == ("time_limit", 10, False)
    assert len(done.requests) < 3


async def test_stuck_in_words(run_agent: RunAgent) -> None:
    done = await run_agent(again(says(text="I have fixed the bug and all tests pass.")))
    assert done.end == ("stuck", "I have fixed the bug and all tests pass.")
    assert end_in_record(done) == ("stuck", 11, False)
    assert (len(done.requests), done.payloads(ToolStarted), done.payloads(ToolFinished)) == (3, [], [])


async def test_stuck_in_one_call(run_agent: RunAgent) -> None:
    model = again(says(call("read_file", path="a"), text="once more"))
    done = await run_agent(model, files={"a": b"x\n"})
    assert done.end == ("stuck", "once more")
    assert (len(done.requests), done.requests[-1].tools) == (7, ())


async def test_failures_in_a_row(run_agent: RunAgent) -> None:
    done = await run_agent([says(call("read_file", path=f"no{number}")) for number in range(9)])
    assert end_in_record(done) == ("failures", 11, False)
    assert len(done.requests) == 5


async def test_a_failing_command_is_no_failed_call(run_agent: RunAgent) -> None:
    box = LifeBox(*[Run(stdout=f"E {number}\n".encode(), exit_code=1) for number in range(7)])
    script = [says(call("shell", command=f"try {number}")) for number in range(7)]
    done = await run_agent([*script, says(finish("no luck"))], box=box)
    assert done.end == ("finished", "no luck")


async def test_parse_failures_after_two_retries(run_agent: RunAgent) -> None:
    done = await run_agent(again(says(ScriptedCall(name="shell", raw='{"command": "ls'))))
    assert end_in_record(done) == ("parse_failures", 11, False)
    assert (len(done.requests), done.box.calls) == (3, [])


async def test_approval_denied_three_times_in_a_row(run_agent: RunAgent) -> None:
    script = [says(call("shell", command=f"make {number}")) for number in range(9)]
    done = await run_agent(script, preset=Preset.NEVER)
    assert end_in_record(done) == ("approval_denied", 12, False)
    assert (len(done.requests), done.box.calls) == (3, [])


async def test_an_ask_without_an_approver_is_a_no(run_agent: RunAgent) -> None:
    script = [says(call("shell", command=f"make {number}")) for number in range(9)]
    done = await run_agent(script, preset=Preset.ON_REQUEST)
    assert end_in_record(done) == ("approval_denied", 12, False)
    assert done.box.calls == []


async def test_cancelled_keeps_the_account(run_agent: RunAgent) -> None:
    script = [
        says(call("list_files"), cost_usd=0.25, usage=Usage(input_tokens=7, output_tokens=3)),
        says(finish(), delay_s=60),
    ]
    task = asyncio.ensure_future(run_agent(script))
    await asyncio.sleep(0.2)
    task.cancel()
    done = await task
    assert done.end == ("cancelled", "cancelled by the user")
    assert end_in_record(done) == ("cancelled", 130, False)
    (finished,) = done.payloads(RunFinished)
    assert (finished.steps, finished.cost_usd, finished.tokens.input) == (1, 0.25, 7)
    assert done.box.steps == ["start", "kill_all", "dispose"]


@pytest.mark.parametrize("code", ["auth", "unreachable", "context_overflow", "no_tool_support"])
async def test_model_unavailable(run_agent: RunAgent, code: str) -> None:
    script = [says(call("list_files")), ScriptedReply(error=ScriptedError(code=code, message=f"no: {code}"))]
    done = await run_agent(script)
    assert done.end == ("model_unavailable", f"no: {code}")
    assert end_in_record(done) == ("model_unavailable", 3, False)
    assert done.outcome.error is not None and done.outcome.error.code == code
    assert [(one.step, one.error.code) for one in done.payloads(ErrorRaised)] == [(2, code)]
    assert (len(done.requests), done.outcome.ending.steps) == (2, 2)


class Failing:
    """A model whose every answer is of no use, and costs."""

    name, endpoint = "failing", ""

    def __init__(self, code: str, **used: Any) -> None:
        self.code, self.used, self.asked = code, used, [ModelRequest(messages=())][:0]

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelReply:
        self.asked.append(request)
        raise ModelError("the model said nothing", code=self.code, **self.used)

    async def close(self) -> None:
        return None


async def test_empty_answers_are_asked_for_three_times_and_paid(run_agent: RunAgent) -> None:
    model = Failing("empty_response", tokens=(100, 2), cost_usd=0.01)
    done = await run_agent(model)
    assert done.end == ("failures", "the model said nothing")
    assert end_in_record(done) == ("failures", 11, False)
    (finished,) = done.payloads(RunFinished)
    assert (finished.steps, finished.tokens.input, finished.tokens.output) == (3, 300, 6)
    assert finished.cost_usd == pytest.approx(0.03)
    nudges = ["your last answer was empty" in request.messages[-1].content for request in model.asked]
    assert nudges == [False, True, True]
    assert [one.error.code for one in done.payloads(ErrorRaised)] == ["empty_response"] * 3


async def test_empty_answers_count_against_the_budget_before_they_run_out(run_agent: RunAgent) -> None:
    done = await run_agent(Failing("empty_response", tokens=(100, 2), cost_usd=0.01), limits=Limits(cost_usd=0.02))
    assert end_in_record(done) == ("cost_limit", 10, False)


async def test_an_endpoint_that_breaks_the_protocol_is_unavailable(run_agent: RunAgent) -> None:
    model = Failing("bad_response", tokens=(5, 0))
    done = await run_agent(model)
    assert end_in_record(done) == ("model_unavailable", 3, False)
    assert (len(model.asked), done.payloads(RunFinished)[0].cost_usd) == (3, None)


async def test_an_empty_answer_in_between_is_survived(run_agent: RunAgent) -> None:
    empty = ScriptedReply(error=ScriptedError(code="empty_response"))
    work = says(call("list_files", path="x"))
    done = await run_agent([empty, empty, says(call("list_files")), empty, empty, work, says(finish())])
    assert done.end[0] == "finished"


async def test_replies_without_text_and_calls_fail(run_agent: RunAgent) -> None:
    done = await run_agent(again(says()))
    assert done.end == ("failures", "the model answered with nothing, again and again")
    assert len(done.requests) == 3


async def test_box_lost_is_no_observation(run_agent: RunAgent) -> None:
    box = LifeBox(Run())
    script = [says(call("shell", command="true")), says(call("shell", command="ls"), text="x"), says(finish())]
    model = ScriptedModel(script)

    async def lose() -> None:
        box.lose()

    box.runs[0].effect = lose
    done = await run_agent(model, box=box)
    assert done.end == ("box_lost", "the container was removed")
    assert end_in_record(done) == ("box_lost", 3, False)
    # The call in flight stays without an end: nobody knows what it did.
    assert len(done.requests) == 2
    assert [one.call_id for one in done.payloads(ToolStarted)] == ["s1-1", "s2-1"]
    assert [one.call_id for one in done.payloads(ToolFinished)] == ["s1-1"]


async def test_a_fault_of_ours_is_an_error_with_its_record(run_agent: RunAgent) -> None:
    class Broken(Failing):
        async def complete(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelReply:
            raise ZeroDivisionError("oops")

    done = await run_agent(Broken(""))
    assert done.end == ("error", "a fault in corral: ZeroDivisionError: oops")
    assert end_in_record(done) == ("error", 3, False)
    assert isinstance(done.outcome.error.__cause__, ZeroDivisionError)  # type: ignore[union-attr]


async def test_a_tool_that_the_box_refuses_goes_back_to_the_model(run_agent: RunAgent) -> None:
    box = LifeBox()
    box.raises = ToolError("too many processes", code="busy")
    done = await run_agent([says(call("shell", command="ls")), says(finish())], box=box)
    assert done.end[0] == "finished"
    assert [(one.status, one.error and one.error.code) for one in done.payloads(ToolFinished)] == [
        ("error", "busy"),
        ("ok", None),
    ]
    assert len(done.payloads(ModelCalled)) == len(done.payloads(ModelAnswered)) == 2
