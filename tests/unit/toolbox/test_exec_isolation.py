"""What a command cannot do to the toolbox, and what it does not get from it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from tests.unit.toolbox.client import GID, TOOLBOX, UID, Client, Done


def test_command_has_no_privilege_and_cannot_regain_any(box: Client) -> None:
    status = box.shell("cat /proc/self/status").stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    none = "0" * 16
    assert {name: fields[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        "CapInh": none,
        "CapPrm": none,
        "CapEff": none,
        "CapBnd": none,
        "CapAmb": none,
    }
    assert fields["Uid"].split() == [str(UID)] * 4
    assert fields["Gid"].split() == [str(GID)] * 4
    assert fields["Groups"].strip() == ""
    assert fields["NoNewPrivs"] == "1"
    assert fields["SigBlk"] == none
    assert fields["SigIgn"] == none


def test_set_id_programs_change_nothing(box: Client) -> None:
    assert (
        box.shell("mount -t tmpfs none /mnt; su -c id; passwd -S 2>&1; id -u").stdout.split()[-1] == str(UID).encode()
    )


def test_command_inherits_no_descriptor(box: Client) -> None:
    done = box.exec("ls", "-l", "/proc/self/fd")
    links = [line.split(" -> ") for line in done.stdout.decode().splitlines()[1:]]
    places = {left.split()[-1]: right for left, right in links if not right.endswith("/fd")}  # ls has its directory
    assert places.keys() == {"0", "1", "2"}
    assert places["0"] == "/dev/null"
    # A shell call has one more: where it tells its last directory.
    done = box.shell("ls /proc/$$/fd")
    assert set(done.stdout.split()) == {b"0", b"1", b"2", b"251"}


def test_command_opens_its_outputs_by_name(box: Client) -> None:
    done = box.shell("echo out > /dev/stdout; echo err > /dev/stderr; echo again | tee /dev/stderr")
    assert done.outcome == ("exited", 0, b"out\nagain\n", b"err\nagain\n")


def test_toolbox_can_be_neither_signalled_nor_traced_nor_read(box: Client) -> None:
    script = """
for pid in 1 $PPID; do
  for name in mem environ maps stack syscall auxv io fd/0 fd/1 root cwd exe ns/pid; do
    cat /proc/$pid/$name >/dev/null 2>&1 && echo "read $pid $name"
    [ -L /proc/$pid/$name ] && readlink /proc/$pid/$name
    (exec 2>/dev/null; : >> /proc/$pid/$name) 2>/dev/null && echo "wrote $pid $name"
  done
  ls /proc/$pid/fd 2>/dev/null && echo "listed $pid"
  for signal in TERM KILL STOP INT USR1; do kill -$signal $pid 2>/dev/null && echo "signalled $pid $signal"; done
  echo 0 2>/dev/null > /proc/$pid/oom_score_adj && echo "adjusted $pid"
  prlimit --nofile=3 --pid $pid 2>/dev/null && echo "limited $pid"
done
for pid in $(ls /proc | grep '^[0-9]*$'); do
  [ "$(stat -c %u /proc/$pid 2>/dev/null)" = 0 ] && kill -9 $pid 2>/dev/null && echo "killed $pid"
done
true
"""
    assert box.shell(script).outcome == ("exited", 0, b"", b"")
    tracer = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in (1, os.getppid()):
    for request in (16, 0x4206):
        print(libc.ptrace(request, pid, 0, 0), ctypes.get_errno())
"""
    assert box.exec("/usr/bin/python3", "-c", tracer).stdout == b"-1 1\n" * 4
    assert box.call("ping")


def test_kill_of_everything_reaches_only_the_same_user(box: Client) -> None:
    out = box.open_stream()
    neighbour = box.start_shell("echo up; exec sleep 30", stdout=out)
    box.wait_until(lambda: bool(box.streams[out]))
    assert box.shell("kill -9 -1; echo still here").stdout == b"still here\n"
    assert box.wait(neighbour)["result"]["signal"] == 9
    assert box.shell("echo alive").outcome == ("exited", 0, b"alive\n", b"")


def test_kill_of_everything_does_not_reach_the_supervisor_that_has_just_started_it(box: Client) -> None:
    for _ in range(30):
        assert box.shell("kill -9 -1; echo here").outcome == ("exited", 0, b"here\n", b"")


WATCH_IDS = """
import os, time
seen, hits = set(), 0
def read_status(thread):
    lines = open(f"/proc/{thread}/status").read().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
def attack(thread):
    global hits
    status = read_status(thread)
    if status["PPid"][0] != "1" and status["Tgid"][0] != "1":
        return  # a command that has not started yet: the same user's; or one that has just been reaped, which has none
    seen.update(status["Uid"][:3] + status["Gid"][:3])
    for act in (lambda: os.kill(thread, 9), lambda: os.sched_setaffinity(thread, {0})):
        try:
            act()
            hits += 1
        except OSError:
            pass
end = time.monotonic() + 4
while time.monotonic() < end:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}/status").st_uid == 0:
                for thread in os.listdir(f"/proc/{name}/task") * 20:
                    attack(int(thread))
        except OSError:
            pass
print(sorted(seen), hits)
"""


def test_ids_of_supervisors_are_roots_at_every_moment_of_a_call(box: Client) -> None:
    """Looked at and attacked by a neighbour, thread by thread, while they start one command after the other."""
    watch = box.request("exec", {"argv": ["/usr/bin/python3", "-c", WATCH_IDS]})
    while watch not in box.answers:
        assert box.exec("/bin/true").outcome == ("exited", 0, b"", b"")
    assert Done(box.wait(watch)["result"]).outcome == ("exited", 0, b"['0'] 0\n", b"")


def test_command_is_the_kernels_first_victim_and_yields_the_processor(box: Client) -> None:
    done = box.shell("cat /proc/self/oom_score_adj; nice; ulimit -c; ulimit -n; cat /proc/1/oom_score_adj")
    adjusted, nice, core, files, first = done.stdout.split()
    assert (adjusted, int(nice), core) == (b"1000", min(os.nice(0) + 15, 19), b"0")
    assert int(first) < 1000
    assert int(files) <= 1 << 20


def test_command_has_a_session_of_its_own(box: Client) -> None:
    pid, group, session = box.exec("sh", "-c", "cut -d' ' -f1,5,6 /proc/$$/stat").stdout.split()
    assert pid == group == session


def test_time_to_live_of_secrets_is_not_in_a_command(box: Client) -> None:
    """Nothing of the host's other calls is in a command's reach through what it inherits."""
    box.exec("true", env={"TOKEN": "s3cr3t-of-another-call"})
    done = box.shell("cat /proc/self/environ /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
    assert b"s3cr3t" not in done.stdout


@pytest.fixture
def quit_ignored() -> Iterator[None]:
    old = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGQUIT, old)


def test_command_ignores_no_signal_although_who_started_the_box_did(quit_ignored: None, box: Client) -> None:
    lines = box.shell("grep -h Sig[IB] /proc/1/status /proc/self/status").stdout.split()
    assert int(lines[3], 16) & 1 << (signal.SIGQUIT - 1)
    assert set(lines[5::2]) == {b"0" * 16}


def test_signals_that_the_c_library_keeps_for_itself_are_not_ignored_either() -> None:
    """posix_spawn of glibc leaves 32 and 33 ignored in whatever it starts."""
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from corral_toolbox.kernel import disposition;"
        " show = lambda: int(open('/proc/self/status').read().split('SigIgn:')[1].split()[0], 16) >> 31 & 3;"
        " before = show(); disposition.reset_before_exec(); print(before, show())"
    )
    reader, writer = os.pipe()
    argv = ["/usr/bin/python3", "-I", "-S", "-c", script, str(TOOLBOX)]
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)])
    os.close(writer)
    with open(reader) as told:
        before, after = told.read().split()
    assert (os.waitpid(pid, 0)[1], after) == (0, "0")
    assert before != "0"
