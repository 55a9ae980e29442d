"""What the executor writes into the record about one call: each step as its event."""

from __future__ import annotations

import json
from typing import Literal

from corral.schema.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallDecided,
    CallParsed,
    ErrorFacts,
    Payload,
    Source,
    ToolFinished,
    ToolStarted,
)
from corral.schema.policy import ApprovalAnswer, ApprovalRequest, Decision, Effect
from corral.schema.text import digest
from corral.schema.tools import SideEffect, ToolCall, ToolResult, ToolSpec
from corral.tools.base import Arguments, Recorder

_EFFECTS: dict[Effect, Literal["allow", "ask", "deny"]] = {
    Effect.ALLOW: "allow",
    Effect.ALLOW_AFTER_CHECKPOINT: "allow",
    Effect.ASK: "ask",
    Effect.DENY: "deny",
}

_CANONICAL = json.JSONEncoder(sort_keys=True)
"""One form of the same arguments, for their digest."""


class CallTrail:
    """The events of one call, in order. Durable where an effect follows or has just happened.

    What was parsed and decided goes into the record with the event that follows: one write instead of three.
    """

    def __init__(self, recorder: Recorder, call: ToolCall, step: int) -> None:
        self._recorder = recorder
        self._call = call
        self._step = step
        self._tool = call.name
        self._started: ToolSpec | None = None
        self._arguments_sha256 = ""
        self._unwritten: list[Payload] = []

    async def _write(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> None:
        unwritten, self._unwritten = self._unwritten, []
        await self._recorder.append_async(*unwritten, payload, source=source, durable=durable)

    async def settle(self) -> None:
        """Write what no later event has taken along: something broke in between."""
        unwritten, self._unwritten = self._unwritten, []
        if unwritten:
            await self._recorder.append_async(*unwritten, durable=False)

    def parsed(self, spec: ToolSpec | None, arguments: Arguments, problem: str | None) -> None:
        if spec is not None:
            self._tool = spec.name
        self._arguments_sha256 = digest(_CANONICAL.encode(arguments))
        self._unwritten.append(
            CallParsed(
                step=self._step,
                call_id=self._call.id,
                name=self._call.name,
                tool=spec.name if spec else "",
                arguments_sha256=self._arguments_sha256,
                repaired=self._call.repaired,
                problem=problem,
            )
        )

    def decided(self, spec: ToolSpec, decision: Decision) -> None:
        checkpoint = decision.effect is Effect.ALLOW_AFTER_CHECKPOINT
        self._unwritten.append(
            CallDecided(
                step=self._step,
                call_id=self._call.id,
                tool=spec.name,
                effect=_EFFECTS[decision.effect],
                rules=decision.rules,
                reason=decision.reason,
                hint=decision.hint,
                duties=("checkpoint",) if checkpoint else (),
                side_effect=spec.side_effect.value,
                arguments_sha256=self._arguments_sha256,
                programs=decision.programs,
                unknown=decision.unknown,
                paths=decision.paths,
                hosts=decision.hosts,
                policy=decision.policy_version,
            )
        )

    async def asked(self, request: ApprovalRequest, wait_s: float) -> None:
        await self._write(
            ApprovalAsked(
                call_id=self._call.id,
                tool=request.call.name,
                digest=request.digest,
                reason=request.decision.reason,
                preview=json.dumps(request.call.arguments, ensure_ascii=False),
                wait_s=wait_s,
            )
        )

    async def answered(self, request: ApprovalRequest, answer: ApprovalAnswer, waited_s: float) -> None:
        await self._write(
            ApprovalAnswered(
                call_id=self._call.id,
                digest=request.digest,
                approved=answer.covers(request),
                reason=" ".join(filter(None, (answer.by, answer.reason))),
                waited_s=waited_s,
            )
        )

    async def started(self, spec: ToolSpec, arguments: Arguments, *, cwd: str, limit_s: float, durable: bool) -> None:
        await self._write(
            ToolStarted(
                step=self._step,
                call_id=self._call.id,
                tool=spec.name,
                arguments=arguments,
                arguments_sha256=self._arguments_sha256,
                side_effect=spec.side_effect.value,
                cwd=cwd,
                timeout_s=limit_s,
            ),
            durable=durable,
        )
        self._started = spec

    async def finished(self, result: ToolResult) -> None:
        ran = self._started
        await self._write(
            self._describe(result),
            # A refusal is our word; what a tool brought back is the box's.
            source=Source.BOX if ran and ran.scope != "session" else Source.ORCHESTRATOR,
            # What stays in the box may share the next event's sync: a power cut makes it `unknown_state`, never undone.
            durable=ran is not None and ran.side_effect in (SideEffect.EXTERNAL_WRITE, SideEffect.IRREVERSIBLE),
        )

    def _describe(self, result: ToolResult) -> ToolFinished:
        data = dict(result.data)
        size = len(result.output.encode("utf-8", "replace"))
        cut = result.truncation
        return ToolFinished(
            step=self._step,
            call_id=self._call.id,
            tool=self._tool,
            status=result.status.value,
            success=result.success,
            summary=result.summary,
            output=result.output,
            output_sha256=digest(result.output),
            output_bytes=cut.total_bytes if cut else size,
            output_at=cut.full_at if cut else "",
            error=ErrorFacts(**result.error.model_dump()) if result.error else None,
            exit_code=data.pop("exit_code", None),
            signal=data.pop("signal", None),
            cause=data.pop("cause", ""),
            cwd=data.pop("cwd", ""),
            touched=tuple(artifact.path for artifact in result.artifacts),
            duration_s=result.duration_s,
            resources=result.resources,
            facts=data,
        )
