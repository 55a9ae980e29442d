"""The filter of a call: what it traps, what it refuses, what it costs nothing."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest
from tests.unit.toolbox.client import Client

from corral_toolbox.kernel import notify

ALLOW, NOTIFY, ENOSYS = 0x7FFF0000, 0x7FC00000, 0x00050026
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(os.uname().machine, 0)


def _judge(call: int, *arguments: int, arch: int = ARCH, ticket: int = 0) -> int:
    """Run the program as the kernel does."""
    data = struct.pack("=iIQ6Q", call, arch, 0, *(list(arguments) + [0] * 6)[:6])
    program = list(struct.iter_unpack("=HBBI", notify._build_filter(ticket)))
    held, place = 0, 0
    while True:
        code, yes, no, value = program[place]
        place += 1
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            held &= value
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            place += yes if holds else no


pytestmark = pytest.mark.skipif(not ARCH, reason=f"no filter for {os.uname().machine}")
SENDMSG, SENDMMSG = notify.SENDMSG, notify.SENDMMSG


@pytest.mark.parametrize(
    ("verdict", "call", "arguments"),
    [
        (NOTIFY, notify.EXECVE, ()),
        (NOTIFY, notify.EXECVEAT, ()),
        (NOTIFY, notify.CONNECT, ()),
        (NOTIFY, notify.BIND, ()),
        (ALLOW, notify.SENDTO, (3, 4, 5, 6, 0, 7)),
        (NOTIFY, notify.SENDTO, (3, 4, 5, 6, 0x1000, 7)),
        (NOTIFY, notify.SENDTO, (3, 4, 5, 6, 0x7FFF << 32, 7)),
        (ALLOW, notify.SOCKET, (1, 2, 0)),
        (ALLOW, notify.SOCKET, (2, 1, 0)),
        (ALLOW, notify.SOCKET, (10, 1 | 0o2004000, 0)),
        (NOTIFY, notify.SOCKET, (2, 2 | 0o2004000, 0)),
        (NOTIFY, notify.SOCKET, (10, 2, 0)),
        (NOTIFY, notify.SOCKET, (2, 3, 1)),
        (NOTIFY, notify.SOCKET, (1 << 32 | 2, 1 << 32 | 2, 0)),
        (ALLOW, SENDMSG, (3, 4, 0x4000)),
        (NOTIFY, SENDMSG, (3, 4, 0x20004000)),
        (ALLOW, SENDMMSG, (3, 4, 0x20000000, 0)),
        (NOTIFY, SENDMMSG, (3, 4, 1, 0x20000000)),
        (ENOSYS, 0x40000000 + notify.EXECVE, ()),
        (ENOSYS, -1, ()),
        (ALLOW, 0, ()),
    ],
)
def test_filter_traps_exactly_what_is_recorded(verdict: int, call: int, arguments: tuple[int, ...]) -> None:
    assert _judge(call, *arguments) == verdict


def test_filter_refuses_calls_of_another_architecture() -> None:
    assert _judge(11, arch=0x40000003) == ENOSYS


def test_only_the_ticket_of_the_starter_passes_unseen() -> None:
    ticket = 0x1234567890ABCDEF
    execve = (1, 2, 3)
    assert _judge(notify.EXECVE, *execve, ticket, ticket=ticket) == ALLOW
    for other in (0, ticket ^ 1, ticket ^ 1 << 63, ticket & 0xFFFFFFFF, ticket >> 32 << 32):
        assert _judge(notify.EXECVE, *execve, other, ticket=ticket) == NOTIFY
    assert _judge(notify.EXECVEAT, 1, 2, 3, ticket, ticket=ticket) == NOTIFY
    assert _judge(notify.EXECVE, *execve, 0) == NOTIFY  # where there is none


@pytest.fixture
def watched(box: Client) -> Iterator[Client]:
    yield box


def _events(box: Client, number: int) -> list[dict[str, object]]:
    box.wait_until(lambda: number in box.answers)
    told = [notice["params"] for notice in box.notices if notice["params"]["id"] == number]
    return [event for params in told for event in params["events"]]


def test_events_of_a_call_come_before_its_answer(watched: Client) -> None:
    number = watched.start_shell("/bin/echo one; env true")
    first, echo, env, true = _events(watched, number)
    assert (first["path"], first["argv"]) == ("/bin/bash", ["bash", "-c", "/bin/echo one; env true"])
    assert (echo["path"], echo["argv"], echo["parent"]) == ("/bin/echo", ["/bin/echo", "one"], first["pid"])
    assert (env["argv"], true["argv"], env["pid"]) == (["env", "true"], ["true"], true["pid"])


def test_a_search_along_path_is_one_event_and_a_failed_one_is_marked(watched: Client) -> None:
    number = watched.start_shell("env sh -c :; env nowhere; :")
    *_, found, _, failed = _events(watched, number)
    assert (found["argv"], found.get("mark")) == (["sh", "-c", ":"], None)
    assert (failed["argv"], failed["mark"]) == (["nowhere"], "not_found")


def test_a_program_that_is_not_there_is_no_event(watched: Client) -> None:
    number = watched.request("exec", {"argv": ["nowhere"]})
    assert _events(watched, number) == []
    assert watched.wait(number)["result"]["exit_code"] == 127


def test_supervisors_go_on_from_call_to_call(watched: Client) -> None:
    for turn in range(12):
        number = watched.start_shell(f"/bin/true {turn}; :")
        assert [event["argv"] for event in _events(watched, number)][1:] == [["/bin/true", str(turn)]]
        assert watched.wait(number)["result"]["exit_code"] == 0


def test_a_thread_may_start_a_program(watched: Client) -> None:
    script = (
        "import threading, os\nt = threading.Thread(target=os.execv, args=('/bin/true', ['t']))\nt.start()\nt.join()"
    )
    number = watched.request("exec", {"argv": ["/usr/bin/python3", "-c", script]})
    first, second = _events(watched, number)
    assert (second["argv"], second["pid"]) == (["t"], first["pid"])


FILTERS = "grep -h Seccomp_filters /proc/self/status /proc/1/status"


def test_a_box_that_is_not_watched_is_not_filtered_and_tells_nothing(silent_box: Client) -> None:
    assert "process_record" not in silent_box.hello(watch=False)["capabilities"]
    own, first = silent_box.shell(FILTERS).stdout.splitlines()
    assert (own == first, silent_box.notices) == (True, [])


def test_a_watched_command_has_one_more_filter(box: Client) -> None:
    own, first = (int(line.split()[1]) for line in box.shell(FILTERS).stdout.splitlines())
    assert own == first + 1
