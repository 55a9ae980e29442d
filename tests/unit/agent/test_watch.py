from __future__ import annotations

from pathlib import Path

from corral.agent.watch import WatchedRecord
from corral.record import RecordLog, read_events
from corral.schema.events import Event, PlanCreated, ProcessStarted, Source


async def test_every_event_is_told_after_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    seen: list[tuple[Event, int]] = []
    with RecordLog.open(path) as log:
        record = WatchedRecord(log, lambda event: seen.append((event, len(path.read_text().splitlines()))))
        record.append(PlanCreated(step=1))
        await record.append_async(PlanCreated(step=2))
        record.claim(ProcessStarted(pid=1, program="x"))
    assert [event for event, _ in seen] == list(read_events(path))
    assert [lines for _, lines in seen] == [1, 2, 3]
    assert [event.source for event, _ in seen][-1] is Source.BOX


def test_a_claim_over_the_cap_is_not_told_and_counted(tmp_path: Path) -> None:
    seen: list[Event] = []
    with RecordLog.open(tmp_path / "record.jsonl", max_claims=1) as log:
        record = WatchedRecord(log, seen.append)
        assert record.claim(ProcessStarted(pid=1, program="x")) is not None
        assert record.claim(ProcessStarted(pid=2, program="x")) is None
        assert (record.dropped, len(seen)) == (1, 1)


def test_a_watcher_that_fails_is_not_called_again_and_ends_nothing(tmp_path: Path) -> None:
    calls: list[Event] = []

    def fail(event: Event) -> None:
        calls.append(event)
        raise ValueError("my fault")

    with RecordLog.open(tmp_path / "record.jsonl") as log:
        record = WatchedRecord(log, fail)
        for step in range(3):
            record.append(PlanCreated(step=step))
        assert (len(calls), repr(record.watch_error), log.head().seq) == (1, "ValueError('my fault')", 3)
