"""`corral log`: the record of one run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from corral.cli.output import mask_output, note, paint, print_json, print_line
from corral.config import load_settings
from corral.store.run_dir import find_run

app = App(name="log", help="Read the record of a run.", help_format="plaintext")

_MANY = 100_000  # as many claims as a record keeps
Json = Annotated[bool, Parameter(name="--json", negative="")]


@app.command
def show(run: str, *, json: Json = False) -> int:
    """Show what happened, one line an event.

    Parameters
    ----------
    run
        The run's id, or last; corral runs lists them.
    json
        The events themselves, as JSON Lines.
    """
    from corral.record import (  # late: start-up time
        Problem,
        read_events,
        render_event,
        render_json,
        render_problem,
        verify_record,
    )

    bad = 0
    record = find_record(run)
    for one in read_events(record):
        if isinstance(one, Problem):
            bad += 1
            note(paint(render_problem(one), "red"))
        else:
            print_line(render_json(one) if json else render_event(one))
    # Lines can be read and still not be what was written.
    if not bad and (problem := verify_record(record).problem) is not None:
        bad += 1
        note(paint(render_problem(problem), "red"))
    return 1 if bad else 0


@app.command
def verify(run: str, *, json: Json = False) -> int:
    """Check that no line of the record was changed, removed, inserted or moved. Exits with 1 when one was.

    Parameters
    ----------
    run
        The run's id, or last.
    json
        One JSON object on stdout.
    """
    from corral.record import render_problem, verify_record  # late: start-up time

    report = verify_record(find_record(run))
    if json:
        print_json(
            {
                "ok": report.ok,
                "finished": report.finished,
                "events": report.head.seq,
                "head": report.head.hash,
                "problem": render_problem(report.problem) if report.problem else None,
            }
        )
        return int(not report.ok)
    if not report.ok:
        print_line(f"NOT INTACT: {render_problem(report.problem) if report.problem else 'unreadable'}")
        return 1
    print_line(f"intact: {report.head.seq} events, head {report.head.hash[:16]}")
    if not report.finished:
        note("the run's last event is missing: it is still running, was killed, or lines were cut off at the end")
    return 0


@app.command
def follow(run: str, *, json: Json = False) -> int:
    """Show events as they are written, until the run ends.

    Parameters
    ----------
    run
        The run's id, or last.
    json
        The events themselves, as JSON Lines.
    """
    from corral.record import Problem, follow_events, render_event, render_json, render_problem  # late

    async def print_events() -> None:
        async for one in follow_events(find_record(run)):
            if isinstance(one, Problem):
                note(paint(render_problem(one), "red"))
            else:
                print_line(render_json(one) if json else render_event(one))

    asyncio.run(print_events())
    return 0


@app.command
def processes(run: str, *, json: Json = False) -> int:
    """Show what ran in the box as a tree, and whom it tried to reach. It is the box's word.

    Parameters
    ----------
    run
        The run's id.
    json
        One JSON object on stdout.
    """
    from corral.cli.activity import activity_json, describe_activity  # late: start-up time
    from corral.record import Activity, Problem, read_events, render_problem

    activity = Activity(max_processes=_MANY, max_connections=_MANY)
    bad = False
    for one in read_events(find_record(run)):
        if isinstance(one, Problem):
            bad = True
            note(paint(render_problem(one), "red"))
        else:
            activity.add(one.payload)
    if json:
        print_json(activity_json(activity, most=_MANY))
    else:
        for line in describe_activity(activity, most=_MANY, alone=True):
            print_line(line)
    return int(bad)


def find_record(run: str) -> Path:
    """The record's file. Raises ConfigError when there is no such run."""
    mask_output()  # it was masked when it was written, by a corral that may have known less
    return find_run(run, load_settings().runs_dir()) / "record.jsonl"
