"""What calls and runs used, and whose word each number is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class CallResources(_Part):
    """What one command used, with everything it started. The box's word: what the kernel told its supervisor."""

    user_s: float = 0.0
    system_s: float = 0.0
    """Processor seconds of every process that was waited for."""
    max_rss_bytes: int = 0
    """Resident memory of its largest process; not less than about 10 MiB, with which every process begins."""
    programs: int = 0
    """Processes that ran a program; 0 where the box cannot watch them."""
    programs_peak: int = 0
    """Of these, the most at once."""
    written_bytes: int = 0
    """Changed in files of the workspace or another disk; /tmp, home and /dev/shm are memory."""


class BoxResources(_Part):
    """What a box used in its whole life. The box's word: counters of its control group, as its toolbox reads them."""

    user_s: float = 0.0
    system_s: float = 0.0
    """Processor seconds, the toolbox's own included."""
    memory_peak_bytes: int = 0
    """The most at once, files in /tmp and what the kernel keeps of files included."""
    tasks_peak: int = 0
    """The most processes and threads at once; 0 where the kernel does not count it."""
    programs: int = 0
    written_bytes: int = 0
    """Both as for a command, of all commands together."""


class OwnResources(_Part):
    """What the process of the orchestrator used meanwhile, other runs in it included. Its own word."""

    user_s: float = 0.0
    system_s: float = 0.0
    """Processor seconds, those of its ended helpers included."""
    max_rss_bytes: int = 0
    """Resident memory at its highest, since the process began."""


class RunResources(_Part):
    """What a run used, or has used so far."""

    wall_s: float = 0.0
    """By the orchestrator's clock."""
    box: BoxResources | None = None
    """None when the box could not be asked any more."""
    orchestrator: OwnResources = OwnResources()
    network_in_bytes: int = 0
    network_out_bytes: int = 0
    """Into the box and out of it, as the orchestrator passed them on; there is no other way."""
