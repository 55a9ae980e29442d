"""The live view of an agent's run: read from the record's events as they are written."""

from __future__ import annotations

import textwrap

from corral.cli.network import Forwards
from corral.cli.output import note, paint, print_line
from corral.record import render_json
from corral.sandbox.base import BoxInfo
from corral.schema.events import (
    ApprovalAnswered,
    CallDecided,
    Event,
    GuardTripped,
    ModelAnswered,
    NetworkChanged,
    ToolFinished,
    ToolStarted,
)
from corral.schema.visible import visible

_LINE = 110
_FIRST = ("path", "source", "target", "command", "pattern")
_TEXT_LINES = 6


def print_event(event: Event) -> None:
    """For programs: the event itself, as one line of JSON."""
    print_line(render_json(event))


class LiveView:
    """For people: what it says, what it does, how it was judged, what came of it, what it cost."""

    def __init__(self) -> None:
        self._cost_usd = 0.0
        self._forwards = Forwards()

    def box(self, box: BoxInfo) -> None:
        network = "no network" if box.network == "none" else "network by its list"
        note(f"{paint('box', 'cyan')} ready in {box.start_s:.1f} s · {box.mode.value} · {network}")

    def event(self, event: Event) -> None:
        match event.payload:
            case ModelAnswered() as answer:
                self._answer(answer)
            case ToolStarted() as started:
                note(f"  {paint('▸', 'cyan')} {paint(started.tool, 'bold')} {_describe_arguments(started.arguments)}")
            case CallDecided(effect="deny" | "ask") as decided:
                mark = paint(decided.effect, "yellow")
                note(f"  {mark} {decided.tool}: {visible(decided.reason, limit=_LINE)}")
            case ApprovalAnswered() as answered:
                note(f"  {'approved' if answered.approved else paint('not approved', 'yellow')}")
            case GuardTripped() as guard:
                note(f"  {paint(guard.guard, 'yellow')}: {guard.action} {visible(guard.reason, limit=_LINE)}")
            case ToolFinished() as finished:
                self._finished(finished)
            case NetworkChanged():
                self._forwards.event(event)
            case _:
                pass

    def _answer(self, answer: ModelAnswered) -> None:
        self._cost_usd += answer.cost_usd or 0.0
        cost = f" · ${self._cost_usd:.4f}" if self._cost_usd else ""
        note(paint(f"step {answer.step} · {visible(answer.model, limit=60)} · {answer.latency_s:.1f} s{cost}", "dim"))
        if answer.text.strip():
            lines = textwrap.wrap(visible(answer.text.strip(), keep="\n"), _LINE) or [""]
            for line in lines[:_TEXT_LINES]:
                note(f"  {line}")
            if len(lines) > _TEXT_LINES:
                note("  ...")

    def _finished(self, finished: ToolFinished) -> None:
        mark = paint("✓", "green") if finished.success else paint("✗", "red")
        words = finished.summary or finished.status
        note(f"    {mark} {visible(words, limit=_LINE)} {paint(f'{finished.duration_s:.2f} s', 'dim')}")


def _describe_arguments(arguments: dict[str, object]) -> str:
    """The arguments in a line: a single one bare, more by name, what it is about first."""
    if len(arguments) == 1:
        return visible(str(next(iter(arguments.values()))), limit=_LINE)
    return visible(", ".join(f"{name}: {value}" for name, value in sorted(arguments.items(), key=_rank)), limit=_LINE)


def _rank(argument: tuple[str, object]) -> tuple[int, str]:
    name = argument[0]
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)
