"""What ran in a box and whom it tried to reach, as a tree and a list: a bounded fold over the box's claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from corral.schema.events import (
    ConnectionAttempted,
    EndedProcess,
    GuardTripped,
    Payload,
    ProcessEnded,
    ProcessStarted,
    RunFinished,
    ToolFinished,
)

NOT_FOUND = "not_found"
DROP_GUARD = "process_record"
"""The guard that tells how many events of a call were only counted: the last one of a call counts."""
MAX_PROCESSES = 4000
MAX_CONNECTIONS = 1000


@dataclass
class Process:
    """One process by its latest program; `programs` counts those it became one after the other."""

    started: ProcessStarted
    programs: int = 1
    ended: str = ""
    """How it ended: `exit 0`, `signal 9`, `exit unknown`; empty: nobody told that it did."""
    lived_s: float | None = None
    """Since its first program began."""
    children: list[Process] = field(default_factory=list)


class Row(NamedTuple):
    """A line of the tree: a process, or several alike that started nothing themselves."""

    depth: int
    process: Process
    alike: int = 1


class Connection(NamedTuple):
    call_id: str
    operation: str
    protocol: str
    host: str
    port: int
    outcome: str


class Activity:
    """Feed it the record's events with `add`; kinds that are of no use are nothing to it."""

    def __init__(self, *, max_processes: int = MAX_PROCESSES, max_connections: int = MAX_CONNECTIONS) -> None:
        self.processes = 0
        self.connections: Counter[Connection] = Counter()
        self.more_connections = 0
        self.marked: list[ProcessStarted] = []
        """Suspicious ones, the first hundred."""
        self._dropped: dict[str, int] = {}
        self._over = 0
        self._max_processes, self._max_connections = max_processes, max_connections
        self._known: dict[tuple[str, int], Process] = {}
        self._roots: dict[str, list[Process]] = {}

    @property
    def calls(self) -> list[str]:
        return list(self._roots)

    @property
    def dropped(self) -> int:
        """Only counted: by the box, or because the record takes no more of them."""
        return sum(self._dropped.values()) + self._over

    @property
    def kept(self) -> int:
        """Processes in the tree: at most so many as were asked for, of `processes`."""
        return len(self._known)

    def add(self, payload: Payload) -> None:
        match payload:
            case ConnectionAttempted(connection=""):  # those of the tunnel are told by themselves
                self._add_connection(payload)
            case ProcessStarted():
                self._add_process(payload)
            case ProcessEnded():
                for one in payload.processes:
                    self._end_process(payload.call_id, one)
            case ToolFinished():
                self._end(payload)
            case GuardTripped(guard=guard) if guard == DROP_GUARD:
                self._dropped[payload.call_id] = payload.count
            case RunFinished():
                self._over = payload.dropped_events

    def _end(self, finished: ToolFinished) -> None:
        roots = self._roots.get(finished.call_id)
        if not roots:
            return
        if finished.signal or finished.exit_code is not None:
            roots[0].ended = describe_end(finished)
        roots[0].lived_s = finished.duration_s

    def _end_process(self, call_id: str, end: EndedProcess) -> None:
        process = self._known.get((call_id, end.pid))
        # The first word counts: the number may belong to another by now, which did not run a program.
        if process is not None and not process.ended:
            process.ended, process.lived_s = describe_end(end), end.lived_s

    def _add_connection(self, tried: ConnectionAttempted) -> None:
        one = Connection(
            tried.call_id,
            tried.operation,
            tried.protocol,
            tried.host,
            tried.port,
            "allowed" if tried.allowed else tried.outcome,
        )
        if one in self.connections or len(self.connections) < self._max_connections:
            self.connections[one] += 1
        else:
            self.more_connections += 1

    def _add_process(self, started: ProcessStarted) -> None:
        if started.mark == NOT_FOUND:
            return  # a look along PATH, most of the time
        if started.mark and len(self.marked) < 100:
            self.marked.append(started)
        known = self._known.get((started.call_id, started.pid))
        if known is not None and known.started.parent_pid == started.parent_pid and not known.ended:
            known.started = started
            known.programs += 1
            return
        self.processes += 1
        if len(self._known) >= self._max_processes:
            return
        process = self._known[started.call_id, started.pid] = Process(started)
        roots = self._roots.setdefault(started.call_id, [])
        parent = self._known.get((started.call_id, started.parent_pid))
        if parent is None or parent is process:
            # Its parent ran no program of its own, or has ended: below the command, by which it all came.
            parent = roots[0] if roots else None
        (parent.children if parent else roots).append(process)

    def walk(self, call_id: str) -> Iterator[Row]:
        """The tree of one call, parents first."""
        waiting = list(reversed(_group(self._roots.get(call_id, []), 0)))
        while waiting:
            row = waiting.pop()
            yield row
            waiting += reversed(_group(row.process.children, row.depth + 1))


def describe_end(end: EndedProcess | ToolFinished) -> str:
    """How a process ended, in two words."""
    if end.signal:
        return f"signal {end.signal}"
    return "exit unknown" if end.exit_code is None else f"exit {end.exit_code}"


def _group(siblings: list[Process], depth: int) -> list[Row]:
    rows: list[Row] = []
    for process in siblings:
        last = rows[-1] if rows else None
        if last is not None and _are_alike(last.process, process):
            rows[-1] = last._replace(alike=last.alike + 1)
        else:
            rows.append(Row(depth, process))
    return rows


def _are_alike(one: Process, other: Process) -> bool:
    mine, theirs = one.started, other.started
    same = (mine.program, mine.argv, mine.mark) == (theirs.program, theirs.argv, theirs.mark)
    return same and one.ended == other.ended and not one.children and not other.children
