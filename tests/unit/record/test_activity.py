"""The tree of processes and the list of connections, folded from claims that may be anything."""

from __future__ import annotations

from corral.record import Activity, Connection
from corral.schema.events import (
    ConnectionAttempted,
    EndedProcess,
    GuardTripped,
    ProcessEnded,
    ProcessStarted,
    RunFinished,
    ToolFinished,
)


def start(pid: int, parent: int, *argv: str, call: str = "c", mark: str = "") -> ProcessStarted:
    return ProcessStarted(call_id=call, pid=pid, parent_pid=parent, program=argv[0], argv=argv, mark=mark)


def tree(activity: Activity, call: str = "c") -> list[tuple[int, str, int]]:
    return [(row.depth, " ".join(row.process.started.argv), row.alike) for row in activity.walk(call)]


def test_tree_follows_parents_and_joins_what_is_alike() -> None:
    activity = Activity()
    for one in (
        start(10, 1, "make"),
        start(11, 10, "sh", "-c", "cc"),
        start(12, 11, "cc"),
        start(13, 10, "true"),
        start(14, 10, "true"),
        start(15, 10, "echo"),
        start(16, 99, "orphan"),
        start(12, 11, "ld"),
    ):
        activity.add(one)
    assert tree(activity) == [
        (0, "make", 1),
        (1, "sh -c cc", 1),
        (2, "ld", 1),
        (1, "true", 2),
        (1, "echo", 1),
        (1, "orphan", 1),
    ]
    assert activity.processes == 7


def gone(*processes: EndedProcess, call: str = "c") -> ProcessEnded:
    return ProcessEnded(call_id=call, processes=processes)


def ends(activity: Activity) -> dict[int, tuple[str, float | None]]:
    return {row.process.started.pid: (row.process.ended, row.process.lived_s) for row in activity.walk("c")}


def test_ends_are_joined_by_pid_and_the_first_word_counts() -> None:
    activity = Activity()
    for one in (
        start(10, 1, "make"),
        start(11, 10, "cc"),
        start(12, 10, "ld"),
        start(13, 10, "ar"),
        start(14, 10, "sleep"),
        gone(EndedProcess(pid=11, exit_code=1, lived_s=0.5), EndedProcess(pid=12, signal=9, lived_s=2.0)),
        gone(EndedProcess(pid=11, exit_code=0), EndedProcess(pid=13, lived_s=0.1), EndedProcess(pid=99, exit_code=4)),
        gone(EndedProcess(pid=14, exit_code=0), call="another"),
        ToolFinished(call_id="c", tool="exec", status="ok", success=False, exit_code=2, duration_s=3.0),
    ):
        activity.add(one)
    assert ends(activity) == {
        10: ("exit 2", 3.0),
        11: ("exit 1", 0.5),
        12: ("signal 9", 2.0),
        13: ("exit unknown", 0.1),
        14: ("", None),
    }


def test_a_number_that_is_used_again_is_another_process() -> None:
    activity = Activity()
    for one in (
        start(10, 1, "sh"),
        start(11, 10, "a"),
        gone(EndedProcess(pid=11, exit_code=1)),
        start(11, 10, "b"),
        gone(EndedProcess(pid=11, exit_code=0)),
    ):
        activity.add(one)
    assert (activity.processes, tree(activity)) == (3, [(0, "sh", 1), (1, "a", 1), (1, "b", 1)])


def test_what_ended_otherwise_is_not_alike() -> None:
    activity = Activity()
    for one in (
        start(10, 1, "sh"),
        start(11, 10, "a"),
        start(12, 10, "a"),
        start(13, 10, "a"),
        gone(EndedProcess(pid=11, exit_code=0), EndedProcess(pid=12, exit_code=0), EndedProcess(pid=13, exit_code=1)),
    ):
        activity.add(one)
    assert tree(activity) == [(0, "sh", 1), (1, "a", 2), (1, "a", 1)]


def test_calls_are_kept_apart_and_other_events_are_nothing() -> None:
    activity = Activity()
    for one in (start(10, 1, "a"), start(10, 1, "b", call="d"), GuardTripped(guard="g", action="note")):
        activity.add(one)
    assert (activity.calls, tree(activity, "d"), activity.processes) == (["c", "d"], [(0, "b", 1)], 2)


def test_a_process_that_claims_to_be_its_own_parent_makes_no_circle() -> None:
    activity = Activity()
    for one in (start(5, 5, "a"), start(6, 7, "b"), start(7, 6, "c"), start(6, 7, "d")):
        activity.add(one)
    assert tree(activity) == [(0, "a", 1), (1, "d", 1), (2, "c", 1)]


def test_a_search_that_found_nothing_is_no_process_and_marks_are_kept() -> None:
    activity = Activity()
    hidden = start(11, 10, "x", mark="memory")
    for one in (start(10, 1, "sh"), start(11, 10, "x", mark="not_found"), hidden):
        activity.add(one)
    assert (activity.processes, activity.marked) == (2, [hidden])


def test_both_are_bounded_and_the_rest_is_counted() -> None:
    activity = Activity(max_processes=3, max_connections=2)
    for number in range(10):
        activity.add(start(number + 10, number + 9, "p", str(number)))
        tried = ConnectionAttempted(call_id="c", host="h", port=min(number, 4), outcome="attempted")
        activity.add(tried)
    assert (activity.processes, len(tree(activity))) == (10, 3)
    assert dict(activity.connections) == {
        Connection("c", "connect", "tcp", "h", 0, "attempted"): 1,
        Connection("c", "connect", "tcp", "h", 1, "attempted"): 1,
    }
    assert activity.more_connections == 8


def test_a_tree_of_any_depth_can_be_walked() -> None:
    activity = Activity(max_processes=5000)
    for number in range(5000):
        activity.add(start(number + 10, number + 9, "p"))
    assert [row.depth for row in activity.walk("c")] == list(range(5000))


def end(call: str, **more: int) -> ToolFinished:
    return ToolFinished.model_validate({"call_id": call, "tool": "shell", "status": "ok", "success": True, **more})


def test_how_a_call_ended_is_joined_to_its_own_process() -> None:
    activity = Activity()
    for one in (
        start(10, 1, "make"),
        start(11, 10, "cc"),
        start(10, 1, "sleep", call="d"),
        end("c", exit_code=2),
        end("d", signal=9),
        end("e", exit_code=1),
    ):
        activity.add(one)
    ended = [(row.process.started.argv, row.process.ended) for call in ("c", "d") for row in activity.walk(call)]
    assert ended == [(("make",), "exit 2"), (("cc",), ""), (("sleep",), "signal 9")]


def test_what_was_only_counted_is_the_last_that_was_told_of_each_call() -> None:
    activity = Activity()
    for call, count in (("c", 3), ("d", 4), ("c", 7)):
        activity.add(GuardTripped(guard="process_record", action="drop", call_id=call, count=count))
    activity.add(RunFinished(stop_reason="completed", exit_code=0, dropped_events=100))
    assert activity.dropped == 111
