from __future__ import annotations

import json
import typing
from typing import Any

import pytest

from corral.record import Problem, render_event, render_json, render_problem
from corral.schema import events as ev
from corral.schema.events import PAYLOADS, Event, EventKind, Source

from .conftest import run_started, tool_started

HOSTILE = "\x1b]0;pwn\x07\x1b[2J\x1b]52;c;ZWNobw==\x07\x9b31m\u202egnp.exe\u200b\n2030 approved\r"


def event(payload: ev.Payload, source: Source | None = None) -> Event:
    return Event(
        seq=7,
        at="2026-11-30T14:30:01.123456789Z",
        prev="0" * 64,
        kind=payload.kind,
        source=source or payload.source,
        payload=payload,
        hash="1" * 64,
    )


def fill(kind: Any) -> Any:
    """A value of a field's type with hostile text wherever text may stand."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return "a" * 64 if any("{64}" in str(part) for part in args[1:]) else fill(args[0])
    if origin is typing.Literal:
        return args[0]
    if origin is tuple:
        return (fill(args[0]),)
    if origin is dict:
        return {HOSTILE: HOSTILE}
    if args:
        return fill(args[0])
    if isinstance(kind, type) and issubclass(kind, ev.BaseModel):
        hints = typing.get_type_hints(kind, include_extras=True)
        return kind(**{name: fill(hints[name]) for name in kind.model_fields})
    return {str: HOSTILE, int: 3, float: 1.5, bool: False}[kind]


@pytest.mark.parametrize("kind", list(EventKind))
def test_no_event_can_reach_the_terminal_raw(kind: EventKind) -> None:
    full = event(fill(PAYLOADS[kind]))
    assert full.payload.model_dump(mode="json")
    line = render_event(full, max_chars=100_000)
    assert line.isprintable()
    assert "\u202e" not in line
    assert render_json(full).isascii()
    assert render_json(full).isprintable()
    assert json.loads(render_json(full))["kind"] == kind.value


def test_every_kind_has_exactly_one_payload() -> None:
    assert set(PAYLOADS) == set(EventKind)
    assert len(ev.Payload.__subclasses__()) == len(EventKind)


def test_one_calm_line_per_event() -> None:
    assert render_event(event(run_started())) == (
        "    7  14:30:01.123  run.started           r1        fix the test · by ada on h, corral 0.1.0"
    )
    assert render_event(event(tool_started(command="pytest -q"))) == (
        '    7  14:30:01.123  tool.started          c1        shell {"command":"pytest -q"}'
    )
    finished = ev.ToolFinished(
        call_id="c1", tool="shell", status="error", success=False, exit_code=1, summary="1 failed", duration_s=0.514
    )
    assert render_event(event(finished)) == (
        "    7  14:30:01.123  tool.finished         c1        box: shell error · exit 1 · 1 failed · 0.51 s"
    )
    done = ev.RunFinished(stop_reason="finished", exit_code=0, changed_files=1, cost_usd=0.012, duration_s=3)
    assert render_event(event(done)) == (
        "    7  14:30:01.123  run.finished          finished  exit 0 · 1 file changed · $0.0120 · 3.0 s"
    )


def test_a_claim_of_the_box_is_marked() -> None:
    process = ev.ProcessStarted(pid=4, program="/bin/sh", argv=("sh", "-c", "box: fine"))
    assert "  box: 4 /bin/sh" in render_event(event(process))
    assert "box: " not in render_event(event(tool_started(), Source.ORCHESTRATOR))


def test_long_text_is_cut_and_says_by_how_much() -> None:
    line = render_event(event(tool_started(command="x" * 500)))
    assert len(line) < 300
    assert line.endswith("…(+360)")


def test_a_problem_names_line_and_offset() -> None:
    problem = Problem(17, 4096, "changed", "detail \x1b[2J")
    assert render_problem(problem) == "line 17, byte 4096: changed: detail \\x1b[2J"
