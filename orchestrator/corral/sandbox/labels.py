"""The labels on everything corral makes in an engine, and whether the process that made it is still there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

MARK = "corral"
RUN = "corral.run"
ROLE = "corral.role"
OWNER_PID = "corral.owner.pid"
OWNER_START = "corral.owner.start"
BOOT = "corral.owner.boot"
NAMESPACE = "corral.owner.namespace"
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's own number for the one that sees all processes."""


def labels(run_id: str, role: str) -> dict[str, str]:
    """What marks an object as this process's, for `run_id`, in `role` (box, workspace, cleaner, ...)."""
    pid = os.getpid()
    return {
        MARK: "1",
        RUN: run_id,
        ROLE: role,
        OWNER_PID: str(pid),
        OWNER_START: str(process_start_ticks(pid) or 0),
        BOOT: read_boot_id(),
        NAMESPACE: read_pid_namespace(),
    }


def _is_empty(namespace: str) -> bool:
    """Whether no process is in this pid namespace any more. False where that cannot be known."""
    if read_pid_namespace() != _FIRST_NAMESPACE or os.geteuid() != 0:
        return False
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                if os.readlink(f"{entry.path}/ns/pid") == namespace:
                    return False
            except (FileNotFoundError, ProcessLookupError):  # it has just ended, or is about to
                continue
            except OSError:
                return False
    return True


def process_start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when there is no such process.

    A pid comes back after a while; pid and start time together do not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets and may hold anything, brackets and spaces included.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def owner_is_alive(marks: Mapping[str, str]) -> bool:
    """Whether the process named by `labels()` still runs here. Labels that cannot be read count as a dead owner.

    An owner in another pid namespace of this kernel (a container that uses the host's engine) cannot be looked up:
    it counts as alive, unless root of the host sees that nobody is left in there. The box's lease sees to the rest.
    """
    try:
        pid, start = int(marks[OWNER_PID]), int(marks[OWNER_START])
    except (KeyError, ValueError):
        return False
    if marks.get(BOOT, read_boot_id()) != read_boot_id():
        return False
    if marks.get(NAMESPACE, "") not in ("", read_pid_namespace()):
        return not _is_empty(marks[NAMESPACE])
    return start > 0 and process_start_ticks(pid) == start


def read_boot_id() -> str:
    """This kernel's id since boot; "" where /proc does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def read_pid_namespace() -> str:
    """Which pid namespace our pids are numbers of; "" where /proc does not say."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
