"""The record of a run: one append-only, hash-chained file of events, the only source of what happened.

log writes, reader and verify read, projection folds events to the run's state, show renders them for people.
"""

from corral.record.activity import Activity, Connection, Process
from corral.record.actor import find_actor
from corral.record.log import RecordLog
from corral.record.projection import Ledger, RunState, fold, load_state
from corral.record.reader import Loaded, Problem, follow_events, is_being_written, load_record, read_events
from corral.record.show import describe_event, render_event, render_json, render_problem
from corral.record.verify import Head, VerifyReport, verify_record

RECORD_NAME = "record.jsonl"

__all__ = [
    "RECORD_NAME",
    "Activity",
    "Connection",
    "Head",
    "Ledger",
    "Loaded",
    "Problem",
    "Process",
    "RecordLog",
    "RunState",
    "VerifyReport",
    "describe_event",
    "find_actor",
    "fold",
    "follow_events",
    "is_being_written",
    "load_record",
    "load_state",
    "read_events",
    "render_event",
    "render_json",
    "render_problem",
    "verify_record",
]
