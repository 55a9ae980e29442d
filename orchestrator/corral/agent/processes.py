"""What the box tells about its processes, on its way into the record: validated on the wire, still only a claim."""

from __future__ import annotations

from typing import Protocol

from corral.errors import RecordError
from corral.record.activity import DROP_GUARD
from corral.schema.events import (
    ConnectionAttempted,
    EndedProcess,
    Event,
    GuardTripped,
    Payload,
    ProcessEnded,
    ProcessStarted,
    Source,
)
from corral.schema.text import clean
from corral_protocol.message import EventKind, ProcessEnd, ProcessEvent, ProcessEvents
from corral_protocol.name import decode_name

_ENDS = 500
"""In one event of the record: a box may send more at once."""


class ClaimRecord(Protocol):
    """The record as claims are written; corral.record.RecordLog is one."""

    def append(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event: ...

    def claim(self, payload: Payload) -> Event | None: ...


class ProcessTrail:
    """Each event of the box as an event of the record; what did not get there is counted."""

    def __init__(self, record: ClaimRecord) -> None:
        self.lost = 0
        """Events for which there was no record any more."""
        self._record = record
        self._dropped: dict[str, int] = {}
        self._noted: dict[str, int] = {}

    def observe(self, call_id: str, told: ProcessEvents) -> None:
        """A claim that cannot be written is counted like one the box dropped: it must not end the channel."""
        if told.dropped:
            self._dropped[call_id] = told.dropped
        kept = 0
        try:
            for event in told.events:
                self._record.claim(build_payload(call_id, event))
                kept += 1
            for first in range(0, len(told.ends), _ENDS):
                ends = told.ends[first : first + _ENDS]
                self._record.claim(ProcessEnded(call_id=call_id, processes=tuple(map(_build_end, ends))))
            if told.dropped and call_id not in self._noted:
                self._note(call_id, told.dropped)
        except RecordError:
            # The run meets the same error at its next step, where it can be raised.
            self.lost += len(told.events) - kept

    def close(self) -> None:
        """Nothing runs any more: how many there were is known. Raises RecordError."""
        for call_id, dropped in self._dropped.items():
            if dropped != self._noted.get(call_id):
                self._note(call_id, dropped)

    def _note(self, call_id: str, dropped: int) -> None:
        self._noted[call_id] = dropped
        reason = f"{dropped} processes and connections so far were more than are kept of one call"
        self._record.append(
            GuardTripped(guard=DROP_GUARD, call_id=call_id, action="drop", reason=reason, count=dropped), durable=False
        )


def build_payload(call_id: str, event: ProcessEvent) -> ProcessStarted | ConnectionAttempted:
    """The record's event for one of the box's."""
    if event.kind is EventKind.EXEC:
        return ProcessStarted(
            call_id=call_id,
            pid=event.pid,
            parent_pid=event.parent,
            program=_show(event.path),
            argv=tuple(map(_show, event.argv)),
            cwd=_show(event.cwd),
            uid=event.uid,
            mark=event.mark.value,
            cut=event.cut,
        )
    return ConnectionAttempted(
        call_id=call_id,
        pid=event.pid,
        protocol=event.protocol,
        host=_show(event.host),
        port=event.port,
        operation=event.kind.value,
        outcome="refused" if event.errno else "attempted",
        reason=event.mark.value,
    )


def _build_end(end: ProcessEnd) -> EndedProcess:
    return EndedProcess(pid=end.pid, exit_code=end.exit_code, signal=end.signal or None, lived_s=end.lived_s)


def _show(name: str) -> str:
    return clean(decode_name(name))
