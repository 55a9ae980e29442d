"""Output under credit: in full, in order, bounded, and never in the way of anything else."""

from __future__ import annotations

import base64
import time

from tests.unit.toolbox.client import Client, Done

from corral_protocol.message import INITIAL_CREDIT

NUMBERS = "".join(f"{i}\n" for i in range(1, 200_001)).encode()


def test_streams_everything_and_keeps_head_and_tail(box: Client) -> None:
    out, err = box.open_stream(), box.open_stream()
    done = box.shell("seq 200000; seq 10 >&2", stdout=out, stderr=err, head_bytes=100, tail_bytes=50)
    assert box.wait_closed(out) == NUMBERS
    assert box.wait_closed(err) == NUMBERS[:21]
    assert done.raw["stdout"] == {
        "head_b64": base64.b64encode(NUMBERS[:100]).decode(),
        "tail_b64": base64.b64encode(NUMBERS[-50:]).decode(),
        "total_bytes": len(NUMBERS),
        "streamed_bytes": len(NUMBERS),
        "closed": True,
    }


def test_without_a_stream_only_head_and_tail_leave_the_box(box: Client) -> None:
    done = box.shell("seq 200000", head_bytes=0, tail_bytes=10)
    assert (done.stdout, done.raw["stdout"]["total_bytes"]) == (NUMBERS[-10:], len(NUMBERS))
    assert box.streams == {}


def test_streams_up_to_the_limit_and_counts_on(box: Client) -> None:
    out = box.open_stream()
    done = box.shell("seq 200000", stdout=out, stream_limit=100_001)
    assert box.wait_closed(out) == NUMBERS[:100_001]
    assert (done.raw["stdout"]["total_bytes"], done.raw["stdout"]["streamed_bytes"]) == (len(NUMBERS), 100_001)
    assert done.stdout.endswith(b"200000\n")


def test_no_limit_is_no_limit(box: Client) -> None:
    out = box.open_stream()
    done = box.shell("head -c 70000000 /dev/zero", stdout=out, stream_limit=-1)
    assert len(box.wait_closed(out)) == done.raw["stdout"]["total_bytes"] == 70_000_000


def test_without_credit_the_command_waits_and_everything_else_goes_on(box: Client) -> None:
    box.is_giving_credit = False
    out = box.open_stream()
    running = box.start_shell("seq 200000; echo done > finished", stdout=out)
    box.wait_until(lambda: len(box.streams[out]) == INITIAL_CREDIT)
    started = time.monotonic()
    assert box.shell("cat finished").stdout == b""
    assert box.exec("echo", "other").stdout == b"other\n"
    box.call("ping")
    assert time.monotonic() - started < 2
    assert len(box.streams[out]) == INITIAL_CREDIT
    box.notify("stream.credit", {"stream": out, "bytes": 1})
    box.wait_until(lambda: len(box.streams[out]) == INITIAL_CREDIT + 1)
    box.notify("stream.credit", {"stream": out, "bytes": len(NUMBERS)})
    assert Done(box.wait(running)["result"]).raw["stdout"]["total_bytes"] == len(NUMBERS)
    assert box.wait_closed(out) == NUMBERS


def test_timeout_fires_without_credit(box: Client) -> None:
    box.is_giving_credit = False
    out = box.open_stream()
    started = time.monotonic()
    running = box.start_shell("yes", stdout=out, timeout_s=0.3)
    box.wait_until(lambda: len(box.streams[out]) == INITIAL_CREDIT)
    result = Done(box.wait(running, 6)["result"])
    assert result.status == "timeout"
    assert 0.25 < time.monotonic() - started < 4.5
    box.notify("stream.credit", {"stream": out, "bytes": 1 << 20})
    assert set(box.wait_closed(out)) == set(b"y\n")


def test_the_answer_holds_what_came_after_the_credit_ran_out(box: Client) -> None:
    """The command has ended, its last bytes are still in the pipe: they belong to the answer."""
    box.is_giving_credit = False
    out = box.open_stream()
    running = box.start_shell(f"head -c {INITIAL_CREDIT} /dev/zero; printf last", stdout=out)
    box.wait_until(lambda: len(box.streams[out]) == INITIAL_CREDIT)
    time.sleep(0.2)
    assert running not in box.answers
    box.notify("stream.credit", {"stream": out, "bytes": 100})
    assert Done(box.wait(running)["result"]).stdout.endswith(b"\0last")
    assert box.wait_closed(out).endswith(b"\0last")


def test_a_host_that_does_not_read_costs_bounded_memory(box: Client) -> None:
    before = box.call("stats")["rss"]
    running = [box.request("exec", {"argv": ["yes"], "stdout": box.open_stream()}) for _ in range(20)]
    time.sleep(0.7)  # nothing is read in this time: the pipe to the host is full, the credit is not
    for number in running:
        box.request("exec.cancel", {"id": number})
    for number in running:
        assert box.wait(number)["result"]["status"] == "killed"
    assert box.call("stats")["rss"] - before < 8 << 20


def test_endless_output_ends_at_its_timeout_in_bounded_memory(box: Client) -> None:
    before = box.call("stats")["rss"]
    out = box.open_stream()
    started = time.monotonic()
    done = box.shell("yes", stdout=out, timeout_s=1.0, stream_limit=5 << 20)
    assert 0.9 < time.monotonic() - started < 2.9
    assert done.status == "timeout"
    assert done.raw["stdout"]["streamed_bytes"] == len(box.wait_closed(out)) == 5 << 20
    assert done.raw["stdout"]["total_bytes"] > 5 << 20
    assert box.call("stats")["rss"] - before < 4 << 20


def test_a_closed_output_ends_its_stream_before_its_command(box: Client) -> None:
    out = box.open_stream()
    running = box.start_shell("echo x; exec >&- 251>&-; sleep 30", stdout=out)
    assert box.wait_closed(out, 3) == b"x\n"
    assert running not in box.answers
    box.call("exec.cancel", {"id": running})
    assert Done(box.wait(running)["result"]).stdout == b"x\n"


def test_large_input_flows_under_credit(box: Client) -> None:
    """16 MiB in and out again through cat: four streams' worth of credit, neither side ever full."""
    source, out = box.open_stream(), box.open_stream()
    running = box.request("exec", {"argv": ["cat"], "stdin": source, "stdout": out})
    block = bytes(range(256)) * 256
    for _ in range(256):
        box.wait_until(lambda: box.credit[source] >= len(block))
        box.credit[source] -= len(block)
        box.send_chunk(source, block)
    box.notify("stream.close", {"stream": source, "total": 256 * len(block)})
    assert box.wait(running)["result"]["exit_code"] == 0
    assert box.wait_closed(out) == block * 256


def test_an_answer_tells_of_the_end_of_its_streams(box: Client) -> None:
    """No message of its own for each; only what outlives the call is told later."""
    quiet, kept = box.open_stream(), box.open_stream()
    done = box.shell("exec 2>&-; sleep 0.3 & exit 3", stdout=kept, stderr=quiet)
    assert (done.raw["stdout"]["closed"], done.raw["stderr"]["closed"]) == (False, True)
    assert kept not in box.closed
    assert box.wait_closed(kept) == b""


def test_streams_of_a_command_that_never_ran_are_closed(box: Client) -> None:
    out = box.open_stream()
    done = box.exec("/nothing/here", stdout=out)
    assert (done.status, box.wait_closed(out)) == ("not_started", b"")
