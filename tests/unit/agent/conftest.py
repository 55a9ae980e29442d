"""One agent run of a scripted model in a box in memory, with a real record and the real policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.life_box import LifeBox

from corral.agent.budget import Limits
from corral.agent.run import Outcome, Run, describe_start
from corral.agent.session import AgentSession
from corral.llm import ModelClient, ScriptedCall, ScriptedModel, ScriptedReply
from corral.policy import PolicyEngine, SessionPolicy
from corral.record import RecordLog, read_events
from corral.redact import Redactor
from corral.sandbox.base import Sandbox
from corral.schema.events import Event, Payload
from corral.schema.messages import Message, ModelRequest
from corral.schema.patch import Patch
from corral.schema.policy import Approver, Mode, PolicySession, Preset
from corral.tools import OutputStore, ToolTimeouts


def call(name: str, /, **arguments: Any) -> ScriptedCall:
    return ScriptedCall(name=name, arguments=arguments)


def says(*calls: ScriptedCall, text: str = "", **more: Any) -> ScriptedReply:
    return ScriptedReply(text=text, calls=calls, **more)


def finish(summary: str = "done") -> ScriptedCall:
    return call("finish", summary=summary)


@dataclass
class Done:
    """A run that is over, and everything that can be asked about it."""

    outcome: Outcome
    box: LifeBox
    events: list[Event]
    model: ModelClient

    @property
    def end(self) -> tuple[str, str]:
        return self.outcome.ending.reason.value, self.outcome.ending.summary

    def payloads(self, kind: type[Payload]) -> list[Any]:
        return [event.payload for event in self.events if isinstance(event.payload, kind)]

    @property
    def requests(self) -> list[ModelRequest]:
        assert isinstance(self.model, ScriptedModel)
        return self.model.requests

    @property
    def seen(self) -> list[Message]:
        """The conversation of the last request."""
        return list(self.requests[-1].messages)

    @property
    def told(self) -> list[str]:
        """How each call of it was answered: the lines that are corral's own word."""
        return [message.content for message in self.seen if message.call_id]


RunAgent = Callable[..., Any]


@pytest.fixture
def run_agent(tmp_path: Path) -> Iterator[RunAgent]:
    logs: list[RecordLog] = []

    async def run(
        replies: Sequence[ScriptedReply] | ModelClient,
        *,
        box: LifeBox | None = None,
        files: dict[str, bytes] | None = None,
        limits: Limits | None = None,
        preset: Preset = Preset.AUTO,
        mode: Mode = Mode.BUILD,
        until: str | None = None,
        approver: Approver | None = None,
        clock: Callable[[], float] | None = None,
        task: str = "mend it",
        redactor: Redactor | None = None,
        timeouts_s: float = 5.0,
    ) -> Done:
        box = box or LifeBox()
        box.files.update(files or {})
        model = ScriptedModel(replies) if isinstance(replies, Sequence) else replies
        path = tmp_path / f"record-{len(logs)}.jsonl"
        log = RecordLog.open(path, redactor=redactor)
        logs.append(log)
        session = AgentSession(
            task=task,
            client=model,
            decider=SessionPolicy(
                PolicyEngine.load_preset(preset), PolicySession(id="run-1", preset=preset, mode=mode)
            ),
            record=log,
            outputs=OutputStore(tmp_path / f"outputs-{len(logs)}"),
            current_diff=no_diff,
            mount_point="/workspace",
            limits=replace(limits or Limits()),
            mode=mode,
            until=until,
            approver=approver,
            timeouts=ToolTimeouts(file_s=timeouts_s),
            redactor=redactor or Redactor(),
            clock=clock or time.monotonic,
        )
        started = describe_start(run_id="run-1", door="run", goal="mend it", workspace="/w")
        run = Run(log, box, no_patch, started)  # type: ignore[arg-type]
        outcome = await run.execute(session, spent=session.spent, ahead=session.ask_ahead(box))  # type: ignore[arg-type]
        return Done(outcome, box, [one for one in read_events(path) if isinstance(one, Event)], model)

    yield run
    for log in logs:
        log.close()


async def no_diff(sandbox: Sandbox) -> str:
    return ""


async def no_patch(sandbox: Sandbox) -> Patch | None:
    return None
