from __future__ import annotations

from pathlib import Path

import pytest

from corral.errors import ConfigError, ModelError
from corral.llm import ReplayModel, ScriptedCall, ScriptedModel, ScriptedReply, digest_request
from corral.record import RecordLog, load_record
from corral.schema.events import ModelAnswered, ModelCalled, PlanCreated, ProposedCall, Tokens
from corral.schema.messages import Message, ModelReply, ModelRequest, Role

REQUESTS = tuple(ModelRequest(messages=(Message(role=Role.USER, content=text),)) for text in ("one", "two"))


async def record_run(path: Path) -> list[ModelReply]:
    """A run of a scripted model, recorded the way the loop does."""
    model = ScriptedModel(
        [
            ScriptedReply(
                text="I look.",
                reasoning="hm",
                calls=(
                    ScriptedCall(name="write_file", arguments={"content": "x" * 100_000}),
                    ScriptedCall(name="shell", raw="{"),
                ),
            ),
            ScriptedReply(text="done", cost_usd=0.5),
        ]
    )
    replies = []
    with RecordLog.open(path) as log:
        for step, request in enumerate(REQUESTS):
            name = f"m{step}"
            log.append(
                ModelCalled(step=step, request_id=name, model="s", request_sha256=digest_request(request), messages=1)
            )
            reply = await model.complete(request)
            replies.append(reply)
            log.append(
                ModelAnswered(
                    step=step,
                    request_id=name,
                    model=reply.model,
                    text=reply.text,
                    reasoning=reply.reasoning,
                    calls=tuple(ProposedCall(**call.model_dump()) for call in reply.calls),
                    finish=reply.finish.value,
                    tokens=Tokens(
                        input=reply.usage.input_tokens, output=reply.usage.output_tokens, reported=reply.usage.reported
                    ),
                    cost_usd=reply.cost_usd,
                )
            )
    return replies


async def test_replay_gives_the_recorded_answers(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    recorded = await record_run(path)
    model = ReplayModel.from_events(load_record(path).events)
    shown: list[str] = []
    assert [await model.complete(request, shown.append) for request in REQUESTS] == recorded
    assert (shown, model.diverged, model.name) == (["I look.", "done"], 0, "scripted")
    with pytest.raises(ModelError, match="has 2 answers, and this run asks for one more"):
        await model.complete(REQUESTS[0])


async def test_replay_counts_requests_that_differ_from_the_recorded(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    recorded = await record_run(path)
    model = ReplayModel.from_events(load_record(path).events)
    assert [await model.complete(request) for request in reversed(REQUESTS)] == recorded
    assert model.diverged == 2


def test_run_without_a_model_cannot_be_replayed(tmp_path: Path) -> None:
    with RecordLog.open(tmp_path / "record.jsonl") as log:
        event = log.append(PlanCreated(step=1))
    with pytest.raises(ConfigError, match="no model answered"):
        ReplayModel.from_events([event])
