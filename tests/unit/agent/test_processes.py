"""From the box's word to the record's events."""

from __future__ import annotations

from pathlib import Path

from corral.agent.processes import ProcessTrail
from corral.record import RecordLog, load_record
from corral.schema.events import ConnectionAttempted, EndedProcess, GuardTripped, ProcessEnded, ProcessStarted, Source
from corral_protocol.message import EventKind, EventMark, ProcessEnd, ProcessEvent, ProcessEvents

EXEC = ProcessEvent(
    EventKind.EXEC, 7, 3, 1000, path="\0L3RtcC//", argv=["a", "\0/w=="], cwd="/tmp", mark=EventMark.DELETED, cut=True
)
SEND = ProcessEvent(EventKind.SEND, 7, 3, 1000, protocol="udp", host="192.0.2.1", port=53, errno=101)


def told_dropped(count: int) -> GuardTripped:
    reason = f"{count} processes and connections so far were more than are kept of one call"
    return GuardTripped(guard="process_record", call_id="c1", action="drop", reason=reason, count=count)


def test_events_are_recorded_as_the_boxs_word_under_their_call(tmp_path: Path) -> None:
    with RecordLog.open(tmp_path / "record.jsonl") as log:
        trail = ProcessTrail(log)
        trail.observe("c1", ProcessEvents(1, 0, [EXEC, SEND]))
        trail.observe("c1", ProcessEvents(1, 5, []))
        trail.observe("c1", ProcessEvents(1, 9, []))
        trail.close()
        trail.close()
    events = load_record(tmp_path / "record.jsonl").events
    assert [(event.source, event.payload) for event in events] == [
        (
            Source.BOX,
            ProcessStarted(
                call_id="c1",
                pid=7,
                parent_pid=3,
                program="/tmp/\\xff",
                argv=("a", "\\xff"),
                cwd="/tmp",
                uid=1000,
                mark="deleted",
                cut=True,
            ),
        ),
        (
            Source.BOX,
            ConnectionAttempted(
                call_id="c1", pid=7, protocol="udp", host="192.0.2.1", port=53, operation="send", outcome="refused"
            ),
        ),
        *((Source.ORCHESTRATOR, told_dropped(count)) for count in (5, 9)),
    ]


def test_ends_are_recorded_some_in_one_event_and_none_is_lost(tmp_path: Path) -> None:
    ends = [ProcessEnd(7, 0.25, exit_code=3), ProcessEnd(8, 1.0, signal=9), ProcessEnd(9, 2.0)]
    with RecordLog.open(tmp_path / "record.jsonl") as log:
        trail = ProcessTrail(log)
        trail.observe("c1", ProcessEvents(1, 0, [], ends))
        trail.observe("c1", ProcessEvents(1, 0, [], ends * 400))
    first, *more = load_record(tmp_path / "record.jsonl").events
    assert (first.source, first.payload) == (
        Source.BOX,
        ProcessEnded(
            call_id="c1",
            processes=(
                EndedProcess(pid=7, exit_code=3, lived_s=0.25),
                EndedProcess(pid=8, signal=9, lived_s=1.0),
                EndedProcess(pid=9, lived_s=2.0),
            ),
        ),
    )
    assert [len(event.payload.processes) for event in more if isinstance(event.payload, ProcessEnded)] == [
        500,
        500,
        200,
    ]


def test_a_record_that_takes_no_more_is_no_fault_of_the_channel(tmp_path: Path) -> None:
    log = RecordLog.open(tmp_path / "record.jsonl")
    log.close()
    trail = ProcessTrail(log)
    trail.observe("c1", ProcessEvents(1, 0, [EXEC, SEND]))
    assert trail.lost == 2
