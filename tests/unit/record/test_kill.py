"""A writer that is killed: what it acknowledged is there, and writing goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from corral.record import RecordLog, is_being_written, load_record, verify_record
from corral.schema.events import EventKind, PlanCreated

WRITER = """
import sys
from pathlib import Path
from corral.record import RecordLog
from corral.schema.events import PlanCreated, ProcessStarted
log = RecordLog.open(Path(sys.argv[1]))
while True:
    log.append(ProcessStarted(pid=1, program="x" * 3000), durable=False)
    print(log.append(PlanCreated(step=1, text="y" * 30000)).seq, flush=True)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.011, 0.023])
def test_acknowledged_events_survive_kill_9(record: Path, delay_s: float) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(record)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = int(writer.stdout.readline())
    time.sleep(delay_s)
    assert is_being_written(record)
    writer.kill()
    for line in writer.stdout:
        acknowledged = int(line)
    writer.stdout.close()
    writer.wait()
    assert not is_being_written(record)
    with RecordLog.open(record) as log:
        log.append(PlanCreated(step=2))
    loaded = load_record(record)
    assert loaded.problems == ()
    assert len([event for event in loaded.events if event.kind is not EventKind.LOG_RECOVERED]) > acknowledged
    assert verify_record(record).ok
