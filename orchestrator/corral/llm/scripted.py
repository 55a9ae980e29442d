"""A model that says what a script tells it to, and checks what it is shown: runs and tests without a key or a network.

{"replies": [
    {"text": "I look first.", "calls": [{"name": "read_file", "arguments": {"path": "a.py"}}]},
    {"expect": {"last_contains": ["def add"]}, "calls": [{"name": "finish", "arguments": {"summary": "done"}}]}
]}
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from corral.errors import ConfigError, ModelError
from corral.llm.client import OnText
from corral.llm.parsing.arguments import parse_arguments
from corral.llm.wire import estimate_tokens
from corral.schema.messages import FinishReason, ModelReply, ModelRequest, Usage
from corral.schema.tools import Frozen, ToolCall
from corral.schema.visible import visible

_MAX_SCRIPT_BYTES = 16 << 20


class ScriptedCall(Frozen):
    """A call the script proposes; `raw` instead of `arguments` is text as a careless model writes it."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    raw: str | None = None
    id: str = ""


class Expectation(Frozen):
    """What the request must hold, or the run fails with ModelError code `script`."""

    contains: tuple[str, ...] = ()  # somewhere in the conversation
    lacks: tuple[str, ...] = ()  # nowhere in the conversation
    last_contains: tuple[str, ...] = ()  # in the last message
    last_lacks: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None  # exactly these, in any order


class ScriptedError(Frozen):
    code: str
    message: str = "as scripted"


class ScriptedReply(Frozen):
    """One answer. With `error` the request fails instead."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    expect: Expectation = Field(default_factory=Expectation)
    error: ScriptedError | None = None
    usage: Usage | None = None
    cost_usd: float | None = 0.0
    delay_s: float = 0.0


class Script(Frozen):
    """`at_end` says what happens when the replies are used up: `fail`, or the last one is given again and again."""

    replies: tuple[ScriptedReply, ...] = Field(min_length=1)
    at_end: Literal["fail", "repeat"] = "fail"
    model: str = "scripted"


class ScriptedModel:
    """Holds to ModelClient. `requests` keeps what it was asked, for tests."""

    def __init__(self, script: Script | Sequence[ScriptedReply]) -> None:
        self._script = script if isinstance(script, Script) else Script(replies=tuple(script))
        self._calls = 0
        self.requests: list[ModelRequest] = []

    @property
    def name(self) -> str:
        return self._script.model

    @property
    def endpoint(self) -> str:
        return ""

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        position = len(self.requests)
        self.requests.append(request)
        replies = self._script.replies
        if position >= len(replies) and self._script.at_end == "fail":
            raise ModelError(
                f"the script has {len(replies)} replies, and the run asks for one more",
                hint="end the script with a call of finish, or set at_end to repeat",
                code="script",
            )
        reply = replies[min(position, len(replies) - 1)]
        if (missed := find_miss(reply.expect, request)) is not None:
            raise ModelError(f"reply {position + 1} of the script: {missed}", code="script")
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        if reply.error is not None:
            raise ModelError(reply.error.message, code=reply.error.code)
        if on_text is not None and reply.text:
            on_text(reply.text)
        return self._answer(reply, request)

    async def close(self) -> None:
        return None

    def _answer(self, reply: ScriptedReply, request: ModelRequest) -> ModelReply:
        estimate = Usage(
            input_tokens=estimate_tokens(request), output_tokens=len(reply.text) // 4 + 16 * len(reply.calls) + 1
        )
        return ModelReply(
            model=self.name,
            text=reply.text,
            calls=tuple(self._propose(call) for call in reply.calls),
            reasoning=reply.reasoning,
            finish=FinishReason.CALLS if reply.calls else FinishReason.STOP,
            usage=reply.usage or estimate.model_copy(update={"reported": False}),
            cost_usd=reply.cost_usd,
        )

    def _propose(self, call: ScriptedCall) -> ToolCall:
        self._calls += 1
        arguments, problem = (call.arguments, None) if call.raw is None else parse_arguments(call.raw)
        return ToolCall(id=call.id or f"call_{self._calls}", name=call.name, arguments=arguments, problem=problem)


def find_miss(expect: Expectation, request: ModelRequest) -> str | None:
    """What the request lacks, or has and should not; None when all is as expected."""
    texts = [message.content for message in request.messages]
    whole, last = "\n".join(texts), texts[-1] if texts else ""
    for where, text, wanted, unwanted in (
        ("the conversation", whole, expect.contains, expect.lacks),
        ("the last message", last, expect.last_contains, expect.last_lacks),
    ):
        for part in wanted:
            if part not in text:
                return f"{where} should have {part!r}; the last message is {visible(last, limit=300)!r}"
        for part in unwanted:
            if part in text:
                return f"{where} should not have {part!r}"
    names = sorted(tool.name for tool in request.tools)
    if expect.tools is not None and names != sorted(expect.tools):
        return f"the tools should be {sorted(expect.tools)}, they are {names}"
    return None


def load_script(path: Path) -> Script:
    """The script in a JSON file. Raises ConfigError naming the field."""
    try:
        if path.stat().st_size > _MAX_SCRIPT_BYTES:
            raise ConfigError(f"the script {str(path)!r} is over {_MAX_SCRIPT_BYTES >> 20} MiB")
        return Script.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"the script {str(path)!r} cannot be read: {error.strerror}",
            hint="--model scripted:FILE names a JSON file; docs/reference/script.md has its fields",
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(
            f"the script {str(path)!r}: {where}: {first['msg']}", hint="docs/reference/script.md has the fields"
        ) from None
