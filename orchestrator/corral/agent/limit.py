"""Which limits of the box a run ran into, as counters of the kernel and the box's own end prove; for people."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from corral.errors import BoxLost, CorralError
from corral.sandbox.spec import Limits
from corral.schema.size import show_size
from corral_protocol.message import ExecResult, Stats


@dataclass(frozen=True)
class Count:
    """What was counted over one command, or over the whole life of a box."""

    oom_kills: int = 0
    pids_refused: int = 0
    files_cut: int = 0
    full: tuple[str, ...] = ()

    @classmethod
    def of_command(cls, result: ExecResult) -> Count:
        return cls(result.oom_kills, result.pids_refused, int(result.signal == signal.SIGXFSZ), tuple(result.full))

    @classmethod
    def of_box(cls, stats: Stats) -> Count:
        return cls(stats.oom_kills, stats.pids_refused, full=tuple(stats.full))


def find_touched(count: Count, limits: Limits, error: CorralError | None = None) -> tuple[str, ...]:
    """The limits by name and number."""
    touched = []
    cause = error.cause if isinstance(error, BoxLost) else ""
    if count.oom_kills:
        touched.append(f"memory {show_size(limits.memory_bytes)} ({count.oom_kills} killed)")
    elif cause == "oom":
        touched.append(f"memory {show_size(limits.memory_bytes)}")
    if count.pids_refused:
        touched.append(f"processes {limits.pids} ({count.pids_refused} refused)")
    elif cause == "pids_exhausted":
        touched.append(f"processes {limits.pids}")
    if count.files_cut:
        touched.append(f"file size {show_size(limits.file_bytes)}")
    sizes = {"tmp": limits.tmp_bytes, "home": limits.home_bytes, "shm": limits.shm_bytes}
    names = {"tmp": "/tmp", "home": "home", "shm": "/dev/shm"}
    touched += [f"{names[one]} {show_size(sizes[one])}" for one in sizes if one in count.full]
    if cause == "disk_full":
        spare = show_size(limits.min_free_bytes)
        touched.append(
            f"disk ({show_size(limits.workspace_bytes)}, {limits.workspace_inodes} files, {spare} to stay free)"
        )
    elif "workspace" in count.full:
        touched.append("the workspace's disk is full")
    if cause == "timeout" and limits.wall_s is not None:
        touched.append(f"the box's time {limits.wall_s:g} s")
    return tuple(touched)
