"""Every way a call ends: time-outs, cancels, escapees, bombs, what stays in the background."""

from __future__ import annotations

import base64
import os
import time

import pytest
from tests.unit.toolbox.client import COUNT_ZOMBIES, WORKSPACE, Client, Done

BOMB = """
import os, time
for _ in range({count}):
    try:
        if os.fork() == 0:
            os.setsid()
            while True:
                try:
                    if os.fork() == 0:
                        continue
                except OSError:
                    pass
                time.sleep({pause})
    except OSError:
        break
time.sleep(100)
"""
"""Forkers that stay alive, each in a session of its own, forking on and on."""


def _processes(box: Client) -> int:
    count = box.call("stats")["processes"]
    assert isinstance(count, int)
    return count


def _size(box: Client, path: str) -> int:
    size = box.call("file.read", {"path": path, "limit": 1})["size"]
    assert isinstance(size, int)
    return size


def _is_running(box: Client, mark: str) -> bool:
    """Does any process carry this argument?"""
    return box.shell(f"grep -lz '^{mark}$' /proc/[0-9]*/cmdline", cwd="/").exit_code == 0


def test_timeout_kills_the_tree_and_keeps_the_output(box: Client) -> None:
    started = time.monotonic()
    done = box.shell("echo before; echo err >&2; setsid sleep 311 & sleep 312", timeout_s=0.5)
    assert 0.4 < time.monotonic() - started < 2.4
    assert done.outcome == ("timeout", 0, b"before\n", b"err\n")
    assert (done.signal, done.background) == (9, 0)
    assert not _is_running(box, "311") and not _is_running(box, "312")


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.003, 0.01, 0.1])
def test_cancel_at_any_moment(box: Client, delay_s: float) -> None:
    for _ in range(10):
        running = box.start_shell("sleep 313 & sleep 313")
        time.sleep(delay_s)
        box.call("exec.cancel", {"id": running})
        assert Done(box.wait(running, 3)["result"]).status == "killed"
    assert not _is_running(box, "313")


def test_cancel_of_what_is_over_is_no_error(box: Client) -> None:
    running = box.start_shell("true")
    box.wait(running)
    assert box.call("exec.cancel", {"id": running}) == {}
    assert box.call("exec.cancel", {"id": 999}) == {}


def test_neighbours_live_through_the_end_of_a_call(box: Client) -> None:
    neighbour = box.start_shell("for i in $(seq 12); do echo $i; sleep 0.05; done")
    for _ in range(5):
        box.shell("sleep 314", timeout_s=0.1)
    result = Done(box.wait(neighbour)["result"])
    assert result.outcome == ("exited", 0, "".join(f"{i}\n" for i in range(1, 13)).encode(), b"")


def test_neighbours_that_fork_all_the_time_live_on(box: Client) -> None:
    """A process born during the stop must not stay stopped."""
    command = "i=0; while [ $i -lt 150 ]; do /bin/true; i=$((i+1)); done; echo $i"
    neighbours = [box.start_shell(command) for _ in range(3)]
    while not all(number in box.answers for number in neighbours):
        running = box.start_shell("sleep 314")
        box.call("exec.cancel", {"id": running})
        box.wait(running)
    assert [Done(box.wait(number)["result"]).stdout for number in neighbours] == [b"150\n"] * 3


def test_escapees_of_every_kind_are_found(box: Client) -> None:
    script = """
(setsid sh -c 'setsid sleep 315 & exit' &) ; nohup sleep 315 & disown
/usr/bin/python3 -c 'import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execvp("sleep", ["sleep", "315"])'
trap '' TERM INT HUP; sleep 0.2; echo ready; sleep 315
"""
    done = box.shell(script, timeout_s=1.0)
    assert (done.status, done.stdout) == ("timeout", b"ready\n")
    assert not _is_running(box, "315")


def test_stopped_and_signal_proof_processes_die_too(box: Client) -> None:
    done = box.shell("sleep 316 & kill -STOP $!; trap '' TERM; kill -STOP $$", timeout_s=0.5)
    assert done.status == "timeout"
    assert not _is_running(box, "316")


def test_processes_that_wake_each_other_die_too(box: Client) -> None:
    """SIGCONT from one to all, all the time: a stop of everything never lasts by itself."""
    waker = "import os, signal\nfor _ in range(3): os.fork()\nwhile True: os.kill(-1, signal.SIGCONT)"
    done = Done(box.call("exec", {"argv": ["/usr/bin/python3", "-c", waker], "timeout_s": 0.6}))
    assert done.status == "timeout"
    assert _processes(box) < 10


def test_background_does_not_hold_the_call(box: Client) -> None:
    started = time.monotonic()
    done = box.shell("sleep 317 & echo started; exit 3")
    assert time.monotonic() - started < 1.9
    assert (done.outcome, done.background) == (("exited", 3, b"started\n", b""), 1)
    box.wait_true(lambda: _is_running(box, "317"))  # it may still be on its way from fork to exec
    started = time.monotonic()
    assert box.shell("true").exit_code == 0
    assert time.monotonic() - started < 1.9


def test_background_can_be_cancelled_by_the_id_of_its_call(box: Client) -> None:
    running = box.start_shell("sleep 318 & echo started")
    assert box.wait(running)["result"]["background"] == 1
    box.call("exec.cancel", {"id": running})
    box.wait_true(lambda: not _is_running(box, "318"), 2)


def test_background_can_be_ended_with_its_command(box: Client) -> None:
    out = box.open_stream()
    done = box.shell("setsid sleep 319 & echo started", kill_background=True, stdout=out)
    assert (done.outcome, done.background) == (("exited", 0, b"started\n", b""), 0)
    assert box.wait_closed(out) == b"started\n"
    assert not _is_running(box, "319")


def test_output_of_the_background_stays_in_its_stream(box: Client) -> None:
    out = box.open_stream()
    first = box.shell("(for i in 1 2 3 4; do sleep 0.2; echo tick$i; done) & echo started", stdout=out)
    second = box.shell("sleep 0.4; echo mine")
    assert (first.stdout, second.stdout) == (b"started\n", b"mine\n")
    assert box.wait_closed(out) == b"started\ntick1\ntick2\ntick3\ntick4\n"


def test_a_background_that_never_pauses_does_not_delay_the_answer(box: Client) -> None:
    started = time.monotonic()
    done = box.shell("yes & sleep 0.2; exit 4", kill_background=False)
    assert (done.exit_code, done.background) == (4, 1)
    assert time.monotonic() - started < 2.0
    box.call("kill_all")


def test_supervisor_reaps_orphans_all_the_time(box: Client) -> None:
    script = "for i in $(seq 100); do (setsid sh -c 'sleep 0.1 & exec sleep 0.05' >/dev/null 2>&1 &); done"
    assert box.shell(f"{script}; {COUNT_ZOMBIES}").stdout == b"0\n"
    box.wait_true(lambda: box.call("stats")["zombies"] == 0, 2)


def test_a_supervisor_killed_from_outside_takes_its_call_along(box: Client) -> None:
    """Only the kernel (out of memory) or the host's root can do it; here we are that root."""
    running = box.start_shell("setsid sleep 323 & sleep 323")
    neighbour = box.start_shell("sleep 324; echo fine")
    box.wait_true(lambda: box.shell("pgrep -fc '^sleep 32[34]'").stdout == b"3\n")
    first = box.children(box.process.pid)[0]
    for pid in box.children(first):
        if any(b"sleep 323" in box.command_line(child) for child in box.children(pid)):
            os.kill(pid, 9)
    done = Done(box.wait(running)["result"])
    assert (done.status, done.notices) == ("killed", ["its supervisor was killed"])
    assert neighbour not in box.answers
    box.shell("pkill -f '^sleep 324'")
    assert Done(box.wait(neighbour)["result"]).stdout == b"fine\n"
    box.wait_true(lambda: not _is_running(box, "323"))


def test_kill_all_ends_everything_and_answers_when_it_has(box: Client) -> None:
    lingering = box.shell("setsid sleep 320 & echo x")
    assert lingering.background == 1
    running = [box.start_shell("sleep 320 | sleep 320") for _ in range(5)]
    box.shell("true")
    assert box.call("kill_all") == {}
    assert [box.wait(number)["result"]["status"] for number in running] == ["killed"] * 5
    assert not _is_running(box, "320")


def test_freeze_stops_everything_until_thaw(box: Client) -> None:
    running = box.start_shell("while true; do echo >> count; done")
    sleeping = box.start_shell("sleep 321 | sleep 321")
    box.shell("true")
    time.sleep(0.1)
    reply = box.call("freeze")
    assert reply["unstoppable"] == 0
    assert reply["stopped"] >= 4
    before = _size(box, "count")
    time.sleep(0.2)
    assert _size(box, "count") == before
    assert box.fail("exec", {"argv": ["true"]})["code"] == "busy"
    assert box.call("thaw") == {}
    time.sleep(0.1)
    assert _size(box, "count") != before
    for number in (running, sleeping):
        box.call("exec.cancel", {"id": number})
        assert box.wait(number)["result"]["status"] == "killed"


def test_a_call_ends_although_the_box_is_frozen_and_others_stay_frozen(box: Client) -> None:
    running = box.start_shell("while true; do echo >> count; done")
    box.wait_true(lambda: box.shell("test -s count").exit_code == 0)
    short = box.start_shell("sleep 322", timeout_s=0.4)
    box.shell("true")
    box.call("freeze")
    assert box.wait(short)["result"]["status"] == "timeout"
    before = _size(box, "count")
    time.sleep(0.1)
    assert _size(box, "count") == before
    box.call("kill_all")
    assert box.wait(running)["result"]["status"] == "killed"


@pytest.mark.parametrize("pause", ["0.05", "0.0005"])
def test_a_bomb_of_live_forkers_neither_starves_nor_survives(small_box: Client, pause: str) -> None:
    box = small_box
    small = base64.b64encode(b"x" * 10_240).decode()
    box.call("file.write", {"path": "f", "content_b64": small})
    running = box.request("exec", {"argv": ["/usr/bin/python3", "-c", BOMB.format(count=250, pause=pause)]})
    box.wait_true(lambda: box.call("stats")["pids_refused"] > 0, 30)
    times = []
    for _ in range(9):
        started = time.monotonic()
        assert box.call("file.read", {"path": "f"})["size"] == 10_240
        times.append(time.monotonic() - started)
    # The median: this box has no share of the processor of its own, so whatever else the machine does counts, too.
    assert sorted(times)[4] < 0.25
    # Two spares are there; after them a command cannot be started, and that is said.
    answers = [box.wait(box.request("exec", {"argv": ["true"]})) for _ in range(4)]
    refused = [answer["error"]["data"]["code"] for answer in answers if "error" in answer]
    assert set(refused) == {"pids_exhausted"}
    started = time.monotonic()
    box.call("exec.cancel", {"id": running})
    result = Done(box.wait(running)["result"])
    assert time.monotonic() - started < 1.5
    assert (result.status, result.background) == ("killed", 0)
    assert result.raw["pids_refused"] > 0
    started = time.monotonic()
    assert box.call("file.read", {"path": "f"})["size"] == 10_240
    assert time.monotonic() - started < 1.0
    box.wait_true(lambda: "result" in box.wait(box.request("exec", {"argv": ["true"]})))
    assert _processes(box) < 12


def test_calls_stay_usable_after_many_of_every_kind(box: Client) -> None:
    for i in range(60):
        kind = i % 4
        if kind == 0:
            assert box.shell("true").exit_code == 0
        elif kind == 1:
            assert box.shell("sleep 1 & true").background == 1
        elif kind == 2:
            assert box.exec("/none").status == "not_started"
        else:
            assert box.shell("sleep 9", timeout_s=0.01).status == "timeout"
    box.wait_true(lambda: _processes(box) <= 8)
    assert box.shell("ls /proc/self/fd | wc -l; pwd").cwd == WORKSPACE
