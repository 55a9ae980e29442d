"""A run's state as a fold over its events: what the prompt's ledger, `corral runs`, status and resume are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

from corral.record.reader import read_events
from corral.schema import events as ev
from corral.schema.events import Event, Payload
from corral.schema.tools import ToolStatus


@dataclass(frozen=True, slots=True)
class Action:
    """One tool call: what was asked, how it ended. Without an end its status is `unknown_state`."""

    call_id: str
    tool: str
    step: int
    arguments: dict[str, Any]
    started_at: str
    status: ToolStatus = ToolStatus.UNKNOWN_STATE
    summary: str = ""
    error_code: str = ""
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Spend:
    """What the models used. `cost_usd` sums the known prices; `unpriced` counts the answers without one."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything the record says about a run. `started` is None for a record without its first event."""

    started: ev.RunStarted | None = None
    started_at: str = ""
    last_at: str = ""
    events: int = 0
    step: int = 0
    plan: ev.PlanCreated | None = None
    actions: tuple[Action, ...] = ()
    in_flight: tuple[Action, ...] = ()
    """Started and not finished: running now, or of unknown state when the run is not alive."""
    open_approvals: tuple[ev.ApprovalAsked, ...] = ()
    changed_files: tuple[str, ...] = ()
    """As the patch says; before there is one, as the calls say."""
    cwd: str = ""
    hosts: tuple[str, ...] = ()
    decisions: dict[str, int] = field(default_factory=dict)
    """How often policy said allow, ask, deny."""
    errors: dict[str, int] = field(default_factory=dict)
    """By error code."""
    guards: dict[str, int] = field(default_factory=dict)
    spend: Spend = field(default_factory=Spend)
    processes: int = 0
    connections: int = 0
    checkpoints: tuple[str, ...] = ()
    patch: ev.PatchMade | None = None
    applied: bool = False
    recovered: int = 0
    """How often the end of the record was torn."""
    box: ev.Box | None = None
    finished: ev.RunFinished | None = None
    finished_at: str = ""


class Ledger:
    """Takes events one by one and gives the state so far. No clock, no file: the same events give the same state."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}
        self._actions: dict[str, Action] = {}
        self._done: list[Action] = []
        self._approvals: dict[str, ev.ApprovalAsked] = {}
        self._touched: dict[str, None] = {}
        self._hosts: dict[str, None] = {}
        self._checkpoints: list[str] = []
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in ("decisions", "errors", "guards", "seen")}
        self._spend = Spend()

    def add(self, event: Event) -> None:
        self._counts["seen"]["events"] += 1
        self._facts["last_at"] = event.at
        step = getattr(event.payload, "step", 0)
        self._facts["step"] = max(self._facts.get("step", 0), step)
        self._take(event.payload, event)

    def state(self) -> RunState:
        seen = self._counts["seen"]
        patch: ev.PatchMade | None = self._facts.get("patch")
        return RunState(
            events=seen["events"],
            processes=seen["processes"],
            connections=seen["connections"],
            recovered=seen["recovered"],
            actions=(*self._done, *self._actions.values()),
            in_flight=tuple(self._actions.values()),
            open_approvals=tuple(self._approvals.values()),
            changed_files=tuple(file.path for file in patch.files) if patch else tuple(self._touched),
            hosts=tuple(self._hosts),
            checkpoints=tuple(self._checkpoints),
            decisions=dict(self._counts["decisions"]),
            errors=dict(self._counts["errors"]),
            guards=dict(self._counts["guards"]),
            spend=self._spend,
            **self._facts,
        )

    @singledispatchmethod
    def _take(self, payload: Payload, event: Event) -> None:
        """Kinds without a method below change nothing but the counters."""

    @_take.register
    def _(self, payload: ev.RunStarted, event: Event) -> None:
        self._facts.update(started=payload, started_at=event.at, box=payload.box)

    @_take.register
    def _(self, payload: ev.RunFinished, event: Event) -> None:
        self._facts.update(finished=payload, finished_at=event.at)
        if payload.box is not None:
            self._facts["box"] = payload.box

    @_take.register
    def _(self, payload: ev.PlanCreated, event: Event) -> None:
        self._facts["plan"] = payload

    @_take.register
    def _(self, payload: ev.ModelAnswered, event: Event) -> None:
        spend, tokens = self._spend, payload.tokens
        self._spend = Spend(
            requests=spend.requests + 1,
            input_tokens=spend.input_tokens + tokens.input,
            output_tokens=spend.output_tokens + tokens.output,
            cached_tokens=spend.cached_tokens + tokens.cached,
            cost_usd=spend.cost_usd + (payload.cost_usd or 0.0),
            unpriced=spend.unpriced + (payload.cost_usd is None),
        )

    @_take.register
    def _(self, payload: ev.CallDecided, event: Event) -> None:
        self._counts["decisions"][payload.effect] += 1

    @_take.register
    def _(self, payload: ev.ApprovalAsked, event: Event) -> None:
        self._approvals[payload.call_id] = payload

    @_take.register
    def _(self, payload: ev.ApprovalAnswered, event: Event) -> None:
        self._approvals.pop(payload.call_id, None)

    @_take.register
    def _(self, payload: ev.ToolStarted, event: Event) -> None:
        self._actions[payload.call_id] = Action(
            call_id=payload.call_id,
            tool=payload.tool,
            step=payload.step,
            arguments=payload.arguments,
            started_at=event.at,
        )

    @_take.register
    def _(self, payload: ev.ToolFinished, event: Event) -> None:
        started = self._actions.pop(payload.call_id, None)
        self._done.append(
            Action(
                call_id=payload.call_id,
                tool=payload.tool,
                step=payload.step,
                arguments=started.arguments if started else {},
                started_at=started.started_at if started else event.at,
                status=_parse_status(payload.status),
                summary=payload.summary,
                error_code=payload.error.code if payload.error else "",
                duration_s=payload.duration_s,
            )
        )
        self._touched.update(dict.fromkeys(payload.touched))
        if payload.cwd:
            self._facts["cwd"] = payload.cwd
        if payload.error is not None:
            self._counts["errors"][payload.error.code] += 1

    @_take.register
    def _(self, payload: ev.ProcessStarted, event: Event) -> None:
        self._counts["seen"]["processes"] += 1

    @_take.register
    def _(self, payload: ev.ConnectionAttempted, event: Event) -> None:
        self._counts["seen"]["connections"] += 1
        if payload.allowed:
            self._hosts[payload.host] = None

    @_take.register
    def _(self, payload: ev.CheckpointMade, event: Event) -> None:
        self._checkpoints.append(payload.checkpoint_id)

    @_take.register
    def _(self, payload: ev.PatchMade, event: Event) -> None:
        self._facts["patch"] = payload

    @_take.register
    def _(self, payload: ev.PatchApplied, event: Event) -> None:
        self._facts["applied"] = True

    @_take.register
    def _(self, payload: ev.GuardTripped, event: Event) -> None:
        self._counts["guards"][payload.guard] += 1

    @_take.register
    def _(self, payload: ev.ErrorRaised, event: Event) -> None:
        self._counts["errors"][payload.error.code] += 1

    @_take.register
    def _(self, payload: ev.LogRecovered, event: Event) -> None:
        self._counts["seen"]["recovered"] += 1


def _parse_status(status: str) -> ToolStatus:
    try:
        return ToolStatus(status)
    except ValueError:
        return ToolStatus.UNKNOWN_STATE


def fold(events: Iterable[Event]) -> RunState:
    """The state after these events."""
    ledger = Ledger()
    for event in events:
        ledger.add(event)
    return ledger.state()


def load_state(path: Path, *, on_problem: Callable[[Any], None] | None = None) -> RunState:
    """The state of the record at `path`, in bounded memory. Damaged lines go to `on_problem`. Raises RecordError."""
    ledger = Ledger()
    for item in read_events(path):
        if isinstance(item, Event):
            ledger.add(item)
        elif on_problem is not None:
            on_problem(item)
    return ledger.state()
