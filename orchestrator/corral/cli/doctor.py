"""`corral doctor`: what is missing here, and how to get it; with --sandbox, what a box of this machine holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.output import paint, print_json, print_line
from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.doctor import Check

_MARKS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


def doctor(
    *,
    sandbox: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Check engine, image, kernel, limits, disk and settings. Exits with 1 when corral cannot work here.

    Parameters
    ----------
    sandbox
        Start a box and check its walls instead, from inside and outside; ends with a score. Exits with 1 when one does
        not hold. Fit for a health check: it takes a second or two and leaves nothing.
    json
        One JSON object on stdout.
    """
    from corral.doctor import Status, run_checks, worst  # late: start-up time

    if sandbox:
        from corral.doctor.box import show_score  # late: likewise
        from corral.doctor.sandbox import run_sandbox_checks

        checks = run_sandbox_checks()
        score = show_score(checks)
        ends = {Status.OK: "every wall holds", Status.WARN: "the walls hold, with what is said above"}
        end = f"{score} passed: {ends.get(worst(checks), 'a wall does not hold: follow the hints above')}"
    else:
        checks = run_checks()
        score = ""
        end = {
            Status.OK: "corral works here",
            Status.WARN: "corral works here, with the limits above",
            Status.FAIL: "corral does not work here yet: follow the hints above",
        }[worst(checks)]
    result = worst(checks)
    if json:
        scored = {"score": score} if score else {}
        print_json({"status": result.value, **scored, "checks": [asdict(check) for check in checks]})
    else:
        _print_checks(checks)
        print_line(end)
    return int(result is Status.FAIL)


def _print_checks(checks: tuple[Check, ...]) -> None:
    for check in checks:
        text, style = _MARKS[check.status.value]
        print_line(f"{paint(text, style, to_stdout=True)}  {check.name:<18} {visible(check.detail)}")
        if check.hint and check.status.value != "ok":
            print_line(f"      {'':<18} {paint('hint: ' + visible(check.hint), 'dim', to_stdout=True)}")
