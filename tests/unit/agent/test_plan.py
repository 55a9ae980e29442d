"""Plan mode: what changes something does not exist, also for a model that calls it all the same."""

from __future__ import annotations

import pytest
from tests.unit.agent.conftest import RunAgent, call, finish, says

from corral.agent.budget import Limits
from corral.agent.session import PLAN_STEPS
from corral.schema.events import PlanCreated, ToolFinished
from corral.schema.policy import Mode, Preset

PLAN = {"preset": Preset.PLAN, "mode": Mode.PLAN}
WRITES = [
    call("shell", command="ls"),
    call("write_file", path="a", content="x"),
    call("edit_file", path="a", old_string="x", new_string="y"),
    call("apply_patch", patch="*** Begin Patch\n*** End Patch"),
    call("move_file", source="a", target="b"),
    call("delete_file", path="a"),
]


async def test_only_reading_tools_are_shown(run_agent: RunAgent) -> None:
    done = await run_agent([says(finish("1. do it"))], **PLAN)
    assert [tool.name for tool in done.requests[0].tools] == ["read_file", "list_files", "search", "diff", "finish"]
    assert "You are in plan mode" in done.requests[0].messages[0].content


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
@pytest.mark.parametrize("preset", [Preset.PLAN, Preset.YOLO])
async def test_a_call_that_writes_never_reaches_the_box(run_agent: RunAgent, write: object, preset: Preset) -> None:
    """The mode alone is enough, whatever the preset allows."""
    done = await run_agent([says(write), says(finish("p"))], files={"a": b"x"}, preset=preset, mode=Mode.PLAN)
    assert done.box.calls == [] and done.box.files == {"a": b"x"}
    refused = done.payloads(ToolFinished)[0]
    assert (refused.success, refused.error.code) == (False, "unknown_tool")


async def test_the_summary_becomes_the_plan(run_agent: RunAgent) -> None:
    done = await run_agent([says(call("list_files")), says(finish("1. edit a\n2. run make"))], **PLAN)
    assert [(one.step, one.text) for one in done.payloads(PlanCreated)] == [(2, "1. edit a\n2. run make")]


async def test_no_plan_is_created_by_a_run_that_breaks_off(run_agent: RunAgent) -> None:
    done = await run_agent([says(text="hm")] * 3, **PLAN)
    assert done.end[0] == "stuck" and done.payloads(PlanCreated) == []


async def test_planning_takes_at_most_eight_turns(run_agent: RunAgent) -> None:
    script = [says(call("list_files", path=str(number))) for number in range(20)]
    done = await run_agent(script, limits=Limits(steps=30), **PLAN)
    assert (done.end[0], len(done.requests)) == ("step_limit", PLAN_STEPS)
    done = await run_agent(script, limits=Limits(steps=3), **PLAN)
    assert (done.end[0], len(done.requests)) == ("step_limit", 3)


async def test_the_completion_command_is_not_run_for_a_plan(run_agent: RunAgent) -> None:
    done = await run_agent([says(finish("p"))], until="make test", **PLAN)
    assert done.end == ("finished", "p") and done.box.calls == []
