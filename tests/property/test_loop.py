"""Whatever a model answers, a run ends within its limits, and every call has exactly one answer, in order."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.life_box import LifeBox
from tests.unit.tools.fake_box import Run

from corral.agent.budget import Limits
from corral.agent.repetition import squeeze
from corral.agent.session import AgentSession
from corral.agent.stop import StopReason
from corral.llm import Script, ScriptedCall, ScriptedModel, ScriptedReply
from corral.llm.scripted import ScriptedError
from corral.policy import PolicyEngine, SessionPolicy
from corral.record import RecordLog, read_events, verify_record
from corral.sandbox.base import Sandbox
from corral.schema.events import Event, ModelAnswered, ToolFinished
from corral.schema.messages import Message, Role
from corral.schema.policy import PolicySession, Preset
from corral.tools import OutputStore

ENGINES = {preset: PolicyEngine.load_preset(preset) for preset in (Preset.AUTO, Preset.NEVER)}
NAMES = st.sampled_from(
    ["shell", "read_file", "write_file", "list_files", "finish", "functions.shell", "bash", "", "é"]
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["command", "path", "content", "summary", "x"]),
    st.one_of(st.sampled_from(["a", "b", "ls", "ls # 1", "done"]), st.none(), st.integers(), st.text(max_size=3)),
    max_size=3,
)
CALLS = st.one_of(
    st.builds(ScriptedCall, name=NAMES, arguments=ARGUMENTS),
    st.builds(ScriptedCall, name=NAMES, raw=st.text(max_size=12)),
)
REPLIES = st.one_of(
    st.builds(ScriptedReply, text=st.text(max_size=4), calls=st.lists(CALLS, max_size=3).map(tuple)),
    st.sampled_from(["empty_response", "bad_response", "auth"]).map(
        lambda code: ScriptedReply(error=ScriptedError(code=code))
    ),
)


async def no_diff(sandbox: Sandbox) -> str:
    return ""


class EndlessBox(LifeBox):
    """Answers any number of commands."""

    async def _run(self, *sinks: Any, **options: Any) -> Any:
        self.runs.append(Run(stdout=b"same", exit_code=len(self.calls) % 2))
        return await super()._run(*sinks, **options)


@settings(max_examples=150, deadline=None)
@given(st.lists(REPLIES, min_size=1, max_size=8), st.integers(1, 12), st.sampled_from(list(ENGINES)), st.booleans())
async def test_every_run_ends_and_answers_every_call_once(
    replies: list[ScriptedReply], steps: int, preset: Preset, until: bool
) -> None:
    model = ScriptedModel(Script(replies=tuple(replies), at_end="repeat"))
    with TemporaryDirectory() as folder, RecordLog.open(Path(folder) / "record.jsonl") as log:
        session = AgentSession(
            task="t",
            client=model,
            decider=SessionPolicy(ENGINES[preset], PolicySession(id="r", preset=preset)),
            record=log,
            outputs=OutputStore(Path(folder) / "outputs"),
            current_diff=no_diff,
            mount_point="/workspace",
            limits=Limits(steps=steps),
            until="make" if until else None,
        )
        reason = await _run(session)
        events = [one for one in read_events(log.path) if isinstance(one, Event)]
        assert verify_record(log.path).problem is None
    assert reason in set(StopReason)
    assert session.spent().steps == len(model.requests) <= steps
    for request in model.requests:
        check_turns(request.messages)
    proposed = [call.id for one in events if isinstance(one.payload, ModelAnswered) for call in one.payload.calls]
    finished = [one.payload.call_id for one in events if isinstance(one.payload, ToolFinished)]
    assert [one for one in finished if not one.startswith("until")] == proposed


async def _run(session: AgentSession) -> StopReason:
    from corral.errors import ModelError

    try:
        return (await session(EndlessBox())).reason  # type: ignore[arg-type]
    except ModelError as error:
        assert error.code in ("auth", "bad_response")
        return StopReason.MODEL_UNAVAILABLE


def check_turns(messages: tuple[Message, ...]) -> None:
    """What strict endpoints ask of a history."""
    open_calls: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            assert open_calls and message.call_id == open_calls.pop(0)
        else:
            assert open_calls == []
            open_calls = [call.id for call in message.calls]
    assert open_calls == []


@given(st.text(alphabet="ab #'\"\\\n\t;|$", max_size=40))
def test_squeezing_a_command_is_idempotent(command: str) -> None:
    once = squeeze(command)
    assert squeeze(once) == once
