"""What a call is said to have used: its processes and theirs, also when they outlive its answer."""

from __future__ import annotations

from tests.unit.toolbox.client import Client


def test_time_of_children_and_grandchildren_is_counted_by_mode(box: Client) -> None:
    counted = box.shell("sh -c 'python3 -c \"sum(range(40_000_000))\"; :'; :").raw
    assert counted["user_s"] + counted["system_s"] > 0.1
    copied = box.exec("dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=8000").raw
    assert copied["system_s"] > copied["user_s"]


def test_programs_and_the_most_of_them_at_once(box: Client) -> None:
    one_by_one = box.shell("for n in 1 2 3 4 5 6; do /bin/true; done; :").raw
    assert (one_by_one["programs"], one_by_one["programs_peak"]) == (7, 2)
    all_run = "for p in $(jobs -p); do until read c < /proc/$p/comm && [ $c = sleep ]; do :; done; done"
    at_once = box.shell(f"for n in 1 2 3 4 5 6; do sleep 60 & done; {all_run}; kill $(jobs -p); wait").raw
    assert (at_once["programs"], at_once["programs_peak"]) == (7, 7)
    replaced = box.shell("exec sh -c 'exec /bin/true'").raw
    assert (replaced["programs"], replaced["programs_peak"]) == (1, 1)
    assert box.exec("no-such-program").raw["programs"] == 0


def test_memory_is_that_of_the_largest_process(box: Client) -> None:
    large = box.shell("python3 -c 'x = bytearray(64 << 20)'; /bin/true").raw
    assert 64 << 20 < large["max_rss"] < 128 << 20


def test_what_outlives_its_call_is_counted_for_the_box(box: Client) -> None:
    before = box.call("stats")["programs"]
    left = box.shell("mkfifo /tmp/go; sh -c 'read x < /tmp/go; /bin/true; /bin/true' > /dev/null 2>&1 &")
    assert left.raw["background"] == 1
    assert box.call("stats")["programs"] == before + left.raw["programs"]
    box.shell("echo > /tmp/go")
    # Its shell and mkfifo, what went on and started two, and the shell of the second call.
    box.wait_true(lambda: box.call("stats")["programs"] == before + 2 + 3 + 1)
