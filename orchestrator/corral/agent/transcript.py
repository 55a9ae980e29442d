"""The conversation as it is kept: every call has exactly one answer, in order, whatever happened to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from corral.schema.messages import Message, ModelReply, Role
from corral.schema.tools import ToolCall, ToolResult, ToolStatus
from corral.tools.result import failed, render_result


@dataclass
class Transcript:
    """Append-only. `messages` is what a request starts with."""

    messages: list[Message] = field(default_factory=list)

    @classmethod
    def begin(cls, system: str, task: str) -> Transcript:
        return cls([Message(role=Role.SYSTEM, content=system), Message(role=Role.USER, content=task)])

    def add_reply(self, reply: ModelReply) -> None:
        """What the model said. An empty answer is kept as such, so that the turns stay in order."""
        self.messages.append(
            Message(role=Role.ASSISTANT, content=reply.text, calls=reply.calls, reasoning=reply.reasoning)
        )

    def add_result(self, call: ToolCall, result: ToolResult) -> None:
        self.messages.append(Message(role=Role.TOOL, content=render_result(result), call_id=call.id))

    def nudge(self, text: str) -> None:
        self.messages.append(Message(role=Role.USER, content=text))


def skipped(reason: str) -> ToolResult:
    """The answer to a call that was not run: providers refuse a history in which one stays open."""
    return failed(
        "skipped", reason, status=ToolStatus.NOT_EXECUTED, kind="parameter", hint="call it again if it is needed"
    )
