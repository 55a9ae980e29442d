"""A held command: made ready at once, started when the host says so, and never without."""

from __future__ import annotations

import time

import pytest
from tests.unit.toolbox.client import WORKSPACE, Client, Done

MARK = f"{WORKSPACE}/ran"


def hold(box: Client, command: str = "touch ran", **more: object) -> int:
    return box.start_shell(command, hold=True, **more)


def go(box: Client, number: int) -> None:
    box.notify("exec.go", {"id": number})


def has_run(box: Client) -> bool:
    return box.exec("test", "-e", MARK).exit_code == 0


def test_a_held_command_starts_when_it_is_told(box: Client) -> None:
    number = hold(box)
    time.sleep(0.3)  # a command that did not wait would be through
    assert not has_run(box)
    assert number not in box.answers
    go(box, number)
    assert Done(box.wait(number)["result"]).exit_code == 0
    assert has_run(box)


def test_its_time_counts_from_its_start(box: Client) -> None:
    number = hold(box, "sleep 1", timeout_s=2)
    time.sleep(2.2)
    go(box, number)
    done = Done(box.wait(number)["result"])
    assert done.outcome[0] == "exited"
    assert done.raw["duration_s"] < 2


def test_a_time_limit_holds_once_it_runs(box: Client) -> None:
    number = hold(box, "sleep 50", timeout_s=0.2)
    go(box, number)
    assert Done(box.wait(number)["result"]).outcome[0] == "timeout"


@pytest.mark.parametrize("end", ["exec.cancel", "kill_all"])
def test_one_that_is_ended_before_never_starts(box: Client, end: str) -> None:
    number = hold(box)
    box.call(end, {"id": number} if end == "exec.cancel" else None)
    assert Done(box.wait(number)["result"]).outcome == ("killed", 0, b"", b"")
    go(box, number)
    assert box.shell("true").exit_code == 0
    time.sleep(0.2)
    assert not has_run(box)


def test_in_a_frozen_box_it_starts_with_the_thaw(box: Client) -> None:
    number = hold(box)
    assert box.call("freeze")["unstoppable"] == 0
    go(box, number)
    time.sleep(0.3)
    assert box.call("file.list", {"path": ""})["entries"] == []
    box.call("thaw")
    assert Done(box.wait(number)["result"]).exit_code == 0
    assert has_run(box)


def test_a_freeze_holds_up_none_that_waits(box: Client) -> None:
    number = hold(box)
    started = time.monotonic()
    box.call("freeze")
    box.call("thaw")
    assert time.monotonic() - started < 0.9  # a freeze gives up on a command that is about to appear after a second
    go(box, number)
    assert Done(box.wait(number)["result"]).exit_code == 0


def test_one_that_cannot_be_run_waits_as_well_and_spoils_no_later_call(box: Client) -> None:
    number = box.request("exec", {"argv": ["no-such-program"], "hold": True})
    assert box.shell("true").exit_code == 0
    assert number not in box.answers
    go(box, number)
    assert Done(box.wait(number)["result"]).outcome[0] == "not_started"
    for _ in range(4):  # each waiting supervisor in turn
        assert box.shell("echo here").outcome == ("exited", 0, b"here\n", b"")


@pytest.mark.parametrize("params", [{"id": 99}, {"id": "1"}, {"id": None}, {}, {"id": -1}])
def test_a_start_of_nothing_is_no_error(box: Client, params: dict[str, object]) -> None:
    box.notify("exec.go", params)
    assert box.shell("true").exit_code == 0


def test_a_second_start_is_none(box: Client) -> None:
    number = hold(box, "echo once >> ran; sleep 0.2")
    for _ in range(3):
        go(box, number)
    box.wait(number)
    go(box, number)
    assert box.shell("cat ran").outcome == ("exited", 0, b"once\n", b"")


def test_many_wait_at_once(box: Client) -> None:
    numbers = [hold(box, f"echo {one}") for one in range(12)]
    for number in reversed(numbers):
        go(box, number)
    assert [Done(box.wait(number)["result"]).outcome[2] for number in numbers] == [b"%d\n" % one for one in range(12)]


def test_the_box_ends_while_one_waits(box: Client) -> None:
    hold(box)
    box.shell("true")
    assert "Traceback" not in box.close()
