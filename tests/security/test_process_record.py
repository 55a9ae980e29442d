"""What the record of processes and connections sees, and what it does not let happen to those who keep it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import docker
import psutil
import pytest
from tests.contract.boxes import make_spec, output

from corral.sandbox.base import CALL
from corral.sandbox.docker import DockerSandbox
from corral_protocol.message import EventKind, EventMark, ExecResult, ProcessEvent, ProcessEvents
from corral_protocol.name import decode_name

pytestmark = pytest.mark.docker
TELLS_ENDS = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)
"""Whether this kernel tells how processes end that are somebody else's children."""


@dataclass
class Watched:
    """A box and everything it told."""

    box: DockerSandbox
    told: list[tuple[str, ProcessEvents]] = field(default_factory=list)

    def events(self, call: str = "", kind: EventKind | None = None) -> list[ProcessEvent]:
        found = [event for name, batch in self.told if name == call for event in batch.events]
        return [event for event in found if kind in (None, event.kind)]

    def programs(self, call: str = "") -> list[tuple[str, ...]]:
        return [tuple(one.argv) for one in self.events(call, EventKind.EXEC) if one.mark is not EventMark.NOT_FOUND]

    def marks(self) -> dict[str, EventMark]:
        return {event.argv[0] if event.argv else "?": event.mark for event in self.events(kind=EventKind.EXEC)}

    async def python(self, script: str) -> str:
        result = await self.box.exec(["/usr/bin/python3", "-c", script], merge_stderr=True, timeout_s=60)
        return output(result.stdout).decode().strip()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(15):
            while not condition():
                await asyncio.sleep(0.02)


@pytest.fixture
async def watched(tmp_path: Path, image: str) -> AsyncIterator[Watched]:
    (tmp_path / "workspace").mkdir()
    told: list[tuple[str, ProcessEvents]] = []
    spec = make_spec(tmp_path / "workspace", tmp_path, image, observe=lambda call, batch: told.append((call, batch)))
    async with DockerSandbox(spec) as box:
        assert not [text for text in box.info.warnings if "recorded" in text]
        yield Watched(box, told)


async def test_every_program_of_nested_shells_is_told_with_parent_and_directory(watched: Watched) -> None:
    await watched.box.shell("cd /tmp; sh -c 'sh -c \"/bin/true deep; :\"; /bin/true less; :'", timeout_s=20)
    first, outer, inner, deep, less = watched.events(kind=EventKind.EXEC)
    assert [first.argv[:2], outer.argv[:2], inner.argv[:2]] == [["bash", "-c"], ["sh", "-c"], ["sh", "-c"]]
    assert (deep.path, deep.argv, deep.cwd, deep.cut, deep.mark) == (
        "/bin/true",
        ["/bin/true", "deep"],
        "/tmp",
        False,
        EventMark.NONE,
    )
    assert (outer.parent, inner.parent, deep.parent, less.parent) == (first.pid, outer.pid, inner.pid, outer.pid)
    assert {event.uid for event in watched.events()} == {watched.box.info.uid}


def how(watched: Watched, call: str = "") -> dict[tuple[str, ...], tuple[int | None, int]]:
    """How what ran ended: its code, its signal."""
    words = {one.pid: tuple(one.argv) for one in watched.events(call, EventKind.EXEC)}
    told = [end for name, batch in watched.told if name == call for end in batch.ends]
    return {words[end.pid]: (end.exit_code, end.signal) for end in told}


async def test_every_end_below_the_command_is_told_with_its_code_or_signal(watched: Watched) -> None:
    script = "sh -c 'exit 3'; sh -c 'kill -9 $$'; /bin/true; sh -c '/bin/false x; exit 4' | cat; :"
    await watched.box.shell(script, timeout_s=20)
    expected: dict[tuple[str, ...], tuple[int | None, int]] = {
        ("sh", "-c", "exit 3"): (3, 0),
        ("sh", "-c", "kill -9 $$"): (None, 9),
        ("/bin/true",): (0, 0),
        ("/bin/false", "x"): (1, 0),
        ("sh", "-c", "/bin/false x; exit 4"): (4, 0),
        ("cat",): (0, 0),
    }
    assert how(watched) == (expected if TELLS_ENDS else dict.fromkeys(expected, (None, 0)))


async def test_the_end_of_an_orphan_is_told_after_its_call(watched: Watched) -> None:
    CALL.set("first")
    await watched.box.shell("(setsid sh -c 'sleep 0.3; exit 6' >/dev/null 2>&1 &)", timeout_s=20)
    CALL.set("second")
    await watched.box.shell("true", timeout_s=20)
    orphan = ("sh", "-c", "sleep 0.3; exit 6")
    await watched.wait_for(lambda: orphan in how(watched, "first"))
    assert how(watched, "first")[orphan] == (6, 0)
    assert how(watched, "second") == {}


async def test_ends_of_many_at_once_are_all_told(watched: Watched) -> None:
    result = await watched.box.shell("for n in $(seq 400); do /bin/sh -c 'exit 7' & done; wait", timeout_s=60)
    assert (result.exit_code, result.background) == (0, 0)
    codes = [end.exit_code for _, batch in watched.told for end in batch.ends]
    assert (codes.count(7 if TELLS_ENDS else None), len(codes)) == (400, 401)  # and seq


async def test_a_daemon_is_told_under_the_call_it_came_from(watched: Watched) -> None:
    CALL.set("first")
    await watched.box.shell("(setsid sh -c 'sleep 0.5; /bin/true late' >/dev/null 2>&1 &)", timeout_s=20)
    CALL.set("second")
    await watched.box.shell("/bin/true other", timeout_s=20)
    await watched.wait_for(lambda: ("/bin/true", "late") in watched.programs("first"))
    assert watched.programs("second")[1:] == [("/bin/true", "other")]


async def test_programs_in_no_file_are_marked(watched: Watched) -> None:
    script = """
import os
def run(path, name):
    pid = os.fork()
    if not pid:
        os.execve(path, [name], {})
    assert os.waitpid(pid, 0)[1] == 0
memory = os.memfd_create("m")
os.write(memory, open("/bin/true", "rb").read())
run(memory, "by_descriptor")
os.set_inheritable(memory, True)
os.symlink("/proc/self", "/tmp/me")
os.symlink(f"/proc/self/fd/{memory}", "/tmp/it")
for name, path in ("self", "/proc/self"), ("thread", "/proc/thread-self"), ("dev", "/dev"), ("link", "/tmp/me"):
    run(f"{path}/fd/{memory}", name)
run("/tmp/it", "link_to_it")
open("/workspace/copy", "wb").write(open("/bin/true", "rb").read())
os.chmod("/workspace/copy", 0o755)
run("/workspace/copy", "plain")
copy = os.open("/workspace/copy", os.O_RDONLY)
os.unlink("/workspace/copy")
run(copy, "unlinked")
"""
    assert await watched.python(script) == ""
    names = ("by_descriptor", "self", "thread", "dev", "link", "link_to_it")
    assert watched.marks() == dict.fromkeys(names, EventMark.MEMORY) | {
        "/usr/bin/python3": EventMark.NONE,
        "plain": EventMark.NONE,
        "unlinked": EventMark.DELETED,
    }


async def test_what_does_not_let_itself_be_read_is_marked(watched: Watched) -> None:
    script = """
import ctypes, os
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
print(os.getpid(), flush=True)
os.execv("/bin/true", ["true", "secretly"])
"""
    pid = int(await watched.python(script))
    assert [(one.pid, one.mark, one.path) for one in watched.events()][1:] == [(pid, EventMark.UNREADABLE, "")]


async def test_arguments_at_impossible_addresses_are_marked_and_end_nothing(watched: Watched) -> None:
    script = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for path, argv in ((8, 8), (2**64 - 8, 2**63), (2**47, 0)):
    print(libc.syscall(59, ctypes.c_uint64(path), ctypes.c_uint64(argv), None))
print(libc.syscall(42, 3, ctypes.c_uint64(2**64 - 1), 16), libc.syscall(42, 2**31, None, 2**31))
"""
    assert await watched.python(script) == "-1\n-1\n-1\n-1 -1"
    marks = [one.mark for one in watched.events()][1:]
    assert marks == [EventMark.UNREADABLE] * 4  # an address without length reaches nobody


async def test_arguments_that_vanish_while_they_are_read_end_nothing(watched: Watched) -> None:
    script = """
import ctypes, mmap, os, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
place = libc.mmap(None, 4096, 3, 0x22, -1, 0)
end = time.monotonic() + 2
def flicker():
    while time.monotonic() < end:
        libc.mmap(place, 4096, 3, 0x32, -1, 0)
        ctypes.memmove(place, b"/nowhere/at/all", 16)
        libc.munmap(ctypes.c_void_p(place), 4096)
        libc.mmap(place, 4096, 3, 0x32, -1, 0)
threading.Thread(target=flicker).start()
while time.monotonic() < end:
    libc.syscall(59, ctypes.c_void_p(place), None, None)
"""
    assert await watched.python(script) == ""
    told = watched.events(kind=EventKind.EXEC)
    assert len(told) > 100
    assert {one.path for one in told[1:]} <= {"", "/nowhere/at/all"}


async def test_connections_are_told_with_their_address(watched: Watched) -> None:
    script = """
import contextlib, socket
def attempt(family, kind, act):
    with contextlib.suppress(OSError), socket.socket(family, kind) as one:
        act(one)
attempt(socket.AF_INET, socket.SOCK_STREAM, lambda one: one.connect(("192.0.2.7", 443)))
attempt(socket.AF_INET6, socket.SOCK_STREAM, lambda one: one.connect(("2001:db8::7", 8443)))
attempt(socket.AF_INET, socket.SOCK_DGRAM, lambda one: one.sendto(b"x", ("192.0.2.8", 4444)))
attempt(socket.AF_INET, socket.SOCK_STREAM, lambda one: one.bind(("127.0.0.1", 4321)))
attempt(socket.AF_UNIX, socket.SOCK_STREAM, lambda one: one.connect("/var/run/docker.sock"))
attempt(socket.AF_UNIX, socket.SOCK_STREAM, lambda one: one.connect("\\0hidden"))
attempt(socket.AF_INET, socket.SOCK_STREAM, lambda one: one.sendto(b"x", 0x20000000, ("192.0.2.9", 80)))
"""
    assert await watched.python(script) == ""
    told = [(one.kind.value, one.protocol, one.host, one.port) for one in watched.events()][1:]
    assert told == [
        ("connect", "tcp", "192.0.2.7", 443),
        ("connect", "tcp", "2001:db8::7", 8443),
        ("socket", "udp", "", 0),
        ("send", "udp", "192.0.2.8", 4444),
        ("bind", "tcp", "127.0.0.1", 4321),
        ("connect", "unix", "/var/run/docker.sock", 0),
        ("connect", "unix", "@hidden", 0),
        ("send", "tcp", "192.0.2.9", 80),
    ]


async def test_a_connection_hidden_in_sendmsg_is_refused(watched: Watched) -> None:
    script = """
import socket
one = socket.socket()
try:
    one.sendmsg([b"x"], [], socket.MSG_FASTOPEN, ("127.0.0.1", 80))
except OSError as error:
    print(error.errno)
"""
    assert await watched.python(script) == "95"
    (tried,) = watched.events()[1:]
    assert (tried.kind, tried.protocol, tried.host, tried.port, tried.errno) == (
        EventKind.SEND,
        "tcp",
        "127.0.0.1",
        80,
        95,
    )


async def test_a_look_up_of_a_name_is_told(watched: Watched) -> None:
    await watched.python("import socket\ntry: socket.getaddrinfo('evil.example', 80)\nexcept OSError: pass")
    assert 53 in {one.port for one in watched.events() if one.protocol == "udp"}


KEEPERS = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def errno(result):
    return "done" if result >= 0 else ctypes.get_errno()
def attempt(act):
    try:
        act()
        return "done"
    except OSError as error:
        return error.errno
keepers = [int(name) for name in os.listdir("/proc") if name.isdigit() and os.stat(f"/proc/{name}").st_uid == 0]
assert 1 in keepers and os.getppid() in keepers and len(keepers) >= 3, keepers
found = set()
for pid in keepers:
    for thread in os.listdir(f"/proc/{pid}/task"):
        for number in (0, 9, 19, 15):
            found.add(("kill", attempt(lambda: os.kill(int(thread), number))))
            found.add(("tgkill", errno(libc.syscall(234, pid, int(thread), number))))
        found.add(("prlimit", attempt(lambda: resource.prlimit(int(thread), resource.RLIMIT_NOFILE, (3, 3)))))
        found.add(("seize", errno(libc.ptrace(0x4206, int(thread), 0, 0))))
        found.add(("attach", errno(libc.ptrace(16, int(thread), 0, 0))))
        found.add(("affinity", attempt(lambda: os.sched_setaffinity(int(thread), {0}))))
        found.add(("nice", attempt(lambda: os.setpriority(os.PRIO_PROCESS, int(thread), 19))))
        for name in ("mem", "fd", "environ", "maps"):
            found.add(("open", attempt(lambda: os.listdir(f"/proc/{pid}/task/{thread}/{name}")
                if name == "fd" else os.read(os.open(f"/proc/{pid}/task/{thread}/{name}", os.O_RDONLY), 1))))
print(sorted(found, key=str))
"""


async def test_who_keeps_the_record_cannot_be_touched(watched: Watched) -> None:
    assert await watched.python(KEEPERS) == str(
        [
            ("affinity", 1),
            ("attach", 1),
            ("kill", 1),
            ("nice", 1),
            ("open", 13),
            ("prlimit", 1),
            ("seize", 1),
            ("tgkill", 1),
        ]
    )
    assert (await watched.box.shell("true", timeout_s=20)).exit_code == 0


async def test_calls_fail_closed_when_the_supervisor_is_dead(
    watched: Watched, docker_engine: docker.DockerClient
) -> None:
    first = docker_engine.api.inspect_container(watched.box.info.box_id)["State"]["Pid"]
    script = """
import ctypes, os, time
keeper = os.getppid()
print("here", flush=True)
while os.getppid() == keeper:
    time.sleep(0.01)
libc = ctypes.CDLL(None, use_errno=True)
def attempt(act):
    try:
        act()
        return 0
    except OSError as error:
        return error.errno
import socket
with open("/workspace/seen", "w") as out:
    print(attempt(lambda: os.execv("/bin/true", ["true"])), file=out)
    print(attempt(lambda: socket.socket().connect(("127.0.0.1", 9))), file=out)
    print(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)), file=out)
open("/workspace/done", "w").close()
time.sleep(60)
"""
    begun = asyncio.Event()
    running = asyncio.ensure_future(
        watched.box.exec(["/usr/bin/python3", "-c", script], stdout=lambda _: begun.set(), timeout_s=40)
    )
    await asyncio.wait_for(begun.wait(), 20)
    (supervisor,) = [
        one
        for one in psutil.Process(first).children()
        if any("time.sleep" in " ".join(child.cmdline()) for child in one.children())
    ]
    # Held still, or the first process ends what it inherits before it can try.
    os.kill(first, signal.SIGSTOP)
    try:
        os.kill(supervisor.pid, signal.SIGKILL)
        upper = watched.box.prepared.upper
        assert upper is not None, "this engine gives no overlay"
        await watched.wait_for((Path(os.fsdecode(upper)) / "done").exists)
        assert (Path(os.fsdecode(upper)) / "seen").read_text().split() == ["38", "38", "38"]  # ENOSYS
    finally:
        os.kill(first, signal.SIGCONT)
    result: ExecResult = await asyncio.wait_for(running, 20)
    assert result.notices == ["its supervisor was killed"]
    assert (await watched.box.shell("/bin/true again", timeout_s=20)).exit_code == 0


async def test_a_flood_is_bounded_and_counted(watched: Watched) -> None:
    script = """
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(36000):
    one.connect_ex(("127.0.0.1", 1 + number % 9))
"""
    assert await watched.python(script) == ""
    last = watched.told[-1][1]
    assert (len(watched.events()), len(watched.events()) + last.dropped) == (32768, 36002)
    await watched.box.exec(["/bin/true"])
    assert watched.told[-1][1].dropped == 0


async def test_the_box_can_be_frozen_and_killed_in_a_storm(watched: Watched) -> None:
    storm = asyncio.ensure_future(watched.box.shell("while :; do /bin/true; bash -c '/bin/true & /bin/true'; done"))
    await watched.wait_for(lambda: len(watched.programs()) > 50)
    for _ in range(5):
        assert (await watched.box.freeze()).unstoppable == 0
        await asyncio.sleep(0.1)  # what was on its way
        before = len(watched.events())
        await asyncio.sleep(0.1)
        assert len(watched.events()) == before
        await watched.box.thaw()
        await watched.wait_for(lambda: len(watched.events()) > before + 10)  # noqa: B023
    storm.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await storm
    assert (await watched.box.shell("/bin/true", timeout_s=20)).exit_code == 0


async def test_names_that_are_no_text_arrive_as_they_are(watched: Watched) -> None:
    await watched.box.shell(
        "printf '#!/bin/true\\n' > $'/tmp/a\\xff\\n'; chmod +x /tmp/a*; /tmp/a* $'\\xfe' " + "x" * 3000
    )
    event = watched.events(kind=EventKind.EXEC)[-1]
    assert decode_name(event.path) == b"/tmp/a\xff\n"
    assert [decode_name(word) for word in event.argv[1:]] == [b"\xfe", b"x" * 1024]
    assert event.cut


async def test_a_program_finds_nothing_of_what_lets_its_own_start_pass(watched: Watched) -> None:
    """Whoever knew the fourth argument of the start that no notice tells of could start programs unseen."""
    if os.uname().machine != "x86_64":
        pytest.skip("on other machines every start is told by a notice")
    source = """
.globl _start
_start:
    mov %r10, %rax
    or %r8, %rax
    or %r9, %rax
    or %rdx, %rax
    xor %edi, %edi
    test %rax, %rax
    setnz %dil
    mov $60, %eax
    syscall
"""
    await watched.box.write_file("/tmp/entry.s", source.encode())
    built = await watched.box.shell("cc -nostdlib -static -o /workspace/entry /tmp/entry.s", timeout_s=60)
    assert built.exit_code == 0
    CALL.set("it")
    assert (await watched.box.exec(["/workspace/entry"], timeout_s=20)).exit_code == 0
    assert watched.programs("it") == [("/workspace/entry",)]


async def test_a_start_with_a_made_up_fourth_argument_is_told(watched: Watched) -> None:
    script = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 59, "aarch64": 221}[os.uname().machine]
argv = (ctypes.c_char_p * 3)(b"true", b"forged", None)
libc.syscall(number, b"/bin/true", argv, None, ctypes.c_ulong(0x1122334455667788), 1, 2)
"""
    assert await watched.python(script) == ""
    assert watched.programs()[1:] == [("true", "forged")]
