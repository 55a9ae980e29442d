"""`corral demo`: corral at work on repositories made for it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.output import note, paint, print_json, print_line
from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.demo import FixReport
    from corral.sandbox.base import BoxInfo
    from corral.schema.events import Event

_DIFF_LINES = 60
_TEST_LINES = ("FAIL:", "ERROR:", "Ran ", "OK", "FAILED")
"""What is shown of the tests' output; nothing is decided by it."""


def demo(*, json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """See corral work: failing tests, an agent that fixes them in a box, a patch, the tests again, the record.

    It needs no key and no network: without a configured model the agent's answers are scripted, and it says so. Exits
    with 0 only if every step held.

    Parameters
    ----------
    json
        One JSON object on stdout instead of the steps.
    """
    return _demo_fix(as_json=json)


def _demo_fix(*, as_json: bool) -> int:
    from corral.cli.interrupt import cancel_on_signals  # late: start-up time
    from corral.config import load_settings
    from corral.demo import FixDemo, choose_model, copied_example, require_image

    settings = load_settings()
    require_image(settings, lambda line: note(f"  {visible(line)}"))
    model = choose_model(settings, os.environ)
    with copied_example("demo") as workspace:
        view = SilentView() if as_json else StepView()
        report = asyncio.run(cancel_on_signals(FixDemo(workspace, model, view).run()))
    if as_json:
        print_json(_to_json(report))
    else:
        _show_end(report)
    return 0 if report.held else 1


def _show_end(report: FixReport) -> None:
    note()
    if report.run_dir is not None:
        note(f"  kept: {report.run_dir}")
        note(f"  read: corral log show {report.run_id}")
        note(f"  the copy is removed; remove the runs with corral runs rm {_run_ids(report)}")
    last = report.steps[-1]
    if report.held:
        print_line("every step held: red, fixed, patched, green, on record")
    else:
        print_line(f"NOT as it should be: step {len(report.steps)}, {last.name}: {visible(last.detail)}")


def _run_ids(report: FixReport) -> str:
    return " ".join(dict.fromkeys(step.run_id for step in report.steps if step.run_id))


def _to_json(report: FixReport) -> dict[str, object]:
    return {
        "ok": report.held,
        "model": report.model,
        "scripted": report.is_scripted,
        "cost_usd": report.cost_usd,
        "steps": [
            {"step": step.name, "held": step.held, "detail": step.detail, "run": step.run_id or None}
            for step in report.steps
        ],
        "run": report.run_id or None,
        "run_dir": str(report.run_dir) if report.run_dir else None,
    }


class StepView:
    """For people, on stderr: numbered steps, the agent's moves as `corral run` shows them, the diff."""

    def __init__(self) -> None:
        from corral.cli.live import LiveView  # late: start-up time

        self._number = 0
        self._live = LiveView()
        self.watch = self._watch

    def begin(self, title: str) -> None:
        self._number += 1
        note()
        note(f"{paint(str(self._number), 'cyan')} {paint(title, 'bold')}")

    def say(self, text: str, *, is_good: bool | None = None) -> None:
        mark = {None: " ", True: paint("✓", "green"), False: paint("✗", "red")}[is_good]
        note(f"{mark} {visible(text)}")

    def box(self, box: BoxInfo) -> None:
        self._live.box(box)

    def output(self, data: bytes) -> None:
        for line in data.decode("utf-8", "replace").splitlines():
            if line.startswith(_TEST_LINES):
                note(paint(f"    {visible(line, limit=200)}", "dim"))

    def diff(self, patch: bytes) -> None:
        lines = patch.decode("utf-8", "surrogateescape").split("\n")
        for line in lines[:_DIFF_LINES]:
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
            note(f"    {paint(visible(line, limit=500), style)}" if line else "")
        if len(lines) > _DIFF_LINES:
            note(f"    ... and {len(lines) - _DIFF_LINES} more lines")

    def _watch(self, event: Event) -> None:
        self._live.event(event)


class SilentView:
    """For programs: the report says it all."""

    watch = None

    def begin(self, title: str) -> None:
        pass

    def say(self, text: str, *, is_good: bool | None = None) -> None:
        pass

    def box(self, box: BoxInfo) -> None:
        pass

    def output(self, data: bytes) -> None:
        pass

    def diff(self, patch: bytes) -> None:
        pass
