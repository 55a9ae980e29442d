"""One calm line per event, for people. Plain text, safe on a terminal: all that is not ours goes through visible."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from corral.record.activity import describe_end
from corral.record.reader import Problem
from corral.schema.events import Event, EventKind, Source, Tokens
from corral.schema.visible import visible

_SUBJECT_CHARS = 40
_TEXT_CHARS = 160


class Shown(NamedTuple):
    """The parts of an event's line, each already safe to print; the CLI may colour them."""

    seq: str
    time: str
    kind: str
    subject: str  # what it is about: a call, a request, a file
    text: str
    claim: bool  # the box's word


def describe_event(event: Event, *, max_chars: int = _TEXT_CHARS) -> Shown:
    subject, text = _DETAILS[event.kind](event.payload)
    return Shown(
        seq=str(event.seq),
        time=visible(event.at[11:23]),
        kind=event.kind.value,
        # SECURITY: text of models and boxes; test_no_event_can_reach_the_terminal_raw
        subject=visible(subject, limit=_SUBJECT_CHARS),
        text=visible(text, limit=max_chars),
        claim=event.source is Source.BOX,
    )


def render_event(event: Event, *, max_chars: int = _TEXT_CHARS) -> str:
    """`    7  14:30:01.123  tool.started          c1        shell {"command":"pytest"}`; the box's word is marked."""
    shown = describe_event(event, max_chars=max_chars)
    claim = "box: " if shown.claim else ""
    return f"{shown.seq:>5}  {shown.time}  {shown.kind:<20}  {shown.subject:<8}  {claim}{shown.text}".rstrip()


def render_problem(problem: Problem) -> str:
    """`line 17, byte 4096: changed: the line is not what its own hash says`."""
    return f"line {problem.line}, byte {problem.offset}: {problem.reason}: {visible(problem.detail, limit=400)}"


def render_json(event: Event) -> str:
    """The event as one line of JSON; ASCII only, so that it is safe on a terminal too."""
    return json.dumps(event.model_dump(mode="json"), ensure_ascii=True, separators=(",", ":"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _join(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _cost(cost_usd: float | None) -> str:
    return "" if cost_usd is None else f"${cost_usd:.4f}"


def _tokens(tokens: Tokens) -> str:
    return f"{tokens.input} in, {tokens.output} out" if tokens.input or tokens.output else ""


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _finished(p: Any) -> tuple[str, str]:
    changed = _plural(p.changed_files, "file") + " changed" if p.changed_files else ""
    incomplete = "" if p.complete else "incomplete"
    text = _join(f"exit {p.exit_code}", p.summary, changed, incomplete, _tokens(p.tokens), _cost(p.cost_usd))
    return p.stop_reason, f"{text} · {p.duration_s:.1f} s"


def _answered(p: Any) -> tuple[str, str]:
    calls = ", ".join(f"{call.name} {_json(call.arguments)}" for call in p.calls)
    return p.request_id, _join(calls, p.text, _tokens(p.tokens), _cost(p.cost_usd), f"{p.latency_s:.1f} s")


def _tool_finished(p: Any) -> tuple[str, str]:
    error = f"{p.error.code}: {p.error.message}" if p.error else ""
    exit_code = "" if p.exit_code is None else f"exit {p.exit_code}"
    signal = "" if p.signal is None else f"signal {p.signal}"
    return p.call_id, _join(
        f"{p.tool} {p.status}", exit_code, signal, p.cause, p.summary or error, f"{p.duration_s:.2f} s"
    )


def _ended(p: Any) -> tuple[str, str]:
    shown = [f"{one.pid} {describe_end(one)}" for one in p.processes[:8]]
    more = len(p.processes) - len(shown)
    return p.call_id, _join(", ".join(shown), f"{more} more" if more > 0 else "")


def _error(p: Any) -> tuple[str, str]:
    return p.error.code, _join(p.error.message, p.error.location, p.error.suggestion, "fatal" if p.fatal else "")


# One entry per kind; a test holds it complete.
_DETAILS: dict[EventKind, Callable[[Any], tuple[str, str]]] = {
    EventKind.RUN_STARTED: lambda p: (
        p.run_id,
        _join(
            p.goal,
            p.model,
            p.mode,
            p.preset,
            p.workspace,
            p.layer,
            f"by {p.actor.name} on {p.host}, corral {p.version}",
        ),
    ),
    EventKind.RUN_FINISHED: _finished,
    EventKind.PLAN_CREATED: lambda p: ("", _join(p.text, *p.steps)),
    EventKind.MODEL_CALLED: lambda p: (p.request_id, _join(p.model, _plural(p.messages, "message"), p.endpoint)),
    EventKind.MODEL_ANSWERED: _answered,
    EventKind.CALL_PARSED: lambda p: (
        p.call_id,
        _join(p.name, p.tool if p.tool != p.name else "", p.format, p.problem or "", "repaired" if p.repaired else ""),
    ),
    EventKind.CALL_DECIDED: lambda p: (
        p.call_id,
        _join(f"{p.effect} {p.tool}", p.reason, ", ".join(p.rules), "observed only" if p.observed else ""),
    ),
    EventKind.APPROVAL_ASKED: lambda p: (p.call_id, _join(p.tool, p.reason, p.channel)),
    EventKind.APPROVAL_ANSWERED: lambda p: (
        p.call_id,
        _join("yes" if p.approved else "no", p.scope, p.actor.name if p.actor else "nobody there", p.reason),
    ),
    EventKind.TOOL_STARTED: lambda p: (p.call_id, f"{p.tool} {_json(p.arguments)}"),
    EventKind.TOOL_FINISHED: _tool_finished,
    EventKind.PROCESS_STARTED: lambda p: (p.call_id, _join(f"{p.pid} {p.program} {_json(list(p.argv))}", p.mark)),
    EventKind.PROCESS_ENDED: _ended,
    EventKind.CONNECTION_ATTEMPTED: lambda p: (
        p.connection or p.call_id,
        _join(
            f"{p.scheme} {p.host}:{p.port}"
            if p.connection
            else f"{p.pid} {p.operation} {p.protocol} {p.host}:{p.port}",
            p.method,
            "allowed" if p.allowed else p.outcome,
            p.reason,
            f"with {', '.join(p.secrets)}" if p.secrets else "",
        ),
    ),
    EventKind.CONNECTION_ENDED: lambda p: (
        p.connection,
        _join(p.outcome, p.reason, p.address, f"{p.bytes_in} bytes in, {p.bytes_out} out", f"{p.duration_s:.2f} s"),
    ),
    EventKind.NETWORK_CHANGED: lambda p: (
        p.phase,
        _join(
            ", ".join(p.profiles),
            ", ".join(p.hosts) or "no host",
            f"secrets: {', '.join(p.secrets)}" if p.secrets else "",
            f"forwards: {', '.join(p.forwards)}" if p.forwards else "",
            f"{_plural(p.cut, 'connection')} cut" if p.cut else "",
        ),
    ),
    EventKind.CHECKPOINT_MADE: lambda p: (p.checkpoint_id, _join(p.name, p.reason)),
    EventKind.CONTEXT_COMPACTED: lambda p: (
        p.level,
        _join(f"{p.tokens_before} to {p.tokens_after} tokens", _plural(p.dropped_messages, "message") + " dropped"),
    ),
    EventKind.PATCH_MADE: lambda p: (
        p.sha256[:12],
        _join(
            _plural(max(p.file_count, len(p.files)), "file"),
            ", ".join(file.path for file in p.files[:8]),
            f"{len(p.not_exported)} not exported" if p.not_exported else "",
            "" if p.complete else "incomplete",
        ),
    ),
    EventKind.PATCH_REVIEWED: lambda p: (
        p.sha256[:12],
        _join("accepted" if p.accepted else "refused", p.path, p.reason, ", ".join(p.findings)),
    ),
    EventKind.PATCH_APPLIED: lambda p: (p.sha256[:12], _join(_plural(p.files, "file"), p.workspace, p.method)),
    EventKind.GUARD_TRIPPED: lambda p: (p.call_id, _join(p.guard, p.action, p.reason)),
    EventKind.ERROR_RAISED: _error,
    EventKind.LOG_RECOVERED: lambda p: (
        "",
        _join(f"{p.torn_bytes} torn bytes moved aside after {_plural(p.kept_events, 'event')}", p.torn_file),
    ),
}
