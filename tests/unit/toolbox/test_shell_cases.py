"""The cases that shells under agents are known to break on, as far as the toolbox alone can hold them."""

from __future__ import annotations

import base64
import time

import pytest
from tests.unit.toolbox.client import COUNT_ZOMBIES, WORKSPACE, Client


def test_background_child_holding_stdout_delays_nobody(box: Client) -> None:  # C001
    started = time.monotonic()
    first = box.shell("sleep 30 & echo started")
    assert (first.outcome, first.background) == (("exited", 0, b"started\n", b""), 1)
    assert box.shell("true").outcome == ("exited", 0, b"", b"")
    assert time.monotonic() - started < 1.9


def test_process_substitution_leaks_into_nothing(box: Client) -> None:  # C002
    started = time.monotonic()
    assert box.shell("exec > >(tee -a /tmp/t.log) 2>&1; echo ok; sleep 0.1").outcome == ("exited", 0, b"ok\n", b"")
    assert box.shell("echo next").stdout == b"next\n"
    assert time.monotonic() - started < 1.9


def test_setsid_does_not_escape_the_timeout(box: Client) -> None:  # C004
    started = time.monotonic()
    done = box.shell("setsid sleep 300 & sleep 300", timeout_s=0.5)
    assert (done.status, done.background) == ("timeout", 0)
    assert time.monotonic() - started < 2.4


def test_reading_stdin_ends_at_once(box: Client) -> None:  # C005
    assert box.shell("cat").outcome == ("exited", 0, b"", b"")
    assert box.shell('read -r x; echo "[$x] rc=$?"').stdout == b"[] rc=1\n"
    failed = box.shell("python3 -c 'input()'")
    assert (failed.exit_code, b"EOFError" in failed.stderr) == (1, True)


@pytest.mark.parametrize(
    ("command", "stdout"),
    [
        ("cat <<'EOF'\nhi\nEOF", b"hi\n"),  # C007
        ("python3 - <<'PY'\nprint(1)\nPY", b"1\n"),  # C007
        ("echo hi # note", b"hi\n"),  # C008
        ("ls -d / #", b"/\n"),  # C008
        ("shopt -s extglob\ntouch a zz\nls !(zz)", b"a\n"),  # C010
        ("printf hello", b"hello"),  # C013
        ("printf 'a\\nb' >&2; printf c", b"c"),  # C013
        (
            "printf '%s|' \"a\\\"b\\\\c\" '$HOME' '!x' $'t\\tt' \"caf\u00e9\"",
            'a"b\\c|$HOME|!x|t\tt|caf\u00e9|'.encode(),
        ),  # C034
    ],
)
def test_command_reaches_the_shell_byte_for_byte(box: Client, command: str, stdout: bytes) -> None:
    done = box.shell(command)
    assert (done.status, done.exit_code, done.stdout) == ("exited", 0, stdout)


def test_syntax_errors_are_the_shells_own(box: Client) -> None:  # C010
    done = box.shell("if then")
    assert (done.exit_code, b"syntax error" in done.stderr) == (2, True)


def test_exit_ends_only_its_call(box: Client) -> None:  # C011
    started = time.monotonic()
    first = box.shell("cd /tmp; sleep 100 & exit 3")
    assert (first.exit_code, first.cwd, first.background) == (3, "/tmp", 1)
    assert box.shell("echo alive; pwd", cwd=first.cwd).stdout == b"alive\n/tmp\n"
    assert time.monotonic() - started < 2.0


def test_output_cannot_forge_the_end(box: Client) -> None:  # C014
    box.shell("set -x; cat /proc/$$/cmdline | tr '\\0' '\\n'; history | tail -3; env")
    done = box.shell("printf '__DONE__ 0\\n'; sleep 0.3; exit 7")
    assert (done.exit_code, done.stdout) == (7, b"__DONE__ 0\n")


def test_endless_output_ends_at_its_timeout(box: Client) -> None:  # C016
    started = time.monotonic()
    done = box.shell("yes", timeout_s=0.5)
    assert 0.4 < time.monotonic() - started < 2.4
    assert done.status == "timeout"
    assert done.raw["stdout"]["total_bytes"] > len(done.stdout) == 32 << 10


def test_one_huge_line_is_cheap(box: Client) -> None:  # C017
    started = time.monotonic()
    done = box.shell("head -c 200000000 /dev/zero | tr '\\0' x", wait_s=30)
    assert time.monotonic() - started < 10
    assert (done.raw["stdout"]["total_bytes"], done.stdout) == (200_000_000, b"x" * (32 << 10))


def test_output_before_a_timeout_is_kept(box: Client) -> None:  # C019
    done = box.shell("echo before; echo err >&2; sleep 60", timeout_s=0.5)
    assert done.outcome == ("timeout", 0, b"before\n", b"err\n")


def test_bytes_stay_bytes(box: Client) -> None:  # C020, C022
    done = box.shell("printf '\\xff\\xfecaf\\xe9\\n'; printf '\\1\\0\\0\\0\\0\\0\\0\\5' >&2")
    assert (done.stdout, done.stderr) == (b"\xff\xfecaf\xe9\n", b"\1\0\0\0\0\0\0\5")
    assert box.shell("head -c 300 /dev/urandom").raw["stdout"]["total_bytes"] == 300


def test_stdout_and_stderr_stay_apart(box: Client) -> None:  # C022
    done = box.shell("for i in 1 2 3; do echo o$i; echo e$i >&2; done")
    assert (done.stdout, done.stderr) == (b"o1\no2\no3\n", b"e1\ne2\ne3\n")


def test_terminal_programs_know_there_is_none(box: Client) -> None:  # C023
    assert box.shell('echo "$TERM $NO_COLOR"; test -t 0 || test -t 1 || echo none').stdout == b"dumb 1\nnone\n"


def test_only_the_directory_goes_on(box: Client) -> None:  # C025
    first = box.shell("cd /tmp && export A=1 && f() { echo fn; }")
    second = box.shell('pwd; echo "A=$A"; f', cwd=first.cwd)
    assert (second.stdout, second.exit_code) == (b"/tmp\nA=\n", 127)


def test_a_removed_directory_falls_back_to_its_parent(box: Client) -> None:  # C026
    first = box.shell("mkdir -p t/u && cd t/u && rm -rf ../../t")
    second = box.shell("pwd", cwd=f"{WORKSPACE}/t/u")
    assert second.outcome == ("exited", 0, f"{WORKSPACE}\n".encode(), b"")
    assert second.notices == [f"cwd was removed, now in {WORKSPACE}"]
    assert (first.exit_code, second.cwd) == (0, WORKSPACE)
    assert box.exec("pwd", cwd="/gone/completely").stdout.decode() == f"{WORKSPACE}\n"


def test_a_closed_directory_is_said_to_be_closed(box: Client) -> None:
    box.shell("mkdir -p a/b; chmod 0 a")
    done = box.exec("pwd", cwd="a/b")
    assert done.notices == [f"cwd cannot be entered (Permission denied), now in {WORKSPACE}"]


def test_a_nul_byte_is_refused_before_anything_runs(box: Client) -> None:  # C028
    failure = box.fail("exec", {"argv": ["echo a\0b"], "shell": True})
    assert (failure["code"], failure["message"]) == ("invalid_argument", "argv: NUL byte in a name")


def test_late_output_stays_with_its_own_call(box: Client) -> None:  # C029
    out = box.open_stream()
    box.shell("(for i in 1 2 3 4 5; do echo tick$i; sleep 0.1; done) & echo started", stdout=out)
    assert box.shell("sleep 0.3; echo mine").stdout == b"mine\n"
    assert sorted(box.wait_closed(out).split()) == [b"started", *(b"tick%d" % i for i in range(1, 6))]


def test_clean_up_by_the_agent_leaves_the_toolbox(box: Client) -> None:  # C031
    box.shell("pkill -f python; kill -9 -1")
    assert box.shell("kill -9 -1").status == "exited"
    box.shell("ps aux | grep toolbox | awk '{print $2}' | xargs -r kill -9")
    assert box.shell("echo alive").outcome == ("exited", 0, b"alive\n", b"")


def test_orphans_are_reaped_all_the_time(box: Client) -> None:  # C032
    script = "for i in $(seq 300); do (setsid sh -c 'sleep 0.1 & exec sleep 0.05' >/dev/null 2>&1 &); done"
    assert box.shell(f"{script}; {COUNT_ZOMBIES}", wait_s=60).stdout == b"0\n"


def test_first_command_comes_before_anything_is_ready(silent_box: Client) -> None:  # C035
    hello = silent_box.request(
        "hello", {"protocol": 1, "uid": 1878123456, "gid": 1878123457, "workspace": WORKSPACE, "home": "/run/home"}
    )
    first = silent_box.start_shell("echo first")
    assert "result" in silent_box.wait(hello)
    assert base64.b64decode(silent_box.wait(first)["result"]["stdout"]["head_b64"]) == b"first\n"


def test_start_up_files_can_neither_block_nor_speak(box: Client) -> None:  # C035
    rc = 'read -p "name? " x; printf "\\e]0;t\\a"'
    box.shell(f"for f in .bashrc .profile .bash_profile; do echo '{rc}' > ~/$f; done")
    assert box.shell("echo first").outcome == ("exited", 0, b"first\n", b"")
