"""Stopping a box's commands from outside: all of them, nothing else, however fast they fork."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from pathlib import Path

import psutil
import pytest
from tests.contract.boxes import make_spec

from corral.sandbox.docker import DockerSandbox
from corral.sandbox.halt import Halt

pytestmark = pytest.mark.docker

FORKERS = "import os, time\nfor _ in range(6): os.fork() or time.sleep(0.001)\ntime.sleep(30)"


async def test_stops_every_command_and_lets_the_toolbox_answer(tmp_path: Path, image: str) -> None:
    (tmp_path / "workspace").mkdir()
    async with DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image)) as box:
        halt = Halt.find(box.info.box_id, box.info.uid)
        if halt is None:
            pytest.skip("the engine's control groups are not to be seen here")
        running = asyncio.ensure_future(box.exec(["python3", "-c", "import os\n" + FORKERS], timeout_s=20))
        await asyncio.sleep(0.3)
        for _ in range(20):
            assert halt.stop()
            for _ in range(200):
                states = list_states(box)
                if states and set(states) <= {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}:
                    break
                await asyncio.sleep(0.01)  # told, and not yet had a processor to stop on
            else:
                pytest.fail(f"not stopped: {sorted(set(states))}")
            assert (await box.write_file("meanwhile", b"x")).action in ("created", "unchanged", "modified")
            halt.resume()
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert (await box.shell("true")).exit_code == 0


def list_states(box: DockerSandbox) -> list[str]:
    """Of this box's commands: others on the machine may have the same id."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if one.uids().real == box.info.uid and box.info.box_id in Path(f"/proc/{one.pid}/cgroup").read_text():
                found.append(one.status())
    return found


def test_signals_nobody_whose_number_was(tmp_path: Path) -> None:
    """A list of members that is out of date names a process of this user's, outside of the box."""
    with subprocess.Popen(["sleep", "30"]) as other:
        (tmp_path / "cgroup.procs").write_text(f"{other.pid}\n{os.getpid()}\n0\n")
        Halt(tmp_path, "0123456789abcdef", os.getuid()).stop()
        assert psutil.Process(other.pid).status() != psutil.STATUS_STOPPED
        other.kill()
