"""corral.Agent against a real engine: a whole run, its limits, replay, cancelling."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import corral
from corral.llm import ScriptedCall, ScriptedModel, ScriptedReply
from corral.record import verify_record

pytestmark = pytest.mark.docker


def says(name: str, /, **arguments: Any) -> ScriptedReply:
    return ScriptedReply(calls=(ScriptedCall(name=name, arguments=arguments),), cost_usd=0.01)


MEND = [
    says("shell", command="date +%s%N; cat a.txt"),
    says("edit_file", path="a.txt", old_string="wrong", new_string="right"),
    says("finish", summary="mended"),
]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("wrong\n")
    return folder


@pytest.fixture
def agent(repo: Path, sandbox_image: str) -> Any:
    return lambda replies, **more: corral.Agent(
        "mend a.txt", repo, image=sandbox_image, model=ScriptedModel(replies), **more
    )


async def test_a_run_and_its_replay(agent: Any, repo: Path, sandbox_image: str) -> None:
    seen: list[str] = []
    result = await agent(MEND, until="grep right a.txt", on_event=lambda event: seen.append(event.kind.value)).run()
    assert (result.finished, result.stop_reason, result.summary, result.exit_code) == (True, "finished", "mended", 0)
    assert (result.steps, result.cost_usd, result.error) == (3, pytest.approx(0.03), None)
    assert result.tokens[0] > 100
    assert [file.path for file in result.patch.files] == ["a.txt"]
    assert b"+right\n" in result.patch_file.read_bytes()
    assert (repo / "a.txt").read_text() == "wrong\n"
    assert verify_record(result.record_path).ok
    assert (seen[0], seen[-1], seen.count("model.answered")) == ("run.started", "run.finished", 3)

    options: dict[str, Any] = {"image": sandbox_image, "until": "grep right a.txt"}
    replay = await corral.Agent("mend a.txt", repo, model=f"replay:{result.run_id}", **options).run()
    assert (replay.stop_reason, replay.diverged) == ("finished", 0)
    assert replay.patch == result.patch.model_copy(update={"started_ns": replay.patch.started_ns})

    other = await corral.Agent("mend it", repo, model=f"replay:{result.run_id}", **options).run()
    assert other.diverged == 3


async def test_a_limit_is_a_result_and_leaves_a_patch(agent: Any) -> None:
    result = await agent(MEND, limits=corral.Limits(steps=2)).run()
    assert (result.finished, result.stop_reason, result.exit_code) == (False, "step_limit", 10)
    assert [file.path for file in result.patch.files] == ["a.txt"]


async def test_a_model_that_is_away_is_a_result_with_an_error(agent: Any) -> None:
    result = await agent(MEND[:1]).run()
    assert (result.stop_reason, result.exit_code, result.patch) == ("model_unavailable", 3, None)
    assert result.error is not None and result.error.code == "script"


async def test_a_cancel_ends_the_run_in_order_and_goes_on(agent: Any) -> None:
    mender = agent([MEND[1], says("shell", command="sleep 60")])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4):
            await mender.run()
    assert (mender.result.stop_reason, mender.result.exit_code) == ("cancelled", 130)
    assert [file.path for file in mender.result.patch.files] == ["a.txt"]
    assert verify_record(mender.result.record_path).finished


async def test_a_plan_changes_nothing(agent: Any) -> None:
    result = await agent([MEND[1], says("finish", summary="1. edit a.txt")], plan=True).run()
    assert (result.stop_reason, result.summary, result.patch) == ("finished", "1. edit a.txt", None)


async def test_a_listener_that_fails_is_told_when_the_run_is_over(agent: Any) -> None:
    def fail(event: corral.Event) -> None:
        raise ValueError("listener")

    mender = agent(MEND, on_event=fail)
    with pytest.raises(ValueError, match="listener"):
        await mender.run()
    assert mender.result.finished


async def test_an_approver_is_asked(agent: Any) -> None:
    asked: list[corral.ApprovalRequest] = []

    class Approve:
        async def request(self, request: corral.ApprovalRequest) -> corral.ApprovalAnswer:
            asked.append(request)
            return corral.ApprovalAnswer(approved=len(asked) == 1, digest=request.digest, reason="test")

    result = await agent(
        [MEND[1], says("shell", command="rm a.txt"), MEND[2]], preset="on-request", approver=Approve()
    ).run()
    assert [request.call.name for request in asked] == ["edit_file", "shell"]
    assert [(file.path, file.action.value) for file in result.patch.files] == [("a.txt", "modified")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": None}, "no model is configured"),
        ({"model": "replay:20260101-000000-abcdef"}, "there is no run"),
        ({"preset": "free"}, "there is no preset 'free'"),
        ({"mode": "magic"}, "there is no workspace mode 'magic'"),
        ({"task": "  "}, "the task is empty"),
    ],
)
async def test_what_cannot_be_used_is_told_before_anything_starts(
    repo: Path, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CORRAL_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    given = {"task": "t", "workspace": repo, "model": ScriptedModel(MEND)} | options
    with pytest.raises(corral.ConfigError, match=words):
        await corral.Agent(**given).run()
