"""One request to the model and its answer, both in the record: what it saw, what it said, what it cost."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

from corral.agent.transcript import Transcript
from corral.errors import ModelError
from corral.llm.wire import digest_request, digest_shape
from corral.redact import Redactor
from corral.schema.events import (
    ErrorFacts,
    ErrorRaised,
    ModelAnswered,
    ModelCalled,
    ProposedCall,
    SeenMessage,
    Tokens,
)
from corral.schema.messages import Message, ModelReply, ModelRequest, Role
from corral.schema.tools import ToolCall, ToolSpec
from corral.tools.base import Recorder


class ModelClient(Protocol):
    """What the loop needs of a model; corral.llm has the real ones."""

    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> str: ...

    async def complete(self, request: ModelRequest) -> ModelReply: ...


@dataclass
class Ask:
    """Sends the transcript. Only messages that were in no earlier request are written into the record again."""

    client: ModelClient
    tools: tuple[ToolSpec, ...]
    recorder: Recorder
    redactor: Redactor = field(default_factory=Redactor)
    max_output_tokens: int | None = None
    _messages: list[Message] = field(default_factory=list, init=False)  # of the transcript, as they are sent
    _step: int = field(default=0, init=False)
    _recorded: int = field(default=0, init=False)

    async def __call__(self, transcript: Transcript, status: str, may_call: bool) -> ModelReply:
        """Raises ModelError, which is in the record by then."""
        self._step += 1
        # SECURITY: the last door before a model; test_no_message_takes_a_secret_to_a_model
        self._messages += [_mask(self.redactor, message) for message in transcript.messages[len(self._messages) :]]
        request = self._build(status, may_call)
        request_id = f"r{self._step}"
        await self.recorder.append_async(self._called(request, request_id, status), durable=False)
        try:
            reply = await self.client.complete(request)
        except ModelError as error:
            await self.recorder.append_async(self._failed(error))
            raise
        reply = reply.model_copy(update={"calls": _unique(reply.calls, self._step)})
        await self.recorder.append_async(self._answered(reply, request_id))
        return reply

    def _build(self, status: str, may_call: bool) -> ModelRequest:
        # The status line is the last thing read and is never kept: the next request has its own.
        line = f"[corral: {status}]"
        if not may_call:
            line += " Tools are off now. Say in plain words what was done, what was not, and why."
        *earlier, last = self._messages
        last = last.model_copy(update={"content": f"{last.content}\n\n{line}"})
        return ModelRequest(
            messages=(*earlier, last),
            tools=self.tools if may_call else (),
            max_output_tokens=self.max_output_tokens,
        )

    def _called(self, request: ModelRequest, request_id: str, status: str) -> ModelCalled:
        new = self._messages[self._recorded :]
        self._recorded = len(self._messages)
        return ModelCalled(
            step=self._step,
            request_id=request_id,
            model=self.client.name,
            endpoint=self.client.endpoint,
            request_sha256=digest_request(request),
            shape_sha256=digest_shape(request),
            messages=len(request.messages),
            tools=tuple(spec.name for spec in request.tools),
            added=tuple(_seen(message) for message in new),
            status=status,
            max_output_tokens=request.max_output_tokens,
        )

    def _failed(self, error: ModelError) -> ErrorRaised:
        facts = ErrorFacts(kind="environment", code=error.code, message=error.message, suggestion=error.hint or "")
        return ErrorRaised(error=facts, step=self._step)

    def _answered(self, reply: ModelReply, request_id: str) -> ModelAnswered:
        usage = reply.usage
        return ModelAnswered(
            step=self._step,
            request_id=request_id,
            model=reply.model,
            text=reply.text,
            reasoning=reply.reasoning,
            calls=tuple(
                ProposedCall(
                    id=call.id, name=call.name, arguments=call.arguments, problem=call.problem, repaired=call.repaired
                )
                for call in reply.calls
            ),
            finish=reply.finish.value,
            tokens=Tokens(
                input=usage.input_tokens,
                output=usage.output_tokens,
                cached=usage.cached_tokens,
                reported=usage.reported,
            ),
            cost_usd=reply.cost_usd,
            latency_s=round(reply.latency_s, 3),
        )


def _mask(redactor: Redactor, message: Message) -> Message:
    if message.role is Role.ASSISTANT:
        return message  # its own words: it must recognise them, and it has them already
    content = redactor.text(message.content)
    return message if content is message.content else message.model_copy(update={"content": content})


def _seen(message: Message) -> SeenMessage:
    digest = hashlib.sha256(message.content.encode("utf-8", "replace")).hexdigest()
    if message.role in (Role.TOOL, Role.ASSISTANT):
        # Their text stands in tool.finished and model.answered already.
        return SeenMessage(role=message.role.value, call_id=message.call_id, sha256=digest)
    return SeenMessage(role=message.role.value, text=message.content, sha256=digest)


def _unique(calls: tuple[ToolCall, ...], step: int) -> tuple[ToolCall, ...]:
    """Calls with ids that are never empty and never repeat in a run: every answer must find its call."""
    return tuple(call.model_copy(update={"id": f"s{step}-{number}"}) for number, call in enumerate(calls, 1))
