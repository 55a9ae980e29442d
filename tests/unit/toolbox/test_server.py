"""The handshake, the rules of the channel, and how the box ends."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest
from tests.unit.toolbox.client import GID, PYTHON, TOOLBOX, UID, WORKSPACE, BoxEnded, Client, Done

from corral_protocol.framing import FrameDecoder, encode_chunk, encode_control
from corral_protocol.message import INITIAL_CREDIT
from corral_toolbox.kernel.landlock import find_abi


def _wait_for_end(box: Client, timeout_s: float = 10.0) -> tuple[int, str]:
    """Exit status and last line of the crash log of a box that ends by itself."""
    with pytest.raises(BoxEnded):
        box.wait_until(lambda: False, timeout_s)
    status = box.process.wait(10)
    return status, box.close()


def test_hello_tells_what_the_box_is(silent_box: Client) -> None:
    reply = silent_box.hello()
    reply.pop("python")
    programs = [name for name in ("git", "rg") if shutil.which(name)]
    assert reply == {
        "protocol": 1,
        "version": "0.1.0",
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "has_shell": "/bin/bash",
        "workspace_root": [],
        "capabilities": [
            *("exec", "files", "freeze", "stats", "tunnel", "process_record"),
            *(["landlock"] if find_abi() >= 2 else []),
            "process_trees",
            *(["counters"] if reply["cgroup"] else []),
            "host_kernel",
            *("shell", *programs),
        ],
        "cgroup": reply["cgroup"],
    }
    assert reply["cgroup"] in {"v1", "v2", ""}


def test_hello_lists_the_root_by_bytes_without_following() -> None:
    script = (
        f"set -e\nmount -t tmpfs none /run; mkdir -p /run/toolbox {WORKSPACE}; mount --bind {TOOLBOX} /run/toolbox\n"
        f"cd {WORKSPACE}; mkdir d; printf 12345 > b; ln -s /etc/passwd a; printf x > $(printf '\\377')\n"
        f"touch -d @1000000000 b; for i in $(seq 300); do : > c$i; done; chown -R {UID}:{GID} .; chmod 700 .\n"
        f"mount -t tmpfs none /home; exec {PYTHON} -I -S /run/toolbox"
    )
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    with Client(command=command) as box:
        root = box.hello()["workspace_root"]
    names = [entry["name"] for entry in root]
    assert names == sorted(["a", "b", *(f"c{i}" for i in range(1, 301)), "d"])[:256]
    assert stat.S_ISLNK(root[0]["mode"])
    assert root[1].pop("ctime_ns") > 1_600_000_000_000_000_000  # it is when the file was made, whatever touch says
    assert root[1] == {"name": "b", "mode": stat.S_IFREG | 0o644, "size": 5, "mtime_ns": 1_000_000_000_000_000_000}


def test_hello_makes_account_and_home(box: Client) -> None:
    done = box.shell("cat /run/corral/passwd /run/corral/group; stat -c '%u:%g %a' ~ /home; touch ~/x && echo $HOME")
    assert done.stdout.decode() == (
        "root:x:0:0:root:/root:/usr/sbin/nologin\n"
        f"box:x:{UID}:{GID}:box:/home/box:/bin/bash\n"
        "root:x:0:\n"
        f"box:x:{GID}:\n"
        f"{UID}:{GID} 755\n"
        "0:0 755\n"
        "/home/box\n"
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"protocol": 2}, "unsupported"),
        ({"uid": 0}, "invalid_argument"),
        ({"gid": 0}, "invalid_argument"),
        ({"uid": "1"}, "invalid_argument"),
        ({"workspace": "relative"}, "invalid_argument"),
        ({"env": {"A=B": "x"}}, "invalid_argument"),
        ({"unknown": 1}, "invalid_argument"),
    ],
)
def test_refuses_a_hello_that_cannot_be(silent_box: Client, change: dict[str, object], code: str) -> None:
    params = {"protocol": 1, "uid": UID, "gid": GID, "workspace": WORKSPACE, **change}
    assert silent_box.fail("hello", params)["code"] == code
    assert silent_box.hello()["protocol"] == 1


def test_hello_comes_first_and_once(silent_box: Client) -> None:
    assert silent_box.fail("ping") == {"message": "hello comes first", "code": "invalid_argument", "details": {}}
    silent_box.hello()
    params = {"protocol": 1, "uid": UID, "gid": GID}
    assert silent_box.fail("hello", params)["message"] == "hello was said already"


def test_answers_ping_and_unknown_methods(box: Client) -> None:
    assert 0 <= box.call("ping")["uptime_s"] < 10
    assert box.fail("file.eat")["code"] == "unknown_method"
    assert box.fail("ping", {"x": 1})["code"] == "invalid_argument"
    box.notify("future.notice", {})
    box.call("ping")


def test_stats_count_what_is_there(box: Client) -> None:
    running = box.start_shell("sleep 30 & sleep 30")
    box.wait_true(lambda: box.call("stats")["processes"] >= 6)
    stats = box.call("stats")
    assert stats["calls"] == 1
    assert stats["rss"] > 1 << 20
    box.call("exec.cancel", {"id": running})
    box.wait(running)


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\2",
        b"\0\0\0\2{]",
        encode_control({"jsonrpc": "2.0", "method": 1}),
        encode_control({"jsonrpc": "2.0", "method": "ping", "params": []}),
        encode_control({"jsonrpc": "2.0", "id": "one", "method": "ping"}),
        encode_control({"jsonrpc": "2.0", "id": True, "method": "ping"}),
        encode_control({"jsonrpc": "2.0", "method": "stream.credit", "params": {"stream": 1, "bytes": -1}}),
    ],
)
def test_ends_when_the_host_breaks_the_rules(box: Client, frame: bytes) -> None:
    box.send(frame)
    status, log = _wait_for_end(box)
    assert status == 65
    assert log.startswith("corral-toolbox[1]: ")


def test_ends_when_an_id_is_used_twice(box: Client) -> None:
    params = {"argv": ["sleep", "30"]}
    message = encode_control({"jsonrpc": "2.0", "id": 77, "method": "exec", "params": params})
    box.send(message + message)
    assert _wait_for_end(box)[0] == 65


def test_ends_when_a_stream_is_over_its_credit(box: Client) -> None:
    stream = box.open_stream()
    box.request("exec", {"argv": ["sleep", "30"], "stdin": stream})
    # The pipe takes 64 KiB and gives them back as credit; what is over both is a breach.
    for _ in range((INITIAL_CREDIT + (256 << 10)) // (64 << 10)):
        with contextlib.suppress(BrokenPipeError):
            box.send(encode_chunk(stream, b"x" * (64 << 10)))
    status, log = _wait_for_end(box)
    assert (status, "over its credit" in log) == (65, True)


def test_ends_at_once_when_the_host_is_gone(box: Client) -> None:
    box.start_shell("setsid sleep 300 & sleep 300")
    box.shell("true")
    started = time.monotonic()
    box.close()
    assert box.process.returncode == 0
    assert time.monotonic() - started < 5.0


def test_answers_given_before_the_end_still_arrive(box: Client) -> None:
    number = box.request("ping")
    assert box.process.stdin is not None
    box.process.stdin.close()
    box.wait(number)


def test_ends_without_a_frame_for_the_lease(silent_box: Client) -> None:
    silent_box.hello(lease_s=0.5)
    started = time.monotonic()
    for _ in range(4):
        time.sleep(0.3)
        silent_box.call("ping")
    status, log = _wait_for_end(silent_box)
    assert (status, "nothing heard" in log) == (75, True)
    assert 1.5 < time.monotonic() - started < 4


def test_ends_on_sigterm(box: Client) -> None:
    box.start_shell("sleep 300")
    box.shell("true")
    # The child of unshare is the first process of the namespace.
    os.kill(box.children(box.process.pid)[0], signal.SIGTERM)
    assert _wait_for_end(box)[0] == 143


def test_runs_on_one_socket_too() -> None:
    ours, theirs = socket.socketpair()
    # Bound first: the checkout may lie below /home.
    script = (
        f"mount -t tmpfs none /run; mkdir /run/toolbox; mount --bind {TOOLBOX} /run/toolbox;"
        f"mount -t tmpfs none /home; exec {PYTHON} -I -S /run/toolbox"
    )
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    with ours, subprocess.Popen(command, stdin=theirs, stdout=theirs) as process:
        theirs.close()
        ours.settimeout(10)
        hello = {"protocol": 1, "uid": UID, "gid": GID, "workspace": "/tmp"}
        ours.sendall(encode_control({"jsonrpc": "2.0", "id": 1, "method": "hello", "params": hello}))
        ours.sendall(encode_control({"jsonrpc": "2.0", "id": 2, "method": "exec", "params": {"argv": ["true"]}}))
        decoder, payloads = FrameDecoder(), list[bytes]()
        while len(payloads) < 2:
            payloads += [one for one in decoder.feed(ours.recv(65536)) if b'"id":' in one[:32]]
        assert [json.loads(payload)["id"] for payload in payloads] == [1, 2]
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(10) == 0


def test_refuses_to_run_where_it_would_signal_the_whole_machine() -> None:
    done = subprocess.run([PYTHON, "-I", "-S", str(TOOLBOX)], capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 64
    assert done.stderr == b"corral-toolbox: only runs as the first process of a container\n"


def test_starts_without_the_slow_imports(box: Client) -> None:
    heavy = {"json", "enum", "dataclasses", "typing", "re", "inspect", "asyncio", "selectors", "socket", "subprocess"}
    heavy |= {"collections", "functools", "heapq", "importlib"}
    code = f"""
import sys
sys.path.insert(0, {str(TOOLBOX)!r})
import corral_toolbox.boot
print(sorted(set(sys.modules) & {heavy!r}))
"""
    done = subprocess.run([PYTHON, "-I", "-S", "-c", code], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


@pytest.mark.slow
def test_a_box_at_rest_keeps_one_of_each_and_answers_as_before(box: Client) -> None:
    assert box.shell("true").exit_code == 0
    box.wait_true(lambda: box.call("stats")["processes"] == 3, 25)
    running = [box.start_shell("sleep 0.2; echo fine") for _ in range(3)]
    assert [Done(box.wait(number)["result"]).stdout for number in running] == [b"fine\n"] * 3


def _measure(box: Client) -> int:
    """Anonymous memory of the toolbox's processes in KiB, shared pages by their share. Seen from outside."""
    (first,) = Client.children(box.process.pid)
    total = 0
    for pid in (first, *Client.children(first)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended since
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
    return total


@pytest.mark.slow
def test_a_burst_of_work_gives_its_memory_back(box: Client) -> None:
    def rest() -> int:
        box.wait_true(lambda: box.call("stats")["processes"] == 3, 25)
        return _measure(box)

    box.shell("true")
    before = rest()
    content = base64.b64encode("é\n".encode() * 100_000).decode()
    running = [
        box.request(method, {"path": f"f{number}", **more})
        for number in range(6)
        for method, more in (("file.write", {"content_b64": content}), ("file.read", {}))
    ]
    running += [box.start_shell("seq 100000") for _ in range(6)]
    for number in running:
        box.wait(number)
    busy = _measure(box)
    after = rest()
    assert (busy > 1.3 * before, after < 1.1 * before) == (True, True), (before, busy, after)
