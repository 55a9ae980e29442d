"""What one corral process has left on the machine, asked of engine, mount table, process table and disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

import docker
import psutil

from corral.sandbox.labels import OWNER_PID

PATIENCE_S = 20.0


def find_leftovers(client: docker.DockerClient, pid: int, temporary: Path) -> list[str]:
    """Everything of the corral process `pid`, which ran with TMPDIR=`temporary`."""
    mark = {"label": f"{OWNER_PID}={pid}"}
    found = [f"container {one['Id'][:12]} {one['State']}" for one in client.api.containers(all=True, filters=mark)]
    found += [f"volume {one['Name'][:12]}" for one in client.api.volumes(filters=mark)["Volumes"] or ()]
    table = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [f"mount {line.split()[4]}" for line in table if str(temporary) in line.split()[4]]
    found += [f"directory {path.name}" for path in temporary.iterdir()]
    return found + [f"process {one}" for one in _processes(temporary)]


def wait_for_nothing(client: docker.DockerClient, pid: int, temporary: Path) -> list[str]:
    """What is still there when nothing more goes away; [] as soon as nothing is."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := find_leftovers(client, pid, temporary)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _processes(temporary: Path) -> list[str]:
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue
        if environment.get("TMPDIR") == str(temporary) and process.pid != os.getpid():
            found.append(f"{process.pid} {' '.join(process.info['cmdline'] or ())[:80]} {process.info['status']}")
    return found
