"""What a command gets and what its answer says."""

from __future__ import annotations

import base64

import pytest
from tests.unit.toolbox.client import GID, UID, WORKSPACE, Client

USED = ("user_s", "system_s", "max_rss", "written_bytes", "programs", "programs_peak")


def _zero_times(raw: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in raw.items() if key not in {"duration_s", *USED}}


def test_answers_with_everything_about_the_command(box: Client) -> None:
    done = box.shell("printf out; printf err >&2; cd /tmp; exit 7")
    assert _zero_times(done.raw) == {
        "status": "exited",
        "exit_code": 7,
        "signal": 0,
        "cwd": "/tmp",
        "notices": [],
        "stdout": {
            "head_b64": base64.b64encode(b"out").decode(),
            "tail_b64": "",
            "total_bytes": 3,
            "streamed_bytes": 0,
            "closed": False,
        },
        "stderr": {
            "head_b64": base64.b64encode(b"err").decode(),
            "tail_b64": "",
            "total_bytes": 3,
            "streamed_bytes": 0,
            "closed": False,
        },
        "background": 0,
        "oom_kills": 0,
        "pids_refused": 0,
        "full": [],
    }
    assert done.raw["duration_s"] > 0
    assert done.raw["user_s"] + done.raw["system_s"] > 0
    assert done.raw["max_rss"] > 1 << 20
    assert (done.raw["programs"], done.raw["programs_peak"]) == (1, 1)


def test_runs_a_program_without_a_shell(box: Client) -> None:
    done = box.exec("printf", "%s|", "$HOME", "*", "a b", "")
    assert done.outcome == ("exited", 0, b"$HOME|*|a b||", b"")
    assert done.cwd == ""


def test_tells_a_signal_from_an_exit_code(box: Client) -> None:
    killed = box.exec("sh", "-c", "kill -9 $$")
    assert (killed.status, killed.signal, killed.exit_code) == ("signaled", 9, 0)
    exited = box.exec("sh", "-c", "exit 137")
    assert (exited.status, exited.signal, exited.exit_code) == ("exited", 0, 137)


@pytest.mark.parametrize(
    ("argv", "exit_code", "notice"),
    [
        (["no-such-program"], 127, "no such program: 'no-such-program' (in PATH)"),
        (["/no/such/program"], 127, "no such program: '/no/such/program' (or its interpreter is missing)"),
        (["./plain"], 126, "cannot run './plain': Permission denied"),
        (["./garbage"], 126, "cannot run './garbage': Exec format error"),
        (["."], 126, "cannot run '.': Permission denied"),
        (["/tmp"], 126, "cannot run '/tmp': Permission denied"),
    ],
)
def test_says_out_of_band_that_nothing_ran(box: Client, argv: list[str], exit_code: int, notice: str) -> None:
    box.shell("echo x > plain; echo x > garbage; chmod +x garbage")
    done = box.exec(*argv)
    assert (done.outcome, done.notices) == (("not_started", exit_code, b"", b""), [notice])


def test_a_program_that_exits_127_itself_did_run(box: Client) -> None:
    assert box.shell("no-such-program").status == "exited"


def test_closes_streams_of_a_program_that_never_ran(box: Client) -> None:
    out, err = box.open_stream(), box.open_stream()
    assert box.exec("/none", stdout=out, stderr=err).status == "not_started"
    assert box.wait_closed(out) + box.wait_closed(err) == b""


def test_environment_is_clean_and_merged(silent_box: Client) -> None:
    silent_box.hello(env={"A": "base", "B": "base"})
    done = silent_box.exec("env", env={"B": "call", "C": "caf\u00e9\n"})
    assert sorted(done.stdout.decode().replace("caf\u00e9\n\n", "caf\u00e9\n").split("\n")[:-1]) == sorted(
        [
            *("A=base", "B=call", "C=caf\u00e9", "DEBIAN_FRONTEND=noninteractive", "GIT_CONFIG_COUNT=1"),
            *("GIT_CONFIG_KEY_0=safe.directory", f"GIT_CONFIG_VALUE_0={WORKSPACE}", "GIT_PAGER=cat"),
            *("GIT_TERMINAL_PROMPT=0", "HOME=/home/box", "LC_CTYPE=C.UTF-8", "LOGNAME=box", "MANPAGER=cat"),
            *("NO_COLOR=1", "PAGER=cat", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            *("PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1", f"PWD={WORKSPACE}", "SHELL=/bin/bash"),
            *("TERM=dumb", "USER=box"),
        ]
    )


def test_a_shell_call_adds_nothing_to_the_environment(box: Client) -> None:
    plain = set(box.exec("env").stdout.split(b"\n"))
    shell = set(box.shell("env").stdout.split(b"\n"))
    assert {line.split(b"=")[0] for line in shell - plain} == {b"SHLVL", b"_"}


def test_keeps_a_bash_env_of_the_caller(box: Client) -> None:
    box.shell("echo 'greet() { echo hello; }' > rc")
    done = box.shell("greet; echo $BASH_ENV; bash -c greet; cd /tmp", env={"BASH_ENV": f"{WORKSPACE}/rc"})
    assert done.stdout == f"hello\n{WORKSPACE}/rc\nhello\n".encode()
    assert done.cwd == "/tmp"


def test_git_trusts_exactly_the_mount_point(box: Client) -> None:
    done = box.shell("git config --get-all safe.directory", env={"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b"})
    assert done.exit_code != 0, "a caller's broken settings stay the caller's"
    env = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}
    done = box.shell("git config --get-all safe.directory; git config a.b", env=env)
    assert done.stdout.decode() == f"{WORKSPACE}\nc\n"


def test_cwd_is_relative_to_the_workspace(box: Client) -> None:
    box.shell("mkdir -p a/b")
    assert box.exec("pwd", cwd="a/b").stdout.decode() == f"{WORKSPACE}/a/b\n"
    assert box.exec("pwd", cwd="/tmp").stdout == b"/tmp\n"
    assert box.exec("sh", "-c", "echo $PWD", cwd="a/../a").stdout.decode() == f"{WORKSPACE}/a\n"


def test_cwd_of_any_name_comes_back(box: Client) -> None:
    name = "new\nline \\ caf\u00e9"
    done = box.shell('mkdir "$N" && cd "$N"', env={"N": name})
    assert done.cwd == f"{WORKSPACE}/{name}"
    done = box.shell("mkdir $'\\377' && cd $'\\377'")
    assert base64.b64decode(done.cwd[1:]) == f"{WORKSPACE}/".encode() + b"\xff"
    assert box.shell("pwd | od -An -c", cwd=done.cwd).stdout.split()[-2:] == [b"377", b"\\n"]


@pytest.mark.parametrize(
    "command",
    [
        "cd /tmp; set -eux; set -o noclobber -o pipefail; false",
        "cd /tmp; exec 3>x; exec 9>y; exec 200>z; exit 1",
        "cd /tmp; builtin() { :; }; pwd() { :; }; exit 1",
        "cd /tmp; readonly x=1; unset HOME; IFS=/; exit 1",
    ],
)
def test_cwd_is_told_whatever_the_shell_was_set_to(box: Client, command: str) -> None:
    done = box.shell(command)
    assert done.exit_code == 1
    if "builtin()" not in command:
        assert done.cwd == "/tmp"
    assert box.shell("cat /tmp/x /tmp/y /tmp/z 2>&1", cwd="/").stdout.count(b"/tmp\n") == 0


@pytest.mark.parametrize(
    "claim",
    ["relative\\n", "/no-newline", "\\n", "/$(head -c 5000 /dev/zero | tr '\\0' x)\\n", "/nul\\0\\n", ""],
)
def test_a_claimed_cwd_is_bounded(box: Client, claim: str) -> None:
    assert box.shell(f'trap - EXIT; printf "{claim}" >&251').cwd == ""


def test_trace_of_the_shell_shows_only_the_command(box: Client) -> None:
    assert box.shell("set -x; true").stderr == b"+ true\n"


def test_umask_is_the_callers(box: Client) -> None:
    assert box.exec("sh", "-c", "umask").stdout == b"0022\n"
    assert box.exec("sh", "-c", "umask", umask=0o077).stdout == b"0077\n"


def test_stdin_is_empty_or_the_hosts_stream(box: Client) -> None:
    assert box.exec("cat").outcome == ("exited", 0, b"", b"")
    stream = box.open_stream()
    running = box.request("exec", {"argv": ["cat"], "stdin": stream})
    box.send_chunk(stream, b"one\n")
    box.send_chunk(stream, b"")
    box.send_chunk(stream, b"two\n")
    box.notify("stream.close", {"stream": stream, "total": 8})
    result = box.wait(running)["result"]
    assert base64.b64decode(result["stdout"]["head_b64"]) == b"one\ntwo\n"


def test_stdin_nobody_reads_hangs_nothing(box: Client) -> None:
    stream = box.open_stream()
    running = box.request("exec", {"argv": ["true"], "stdin": stream})
    assert box.wait(running)["result"]["exit_code"] == 0
    box.send_chunk(stream, b"late")
    box.notify("stream.close", {"stream": stream, "total": 4})
    box.call("ping")


def test_stderr_can_join_stdout(box: Client) -> None:
    done = box.shell("echo a; echo b >&2; echo c", merge_stderr=True)
    assert (done.stdout, done.stderr, done.raw["stderr"]["total_bytes"]) == (b"a\nb\nc\n", b"", 0)


def test_large_arguments_and_environments_arrive(box: Client) -> None:
    argument = "x" * ((128 << 10) - 1)
    done = box.exec(
        "sh", "-c", "echo ${#1} ${#2} ${#3} ${#V}", "sh", argument, argument, argument, env={"V": argument[2:]}
    )
    assert done.stdout == b"131071 131071 131071 131069\n"
    assert box.fail("exec", {"argv": ["echo", argument + "x"]})["code"] == "too_large"
    done = box.exec("echo", *["y" * 1000] * 900, env={f"V{i}": "z" * 10_000 for i in range(9)})
    assert done.raw["stdout"]["total_bytes"] == 900 * 1001


@pytest.mark.parametrize(
    "params",
    [
        {"argv": []},
        {"argv": [""]},
        {"argv": ["a", "b"], "shell": True},
        {"argv": ["a\0b"]},
        {"argv": ["a"], "cwd": "x\0y"},
        {"argv": ["a"], "env": {"A=": ""}},
        {"argv": ["a"], "env": {"A": "\0\0"}},
        {"argv": ["a"], "timeout_s": 0},
        {"argv": ["a"], "stdout": 7, "stderr": 7},
        {"argv": ["a"], "stdout": 1 << 32},
        {"argv": ["a"], "stderr": 7, "merge_stderr": True},
        {"argv": ["a"], "head_bytes": 1 << 20},
        {"argv": ["a"], "umask": -1},
        {"argv": ["a"], "shel": True},
    ],
)
def test_refuses_what_cannot_be_run(box: Client, params: dict[str, object]) -> None:
    assert box.fail("exec", params)["code"] == "invalid_argument"
    assert box.exec("true").exit_code == 0


def test_refuses_a_stream_in_use(box: Client) -> None:
    stream = box.open_stream()
    running = box.request("exec", {"argv": ["sleep", "30"], "stdout": stream})
    assert box.fail("exec", {"argv": ["true"], "stderr": stream})["code"] == "invalid_argument"
    box.call("exec.cancel", {"id": running})
    box.wait_closed(stream)
    assert box.exec("echo", "again", stdout=stream).exit_code == 0


def test_more_calls_than_allowed_are_busy(silent_box: Client) -> None:
    silent_box.hello(max_calls=3)
    running = [silent_box.request("exec", {"argv": ["sleep", "30"]}) for _ in range(3)]
    assert silent_box.fail("exec", {"argv": ["true"]})["code"] == "busy"
    silent_box.call("exec.cancel", {"id": running[0]})
    silent_box.wait(running[0])
    assert silent_box.exec("true").exit_code == 0


def test_many_calls_at_once_keep_apart(box: Client) -> None:
    running = {i: box.start_shell(f"sleep 0.$((RANDOM % 3)); echo {i}; exit {i}") for i in range(40)}
    for i, number in running.items():
        result = box.wait(number)["result"]
        assert (base64.b64decode(result["stdout"]["head_b64"]), result["exit_code"]) == (f"{i}\n".encode(), i)


def test_owner_of_new_files_is_the_untrusted_user(box: Client) -> None:
    assert box.shell("touch x; stat -c '%u:%g' x").stdout.decode() == f"{UID}:{GID}\n"
