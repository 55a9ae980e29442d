"""What people see of a run's processes: calm, bounded, and never raw."""

from __future__ import annotations

import json

from corral.cli.activity import activity_json, describe_activity
from corral.record import Activity
from corral.schema.events import ConnectionAttempted, EndedProcess, Payload, ProcessEnded, ProcessStarted, ToolFinished


def build(*events: Payload) -> Activity:
    activity = Activity()
    for one in events:
        activity.add(one)
    return activity


def start(pid: int, parent: int, program: str, *argv: str, mark: str = "") -> ProcessStarted:
    return ProcessStarted(
        call_id="exec", pid=pid, parent_pid=parent, program=program, argv=argv or (program,), mark=mark
    )


def reach(host: str, port: int = 443, **more: str) -> ConnectionAttempted:
    return ConnectionAttempted.model_validate({"host": host, "port": port, "outcome": "attempted", **more})


def test_a_command_that_started_nothing_is_no_line_but_when_asked_for() -> None:
    activity = build(start(10, 1, "/bin/true", "true"))
    assert list(describe_activity(activity, most=5)) == []
    assert list(describe_activity(activity, most=5, alone=True)) == ["1 process started", "  10 true [no end seen]"]


def test_the_log_tells_every_end_and_the_end_of_a_run_only_bad_ones() -> None:
    activity = build(
        start(10, 1, "make"),
        start(11, 10, "cc"),
        start(12, 10, "ld"),
        start(13, 10, "ar"),
        start(14, 10, "ar"),
        start(15, 10, "sleep"),
        ProcessEnded(
            call_id="exec",
            processes=(
                EndedProcess(pid=11, exit_code=0, lived_s=0.5),
                EndedProcess(pid=12, signal=9, lived_s=2.0),
                EndedProcess(pid=13),
                EndedProcess(pid=14),
            ),
        ),
        ToolFinished(call_id="exec", tool="exec", status="ok", success=True, exit_code=0, duration_s=3.0),
    )
    assert list(describe_activity(activity, most=9, alone=True))[1:] == [
        "  10 make [exit 0 after 3.00 s]",
        "    11 cc [exit 0 after 0.50 s]",
        "    12 ld [signal 9 after 2.00 s]",
        "    13 ar ×2 [exit unknown]",
        "    15 sleep [no end seen]",
    ]
    assert list(describe_activity(activity, most=9))[1:] == [
        "  10 make",
        "    11 cc",
        "    12 ld [signal 9]",
        "    13 ar ×2 [exit unknown]",
        "    15 sleep",
    ]


def test_tree_and_connections() -> None:
    activity = build(
        start(10, 1, "/usr/bin/make", "make", "all"),
        start(11, 10, "/bin/true", "true"),
        start(12, 10, "/bin/true", "true"),
        start(13, 10, "/proc/self/fd/3", "bash", mark="memory"),
        reach("192.0.2.1"),
        reach("192.0.2.1"),
        reach("2001:db8::1", 53, protocol="udp", operation="send", outcome="refused"),
        reach("/var/run/nscd/socket", 0, protocol="unix"),
        ToolFinished(call_id="exec", tool="exec", status="error", success=False, exit_code=2),
    )
    assert list(describe_activity(activity, most=5)) == [
        "4 processes started",
        "  10 make all [exit 2]",
        "    11 true ×2",
        "    13 /proc/self/fd/3 as bash [memory]",
        "1 suspicious start",
        "  13 /proc/self/fd/3 as bash [memory]",
        "3 connections tried",
        "  connect tcp 192.0.2.1:443 attempted ×2",
        "  send udp [2001:db8::1]:53 refused",
    ]


def test_a_long_tree_is_cut_and_counted() -> None:
    activity = build(*(start(10 + n, 9 + n, "p", f"p{n}") for n in range(50)), *(reach(f"h{n}") for n in range(9)))
    lines = list(describe_activity(activity, most=3))
    assert [lines[0], lines[4], lines[5], lines[-1]] == [
        "50 processes started",
        "  ... and 47 more",
        "9 connections tried",
        "  ... and 6 more",
    ]


def test_what_the_box_named_cannot_reach_the_terminal_raw() -> None:
    evil = "\x1b]0;owned\x07\r\u202e"
    activity = build(start(10, 1, evil, evil, mark=evil), start(11, 10, evil), reach(evil, protocol=evil))
    text = "\n".join(describe_activity(activity, most=9))
    assert not set(text) & set(evil[0:1] + "\x07\r\u202e")
    assert json.dumps(activity_json(activity, most=9), ensure_ascii=True).isascii()
