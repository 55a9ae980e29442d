"""The processes of a run as a tree, and whom they tried to reach: the box's word, made safe to print."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import islice

from corral.cli.output import note, plural
from corral.record import Activity, Connection
from corral.record.activity import Row
from corral.schema.events import ProcessStarted
from corral.schema.visible import visible

_LINE = 100
_MAX_DEPTH = 12
_LOCAL = ("unix",)
_SHOWN, _MARKED = 12, 5
SHOWN_JSON = 200
"""What the end of a run tells to people and to programs; `corral log processes` tells all."""


def show_activity(activity: Activity) -> None:
    """At the end of a run, on stderr."""
    for line in describe_activity(activity, most=_SHOWN):
        note(f"  {line}")


def describe_activity(activity: Activity, *, most: int, alone: bool = False) -> Iterator[str]:
    """At most about `most` lines of tree and of connections. A command that started nothing is no line, but `alone`."""
    reached = {one: count for one, count in activity.connections.items() if one.protocol not in _LOCAL}
    if activity.processes > 1 or activity.marked or alone:
        yield f"{activity.processes} process{'' if activity.processes == 1 else 'es'} started"
        yield from _describe_tree(activity, most, whole=alone)
    if activity.marked:
        yield f"{plural(len(activity.marked), 'suspicious start')}"
        yield from (f"  {_describe_start(one)}" for one in activity.marked[:_MARKED])
        if len(activity.marked) > _MARKED:
            yield f"  ... and {len(activity.marked) - _MARKED} more"
    if reached:
        tried = sum(reached.values())
        yield f"{plural(tried, 'connection')} tried"
        yield from (f"  {_describe_connection(one, count)}" for one, count in list(reached.items())[:most])
        if len(reached) > most:
            yield f"  ... and {len(reached) - most} more"
    if activity.more_connections:
        yield f"{plural(activity.more_connections, 'connection')} more, to others"
    if activity.dropped:
        yield f"{activity.dropped} processes and connections were only counted"


def _describe_tree(activity: Activity, most: int, *, whole: bool) -> Iterator[str]:
    shown = 0
    told = 0
    for call in activity.calls:
        if len(activity.calls) > 1 and shown < most:
            yield f"  {visible(call or 'no call', limit=40)}:"
        for row in activity.walk(call):
            if shown >= most:
                break
            shown += 1
            told += row.alike
            yield f"  {'  ' * min(row.depth, _MAX_DEPTH)}{_describe_row(row, whole=whole)}"
    if activity.processes > told:
        yield f"  ... and {activity.processes - told} more"


def _describe_row(row: Row, *, whole: bool) -> str:
    """`whole`: also what ended well, and when."""
    many = f" ×{row.alike}" if row.alike > 1 else ""
    end = row.process.ended
    lived = "" if row.process.lived_s is None or row.alike > 1 else f" after {row.process.lived_s:.2f} s"
    if whole:
        ended = f" [{end}{lived}]" if end else " [no end seen]"
    else:
        ended = "" if end in ("", "exit 0") else f" [{end}]"
    return f"{_describe_start(row.process.started)}{many}{ended}"


def _describe_start(started: ProcessStarted) -> str:
    # SECURITY: the box's own words, on a terminal (test_activity.py).
    words = visible(shlex.join(started.argv) or started.program or "?", limit=_LINE)
    path = started.program.rpartition("/")[2]
    if started.argv and started.argv[0].rpartition("/")[2] != path:
        words = f"{visible(started.program, limit=60)} as {words}"
    mark = f" [{visible(started.mark, limit=20)}]" if started.mark else ""
    return f"{started.pid} {words}{mark}"


def _describe_connection(one: Connection, count: int) -> str:
    host = visible(one.host, limit=_LINE)
    where = f"[{host}]:{one.port}" if ":" in host else f"{host}:{one.port}"
    what = f"{one.operation} {one.protocol}" + ("" if not host else f" {where if one.port else host}")
    return f"{visible(what, limit=160)} {visible(one.outcome, limit=20)}" + (f" ×{count}" if count > 1 else "")


def activity_json(activity: Activity, *, most: int) -> dict[str, object]:
    """The same as JSON, at most `most` of each; the tree is flat, each process with its depth, parents first."""
    rows = ((call, row) for call in activity.calls for row in activity.walk(call))
    return {
        "processes_started": activity.processes,
        "connections_tried": sum(activity.connections.values()) + activity.more_connections,
        "only_counted": activity.dropped,
        "suspicious": [one.model_dump(mode="json") for one in activity.marked[:most]],
        "processes": [
            {
                "call_id": call,
                "depth": row.depth,
                "count": row.alike,
                "programs": row.process.programs,
                "ended": row.process.ended,
                "lived_s": row.process.lived_s,
                **row.process.started.model_dump(mode="json", exclude={"call_id"}),
            }
            for call, row in islice(rows, most)
        ],
        "connections": [{**one._asdict(), "count": n} for one, n in islice(activity.connections.items(), most)],
    }
