"""Every limit of a box is pushed through from inside; then the toolbox still answers, and at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.boxes import make_spec, output

from corral.agent.limit import Count, find_touched
from corral.errors import BoxLost
from corral.sandbox.cause import find_cause
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import MIB, Limits
from corral_protocol.message import ExecStatus

pytestmark = pytest.mark.docker

LIMITS = Limits(
    memory_bytes=256 * MIB,
    pids=100,
    cpus=1.0,
    open_files=300,
    file_bytes=8 * MIB,
    tmp_bytes=32 * MIB,
    home_bytes=16 * MIB,
    shm_bytes=16 * MIB,
)
_HEAD = """
import ctypes, errno, os, resource, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def count(action, most=1 << 20):
    # how often it goes well, and what it fails with
    for number in range(most):
        try:
            action(number)
        except OSError as error:
            return number, errno.errorcode[error.errno]
    return most, "never"
def call(function, *arguments):
    result = function(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
"""


@pytest.fixture
async def box(tmp_path: Path, image: str) -> AsyncIterator[DockerSandbox]:
    (tmp_path / "workspace").mkdir()
    async with DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image, limits=LIMITS)) as started:
        yield started
        begun = time.monotonic()
        assert (await started.shell("echo here")).stdout.total_bytes == 5
        assert (await started.write_file("after", b"x")).action == "created"
        assert time.monotonic() - begun < 5


async def push(box: DockerSandbox, program: str) -> str:
    result = await box.exec(["python3", "-c", _HEAD + program], timeout_s=30)
    return (output(result.stdout) + output(result.stderr)).decode().strip()


async def test_open_files(box: DockerSandbox) -> None:
    told = await push(box, "keep = []\nprint(*count(lambda n: keep.append(os.open('/dev/null', 0))))")
    number, error = told.split()
    assert (280 < int(number) < 300, error) == (True, "EMFILE")


async def test_no_limit_can_be_raised(box: DockerSandbox) -> None:
    program = """
for name in ("CORE", "FSIZE", "MEMLOCK", "MSGQUEUE", "NOFILE", "SIGPENDING", "NICE", "RTPRIO"):
    what = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(what)[1]
    try:
        resource.setrlimit(what, (hard + 1, hard + 1))
        print(name, "raised")
    except (ValueError, OSError):
        pass
"""
    assert await push(box, program) == ""


async def test_core_files(box: DockerSandbox) -> None:
    result = await box.shell("ulimit -c; cd /tmp; python3 -c 'import os; os.abort()'; ls -A /tmp /workspace")
    assert b"core" not in output(result.stdout)
    assert output(result.stdout).startswith(b"0\n")


async def test_file_size(box: DockerSandbox) -> None:
    result = await box.exec(["dd", "if=/dev/zero", "of=big", "bs=1M", "count=20", "status=none"])
    assert (result.status, result.signal) == (ExecStatus.SIGNALED, 25)
    assert (await box.shell("stat -c %s big")).stdout.head_b64 == "ODM4ODYwOAo="  # 8388608


async def test_locked_memory(box: DockerSandbox) -> None:
    program = "area = ctypes.create_string_buffer(1 << 20)\nprint(*count(lambda n: call(libc.mlock, area, 1 << 20)))"
    assert await push(box, program) == "0 ENOMEM"


async def test_message_queues(box: DockerSandbox) -> None:
    program = """
rt = ctypes.CDLL("librt.so.1", use_errno=True)
print(*count(lambda n: call(rt.mq_open, b"/q%d" % n, os.O_CREAT | os.O_RDWR, 0o600, None), 100))
"""
    number, error = (await push(box, program)).split()
    assert (number, error != "never") == ("0", True)


@pytest.mark.parametrize(
    ("place", "size"), [("/tmp", LIMITS.tmp_bytes), ("/home/box", LIMITS.home_bytes), ("/dev/shm", LIMITS.shm_bytes)]
)
async def test_size_and_inodes_of_memory_file_systems(box: DockerSandbox, place: str, size: int) -> None:
    program = f"""
os.chdir({place!r})
block = bytes(1 << 20)
def fill(n):
    with open(f"f{{n}}", "wb", 0) as file:
        if file.write(block) < len(block):
            raise OSError(errno.ENOSPC, "")
print(*count(fill))
for name in os.listdir("."):
    if os.path.isfile(name): os.unlink(name)
print(*count(lambda n: os.close(os.open(f"e{{n}}", os.O_CREAT | os.O_WRONLY)), 300_000))
"""
    filled, made = (line.split() for line in (await push(box, program)).splitlines())
    assert (size // MIB - 2 <= int(filled[0]) <= size // MIB, filled[1]) == (True, "ENOSPC")
    assert (int(made[0]) < 200_000, made[1]) == (True, "ENOSPC")


@pytest.mark.parametrize(("place", "name"), [("/tmp", "tmp"), ("/home/box", "home"), ("/dev/shm", "shm")])
async def test_a_full_place_is_the_cause_of_a_failure_and_named(box: DockerSandbox, place: str, name: str) -> None:
    result = await box.shell(f"for i in 1 2 3 4 5; do head -c 7M /dev/zero > {place}/full$i || exit 1; done")
    assert (result.exit_code, result.full, find_cause(result)) == (1, [name], "disk_full")
    assert len(find_touched(Count.of_command(result), box.info.limits)) == 1
    # A success is one, however full it is.
    assert (await box.shell("true")).full == []
    assert (await box.stats()).full == [name]
    assert find_cause(await box.shell(f"rm {place}/full*; false")) == ""


async def test_nothing_else_can_be_written(box: DockerSandbox) -> None:
    found = await box.shell(
        "for d in / /run /usr /etc /var /proc/sys /sys/fs/cgroup /opt/corral /home; do"
        " touch $d/x 2>/dev/null && echo $d; done; true"
    )
    assert output(found.stdout) == b""


@pytest.mark.parametrize("what", ["processes", "threads"])
async def test_processes(box: DockerSandbox, what: str) -> None:
    make = {
        "processes": "def make(n):\n if os.fork() == 0:\n  time.sleep(20); os._exit(0)",
        "threads": "def make(n):\n try: threading.Thread(target=time.sleep, args=(20,), daemon=True).start()\n"
        " except RuntimeError: raise OSError(errno.EAGAIN, '')",
    }
    result = await box.exec(["python3", "-c", f"{_HEAD}{make[what]}\nprint(*count(make, 200))"], kill_background=True)
    number, error = output(result.stdout).decode().split()
    assert (50 < int(number) < 100, error, result.pids_refused > 0) == (True, "EAGAIN", True)


async def test_the_toolbox_answers_while_nothing_more_can_be_started(box: DockerSandbox) -> None:
    bomb = asyncio.ensure_future(
        box.exec(["python3", "-c", f"{_HEAD}\ncount(lambda n: os.fork() or time.sleep(60), 200)\ntime.sleep(60)"])
    )
    await asyncio.sleep(1.0)
    assert (await box.write_file("meanwhile", b"x")).action == "created"
    assert (await box.stats()).pids_refused > 0
    await box.kill_all()
    assert (await bomb).status is ExecStatus.KILLED


async def test_memory_and_no_swap(box: DockerSandbox) -> None:
    result = await box.exec(["python3", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"])
    assert (result.signal, result.oom_kills, result.max_rss < LIMITS.memory_bytes) == (9, 1, True)
    shared = "import mmap\nx = []\nwhile True: m = mmap.mmap(-1, 1 << 20); m.write(bytes(1 << 20)); x.append(m)"
    result = await box.exec(["python3", "-c", shared])
    assert (result.signal, result.oom_kills) == (9, 1)


async def test_memory_that_the_kernel_holds_for_the_box(box: DockerSandbox) -> None:
    """Pipes of 64 KiB, full, from as many processes as there may be: more than its memory if nobody counted it."""
    program = """
def fill(n):
    if os.fork() == 0:
        try:
            while True:
                reader, writer = os.pipe()
                os.set_blocking(writer, False)
                os.write(writer, bytes(1 << 16))
        except OSError:
            time.sleep(20)
        os._exit(0)
count(fill, 60)
time.sleep(4)
"""
    result = await box.exec(["python3", "-c", _HEAD + program], kill_background=True)
    stats = await box.stats()
    assert stats.memory_peak <= LIMITS.memory_bytes
    assert stats.memory_peak > LIMITS.memory_bytes // 2 or result.oom_kills  # it was tried


async def test_processor_time(box: DockerSandbox) -> None:
    begun = time.monotonic()
    result = await box.shell("for i in 1 2 3 4; do timeout 2 sh -c 'while :; do :; done' & done; wait", timeout_s=30)
    assert result.user_s + result.system_s < (time.monotonic() - begun) * LIMITS.cpus * 1.2


async def test_wall_clock_of_a_command(box: DockerSandbox) -> None:
    result = await box.shell("trap '' TERM INT HUP; setsid sleep 50 & while :; do sleep 50; done", timeout_s=0.5)
    assert (result.status, result.duration_s < 5) == (ExecStatus.TIMEOUT, True)


async def test_wall_clock_of_the_box(tmp_path: Path, image: str) -> None:
    (tmp_path / "workspace").mkdir()
    limits = Limits(wall_s=1.0)
    async with DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image, limits=limits)) as box:
        with pytest.raises(BoxLost, match="time limit of 1 s") as lost:
            await box.shell("sleep 30")
        assert lost.value.cause == "timeout"


async def test_output_rate(box: DockerSandbox) -> None:
    """As much output as the reader takes, and no more: the writer waits, the box answers meanwhile."""
    taken = 0
    release = asyncio.Event()

    async def slow(piece: memoryview) -> None:
        nonlocal taken
        taken += len(piece)
        await release.wait()

    flood = asyncio.ensure_future(box.exec(["cat", "/dev/zero"], stdout=slow, stream_limit=-1, timeout_s=20))
    await asyncio.sleep(0.5)
    assert taken <= 1 << 20
    assert (await box.shell("echo here")).stdout.total_bytes == 5
    flood.cancel()
    await asyncio.gather(flood, return_exceptions=True)


async def test_output_kept_and_counted(box: DockerSandbox) -> None:
    kept = bytearray()
    result = await box.exec(
        ["head", "-c", "50000000", "/dev/zero"], stdout=lambda piece: kept.extend(piece), stream_limit=1 << 20
    )
    assert (len(kept), result.stdout.total_bytes, result.stdout.streamed_bytes) == (1 << 20, 50_000_000, 1 << 20)
