"""What the kernel counts per user, over all boxes and the host: used up from inside, with the others as the victims."""

from __future__ import annotations

import array
import asyncio
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
from pathlib import Path

import pytest
from tests.contract.boxes import make_spec

from corral.sandbox.docker import DockerSandbox

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="becomes other users, and only root gives each box its own: needs root"
    ),
]

ATTACK = """
import array, ctypes, fcntl, os, signal, socket, sys, time
libc = ctypes.CDLL(None)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
def use_up(action):
    number = 0
    try:
        while number < 20_000:
            action()
            number += 1
    except OSError:
        pass
    return number
def inotify():
    if libc.inotify_init1(0) < 0: raise OSError
def queue():
    if libc.sigqueue(os.getpid(), signal.SIGRTMIN, ctypes.c_void_p()) < 0: raise OSError
pair = socket.socketpair()
pair[0].setblocking(False)
def fly():
    pair[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1] * 250))])
def pipes():
    os.pipe()
print("inotify", use_up(inotify), flush=True)
print("signals", use_up(queue), flush=True)
print("flying", use_up(fly) * 250, flush=True)
for _ in range(3):
    if os.fork() == 0:
        use_up(pipes)
        time.sleep(60)
print("pipes", use_up(pipes), flush=True)
open("ready", "w").close()
time.sleep(60)
"""


def look_as(uid: int) -> dict[str, object]:
    """What a user of this host can still do, in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(writer, json.dumps(_try_everything()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        text = told.read()
    os.waitpid(child, 0)
    found: dict[str, object] = json.loads(text)
    return found


def _try_everything() -> dict[str, object]:
    libc = ctypes.CDLL(None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))  # as people have it
    pipe = os.pipe()
    pair = socket.socketpair()
    try:
        pair[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1]))])
        flies = True
    except OSError:
        flies = False
    return {
        "inotify": libc.inotify_init1(0) >= 0,
        "signals": libc.sigqueue(os.getpid(), signal.SIGRTMIN, ctypes.c_void_p()) == 0,
        "pipe": fcntl.fcntl(pipe[0], 1032),  # F_GETPIPE_SZ
        "flying": flies,
    }


UNHARMED = {"inotify": True, "signals": True, "pipe": 65536, "flying": True}


async def test_a_box_of_root_takes_nothing_from_any_user(tmp_path: Path, image: str) -> None:
    for name in ("workspace", "other"):
        (tmp_path / name).mkdir()
    async with (
        DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image)) as box,
        DockerSandbox(make_spec(tmp_path / "other", tmp_path, image)) as other,
    ):
        owner = (tmp_path / "workspace").stat().st_uid
        attack = asyncio.ensure_future(box.exec(["python3", "-c", ATTACK], timeout_s=60))
        for _ in range(200):
            if box.prepared.upper is not None and (box.prepared.upper / "ready").exists():
                break
            await asyncio.sleep(0.1)
        found = {uid: look_as(uid) for uid in (1000, other.info.uid, box.info.uid, owner)}
        assert (found[1000], found[other.info.uid]) == (UNHARMED, UNHARMED)
        assert found[owner] == UNHARMED
        # The control: whoever has the box's own id feels it. Only signals are kept small for that one, too.
        felt = found[box.info.uid]
        assert (felt["inotify"], felt["flying"], felt["pipe"] < UNHARMED["pipe"]) == (False, False, True)  # type: ignore[operator]
        assert felt["signals"] is True
        attack.cancel()
        await asyncio.gather(attack, return_exceptions=True)
        assert (await box.shell("true")).exit_code == 0


async def test_kernel_keys_cannot_be_made(tmp_path: Path, image: str) -> None:
    """Keys are counted per user, and a session's keyring is shared by all processes of it."""
    (tmp_path / "workspace").mkdir()
    program = (
        "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
        "for number in {'x86_64': (248, 249, 250), 'aarch64': (217, 218, 219)}[os.uname().machine]:\n"
        " print(libc.syscall(number, b'user', b'x', b'y', 1, -3))"
    )
    async with DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image)) as box:
        result = await box.exec(["python3", "-c", program])
    assert (result.exit_code, result.stdout.head_b64) == (0, "LTEKLTEKLTEK")  # -1 three times
