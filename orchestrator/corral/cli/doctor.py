"""`corral doctor`: what is missing here, and how to get it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from corral.cli.output import paint, print_json, print_line
from corral.schema.visible import visible


def doctor(*, json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Check engine, image, kernel, limits, disk and settings. Exits with 1 when corral cannot work here.

    Parameters
    ----------
    json
        One JSON object on stdout.
    """
    from corral.doctor import Status, run_checks, worst  # late: start-up time

    checks = run_checks()
    result = worst(checks)
    if json:
        print_json({"status": result.value, "checks": [asdict(check) for check in checks]})
        return int(result is Status.FAIL)
    marks = {Status.OK: ("ok  ", "green"), Status.WARN: ("warn", "yellow"), Status.FAIL: ("FAIL", "red")}
    for check in checks:
        text, style = marks[check.status]
        print_line(f"{paint(text, style, to_stdout=True)}  {check.name:<14} {visible(check.detail)}")
        if check.hint and check.status is not Status.OK:
            print_line(f"      {'':<14} {paint('hint: ' + visible(check.hint), 'dim', to_stdout=True)}")
    endings = {
        Status.OK: "corral works here",
        Status.WARN: "corral works here, with the limits above",
        Status.FAIL: "corral does not work here yet: follow the hints above",
    }
    print_line(endings[result])
    return int(result is Status.FAIL)
