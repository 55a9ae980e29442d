"""`corral demo`: corral at work on repositories made for it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.output import note, paint, print_json, print_line
from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.agent.watch import Watch
    from corral.demo import AttackReport, FixReport
    from corral.sandbox.base import BoxInfo

_DIFF_LINES = 60
_TEST_LINES = ("FAIL:", "ERROR:", "Ran ", "OK", "FAILED")
"""What is shown of the tests' output; nothing is decided by it."""


def demo(
    *,
    attack: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """See corral work: failing tests, an agent that fixes them in a box, a patch, the tests again, the record.

    It needs no key and no network: without a configured model the agent's answers are scripted, and it says so. Exits
    with 0 only if every step held.

    Parameters
    ----------
    attack
        Run a hostile repository instead and show how each of its attempts ended.
    json
        One JSON object on stdout instead of the steps.
    """
    return _demo_attack(as_json=json) if attack else _demo_fix(as_json=json)


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


def _demo_attack(*, as_json: bool) -> int:
    from corral.cli.interrupt import cancel_on_signals  # late: start-up time
    from corral.cli.terminal import TerminalFilter
    from corral.config import load_settings
    from corral.demo import AttackDemo, copied_example, require_image

    def say(text: str) -> None:
        if not as_json:
            note(f"  {visible(text)}")

    def render(raw: bytes) -> str:
        return TerminalFilter(colours=False).feed(raw, final=True)

    require_image(load_settings(), lambda line: note(f"  {visible(line)}"))
    if not as_json:
        note(paint("A hostile repository, made for this, in boxes", "bold"))
    with copied_example("hostile") as workspace:
        report = asyncio.run(cancel_on_signals(AttackDemo(workspace, say, render).run()))
    if as_json:
        print_json(
            {
                "ok": report.held,
                "attempts": [
                    {"attempt": one.attempt, "held": one.held, "what": visible(one.what)} for one in report.verdicts
                ],
                "run": report.run_id,
                "run_dir": str(report.run_dir),
            }
        )
    else:
        _show_verdicts(report)
    return 0 if report.held else 1


def _show_verdicts(report: AttackReport) -> None:
    note()
    width = max(len(one.attempt) for one in report.verdicts)
    for one in report.verdicts:
        mark = paint("held    ", "green", to_stdout=True) if one.held else paint("NOT HELD", "red", to_stdout=True)
        print_line(f"{mark}  {one.attempt:<{width}}  {visible(one.what, limit=300)}")
    failed = sum(not one.held for one in report.verdicts)
    note()
    note(f"  kept: {report.run_dir}")
    note(f"  read: corral log show {report.run_id}")
    note(f"  the copy and the other boxes' runs are removed; this one goes with corral runs rm {report.run_id}")
    count = len(report.verdicts)
    print_line(f"{count} attempts, all held" if not failed else f"{failed} of {count} attempts did NOT hold")


class StepView:
    """For people, on stderr: numbered steps, the agent's moves as `corral run` shows them, the diff."""

    def __init__(self) -> None:
        from corral.cli.live import LiveView  # late: start-up time

        self._number = 0
        self._live = LiveView()

    @property
    def watch(self) -> Watch | None:
        return self._live.event

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


class SilentView:
    """For programs: the report says it all."""

    @property
    def watch(self) -> Watch | None:
        return None

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
