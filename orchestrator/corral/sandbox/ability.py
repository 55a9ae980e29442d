"""What the kernel under a box can do for corral, as the toolbox tells before anything untrusted runs, and what is
missing without it. A container runtime may bring a kernel of its own (gVisor), which can do less."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from corral.sandbox.base import BoxInfo
from corral.sandbox.spec import RUNC

PROCESS_RECORD = "process_record"
"""What is started and connected to can be told."""
LANDLOCK = "landlock"
"""A second layer around files holds."""
HOST_KERNEL = "host_kernel"
"""The box's calls reach the host's kernel, and its processes are the host's."""
FILTER = "filter"
"""corral's own filter of system calls holds."""
COUNTERS = "counters"
"""What the kernel counts of the box (out of memory, processes refused) can be read."""
PROCESS_TREES = "process_trees"
"""What a call started can be told from what another one did, however often it has forked."""


def has_own_kernel(info: BoxInfo) -> bool:
    """Whether the box's runtime was chosen for the kernel it brings."""
    return info.runtime != RUNC and HOST_KERNEL not in info.capabilities


def describe_missing(capabilities: Collection[str], *, is_watched: bool) -> Iterator[str]:
    """What this box does without, for people and the record."""
    is_own = HOST_KERNEL not in capabilities
    if is_own:
        filters = "" if FILTER in capabilities else ", and corral's filter of system calls is not applied"
        yield f"the runtime's own kernel answers the box (gVisor){filters}"
        yield "a fork bomb or one of memory ends the whole box, a command that is ended what others left running"
    elif PROCESS_TREES not in capabilities:
        yield "a command that is ended takes along what others left running in the background"
    if LANDLOCK not in capabilities and not is_own:
        yield "no second layer around files: this kernel has no Landlock of ABI 2 (Linux 5.19)"
    if is_watched and PROCESS_RECORD not in capabilities:
        yield "processes and connections are not recorded: this kernel or runtime has no seccomp user notification"
