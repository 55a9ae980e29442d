"""What the container itself refuses, asked from inside as the untrusted user."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import pytest
from tests.contract.boxes import make_spec, output
from tests.support.pool import make_pool

from corral.sandbox.base import Sandbox
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import MIB, Limits

pytestmark = pytest.mark.docker

SYSCALLS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    return "ok" if result >= 0 else os.strerror(ctypes.get_errno())
numbers = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
for name, pair, arguments in [
    ("io_uring_setup", (425, 425), (1, 0)),
    ("userfaultfd", (323, 282), (0,)),
    ("bpf", (321, 280), (0, 0, 0)),
    ("perf_event_open", (298, 241), (0, 0, 0, 0, 0)),
    ("keyctl", (250, 219), (0, -3, 0)),
    ("add_key", (248, 217), (0, 0, 0, 0, -3)),
    ("ptrace", (101, 117), (0, 0, 0, 0)),
    ("process_vm_readv", (310, 270), (1, 0, 0, 0, 0, 0)),
    ("pidfd_getfd", (438, 438), (0, 0, 0)),
    ("kcmp", (312, 272), (1, 1, 0, 0, 0)),
    ("open_by_handle_at", (304, 265), (0, 0, 0)),
    ("mount", (165, 40), (0, 0, 0, 0, 0)),
    ("open_tree", (428, 428), (-100, b"/", 0)),
    ("unshare_user", (272, 97), (0x10000000,)),
    ("clone_new_user", (56, 220), (0x10000000 | 17, 0, 0, 0, 0)),
    ("clone3", (435, 435), (0, 0)),
    ("setns", (308, 268), (0, 0)),
    ("init_module", (175, 105), (0, 0, 0)),
    ("kexec_load", (246, 104), (0, 0, 0, 0)),
    ("memfd_secret", (447, 447), (0,)),
    ("vsock", (41, 198), (40, 1, 0)),
    ("packet", (41, 198), (17, 3, 0)),
    ("alg", (41, 198), (38, 5, 0)),
    ("netlink_audit", (41, 198), (16, 3, 9)),
    ("netlink_route", (41, 198), (16, 3, 0)),
    ("inet", (41, 198), (2, 1, 0)),
    ("unix", (41, 198), (1, 1, 0)),
    ("personality_readimplies", (135, 92), (0x0400000,)),
    ("personality_ask", (135, 92), (0xffffffff,)),
]:
    print(name, call(pair[numbers], *arguments), sep=": ")
"""


@pytest.fixture(params=["new", "late"])
async def box(request: pytest.FixtureRequest, tmp_path: Path, image: str) -> AsyncIterator[Sandbox]:
    """One as every run has it, and one that waited in a pool for its workspace."""
    (tmp_path / "workspace").mkdir()
    if request.param == "late":
        if os.geteuid() != 0:
            pytest.skip("late boxes are mounted by root")
        async with make_pool("late", tmp_path / "workspace", tmp_path, image) as pool:
            await pool.wait_filled()
            async with pool.make(make_spec(tmp_path / "workspace", tmp_path, image)) as started:
                assert (started.info.facts.get("pool"), pool.problem) == ("late", "")
                yield started
        return
    async with DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image)) as started:
        yield started


async def ask(box: Sandbox, command: str, *, errors: str = "&1") -> str:
    result = await box.shell(f"exec 2>{errors}; {command}", timeout_s=20)
    return output(result.stdout).decode("utf-8", "replace").strip()


async def test_blocks_dangerous_system_calls(box: Sandbox) -> None:
    result = await box.exec(["python3", "-c", SYSCALLS], merge_stderr=True)
    answers = dict(line.split(": ") for line in output(result.stdout).decode().splitlines())
    no, absent = "Operation not permitted", "Function not implemented"
    assert answers == {
        "io_uring_setup": absent,
        "userfaultfd": no,
        "bpf": no,
        "perf_event_open": no,
        "keyctl": no,
        "add_key": no,
        "ptrace": no,
        "process_vm_readv": no,
        "pidfd_getfd": no,
        "kcmp": no,
        "open_by_handle_at": no,
        "mount": no,
        "open_tree": no,
        "unshare_user": no,
        "clone_new_user": no,
        "clone3": absent,
        "setns": no,
        "init_module": no,
        "kexec_load": no,
        "memfd_secret": absent,
        "vsock": no,
        "packet": no,
        "alg": no,
        "netlink_audit": no,
        "netlink_route": "ok",
        "inet": "ok",
        "unix": "ok",
        "personality_readimplies": no,
        "personality_ask": "ok",
    }


async def test_blocks_32_bit_system_calls(box: Sandbox) -> None:
    """int 0x80 would reach calls by numbers that the filter does not know."""
    if os.uname().machine != "x86_64":
        pytest.skip("int 0x80 exists on x86_64 only")
    source = 'int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return r > 0 ? 42 : 43; }'
    await box.write_file("t.c", source.encode())
    result = await box.shell("cc -o t t.c && ./t")
    assert (result.exit_code, result.signal) in [(159, 0), (0, 31)], output(result.stderr)


async def test_typical_work_runs(box: Sandbox) -> None:
    script = """
set -e
git init -q . && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x && git log --oneline | wc -l
python3 -m venv --without-pip v && v/bin/python -c 'import threading, subprocess, asyncio, multiprocessing, sqlite3
subprocess.run(["echo", "child"], check=True)
t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
async def main():
    p = await asyncio.create_subprocess_exec("true"); print(await p.wait())
asyncio.run(main())
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, -2]))
db = sqlite3.connect("db"); db.execute("create table t (x)"); db.commit(); print("sql")
import socket
server = socket.create_server(("localhost", 0)); socket.create_connection(server.getsockname()); print("loopback")'
printf 'int main(void){return 0;}' > m.c && cc m.c -o m && ./m && echo compiled
mkfifo f && (echo fifo > f &) && cat f
touch -d '2001-01-01' old && ln old hard && mv hard soft && rg -c thread . >/dev/null || true
"""
    result = await box.shell(script, timeout_s=60)
    text = output(result.stdout).decode()
    assert result.exit_code == 0, text + output(result.stderr).decode()
    assert text.split() == ["1", "child", "thread", "0", "[1,", "2]", "sql", "loopback", "compiled", "fifo"]


async def test_no_capability_no_new_privileges_filtered(box: Sandbox) -> None:
    status = await ask(box, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
    assert dict(line.split(":\t") for line in status.splitlines()) == {
        "CapInh": "0" * 16,
        "CapPrm": "0" * 16,
        "CapEff": "0" * 16,
        "CapBnd": "0" * 16,
        "CapAmb": "0" * 16,
        "NoNewPrivs": "1",
        "Seccomp": "2",
    }


async def test_toolbox_has_exactly_four_capabilities(box: Sandbox, docker_engine: docker.DockerClient) -> None:
    pid = docker_engine.api.inspect_container(box.info.box_id)["State"]["Pid"]
    status = Path(f"/proc/{pid}/status").read_text()
    bits = {line.split(":\t")[0]: int(line.split(":\t")[1], 16) for line in status.splitlines() if line[:3] == "Cap"}
    four = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8  # KILL SETGID SETUID SETPCAP
    assert (bits["CapPrm"], bits["CapEff"], bits["CapBnd"]) == (four, four, four)


async def test_only_loopback_and_no_name_server_of_the_host(box: Sandbox) -> None:
    assert await ask(box, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo"
    assert os.readlink("/proc/self/ns/net") != await ask(box, "readlink /proc/self/ns/net")
    assert await ask(box, "getent hosts localhost | head -1 | grep -c localhost") == "1"
    assert await ask(box, "hostname") == "box"
    assert "nameserver" not in await ask(box, "cat /etc/resolv.conf")


async def test_root_file_system_is_read_only_and_writable_places_are_limited(box: Sandbox) -> None:
    mounts = [line.split()[1:4] for line in (await ask(box, "cat /proc/self/mounts")).splitlines()]
    writable = {place: options for place, _, options in mounts if options.startswith("rw") and place.count("/") == 1}
    assert "/" not in writable
    for place in ("/tmp", "/home", "/run"):
        options = writable[place].split(",")
        assert {"nosuid", "nodev"} <= set(options), place
        assert any(o.startswith("size=") for o in options), place
        assert any(o.startswith("nr_inodes=") for o in options), place
    found = await ask(box, "find / -xdev -writable -not -type l", errors="/dev/null")
    assert found.split() == ["/tmp", "/workspace"]  # mount points, named in the file system that they cover


async def test_masked_places_tell_nothing(box: Sandbox) -> None:
    assert await ask(box, "cat /proc/kallsyms /proc/keys /proc/cmdline /proc/iomem | wc -c") == "0"
    assert (
        await ask(
            box, "ls -A /sys/firmware /sys/block /sys/module /sys/kernel/debug | grep -v : | wc -w", errors="/dev/null"
        )
        == "0"
    )
    assert await ask(box, "test -w /proc/sys/vm/drop_caches; echo $(( ! $? ))") == "0"


async def test_limits_hold(tmp_path: Path, image: str) -> None:
    (tmp_path / "workspace").mkdir()
    limits = Limits(pids=64, file_bytes=8 * MIB, open_files=300, memory_bytes=256 * MIB, tmp_bytes=16 * MIB)
    async with DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image, limits=limits)) as box:
        assert await ask(box, "ulimit -n; ulimit -c; ulimit -l; ulimit -q") == "300\n0\n64\n0"
        big = await box.shell("head -c 20M /dev/zero > big")
        assert big.exit_code != 0
        assert (await box.shell("head -c 7M /dev/zero > fits")).exit_code == 0
        full = await box.shell("for i in 1 2 3 4; do head -c 7M /dev/zero > /tmp/$i || exit 9; done")
        assert full.exit_code == 9
        bomb = await box.shell("for i in $(seq 100); do sleep 5 & done; wait", timeout_s=10)
        assert bomb.pids_refused > 0 or b"Resource temporarily unavailable" in output(bomb.stderr)
        swallow = await box.exec(["python3", "-c", "x = bytearray(400 << 20)"])
        assert (swallow.signal, swallow.oom_kills > 0) == (9, True)
        assert (await box.shell("true")).exit_code == 0


@pytest.mark.parametrize(
    "lines",
    [
        ["ENV LD_PRELOAD=/x.so", "ENV PYTHONSTARTUP=/workspace/x.py", "ENV PATH=/nothing"],
        ['ENTRYPOINT ["false"]', "USER nobody", "WORKDIR /missing", 'CMD ["x"]', "HEALTHCHECK CMD false"],
        ["VOLUME /data /srv/more"],
    ],
)
async def test_what_an_image_sets_does_not_reach_the_toolbox(
    lines: list[str], tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    text = "\n".join([f"FROM {image}", *lines])
    built, _ = docker_engine.images.build(fileobj=io.BytesIO(text.encode()), network_mode="none", rm=True, forcerm=True)
    (tmp_path / "workspace").mkdir()
    try:
        async with DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, str(built.id))) as box:
            assert (await box.shell("ls /")).exit_code == 0
            state = docker_engine.api.inspect_container(box.info.box_id)
            pid = state["State"]["Pid"]
            assert b"LD_PRELOAD" not in Path(f"/proc/{pid}/environ").read_bytes()
            volumes = {m["Destination"]: m["RW"] for m in state["Mounts"] if m["Type"] == "volume"}
            assert volumes == {"/opt/corral": False, "/workspace": True}
    finally:
        docker_engine.images.remove(built.id, force=True)
