"""What the doctor's findings mean where the runtime brings a kernel of its own (gVisor): that kernel is the wall then.

What corral's filter would refuse reaches it, and not the host's; what it tells is its own. Such findings are warnings:
less than a box of the host's kernel holds, and no way out. Everything else is judged as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from corral.doctor.check import Check, Status

_OF_THE_KERNEL = {
    "new privileges": "the runtime's kernel does not say whether it forbids them; there is no set-id program",
    "filter": "corral's filter is not applied: the runtime's kernel is the wall",
    "system calls": "they reach the runtime's kernel, not the host's",
    "sockets": "they are the runtime's kernel's, which has no network but its own loopback",
    "kernel files": "what they tell is of the runtime's kernel",
    "memory files": "the runtime's kernel holds sizes and no file limits: the memory limit of the box does",
}


_HARMLESS = {"descriptors", "environment", "priority"}
"""Of the toolbox: how many descriptors it has, the image's variables, a priority that no scheduler looks at."""


def soften(checks: Iterable[Check], *, toolbox: Collection[str]) -> Iterator[Check]:
    """The same checks, with what the runtime's kernel decides as warnings. `toolbox`: what could be done to it."""
    expected = dict(_OF_THE_KERNEL)
    if _HARMLESS.issuperset(toolbox):
        expected["toolbox"] = "the runtime's kernel shows that much of every process; nothing of it can be changed"
    yield Check(
        "kernel",
        Status.WARN,
        "the runtime's own kernel answers the box (gVisor)",
        "processes and connections are not recorded; a fork bomb or one of memory ends the whole box",
    )
    for check in checks:
        if check.status is Status.FAIL and check.name in expected:
            yield replace(check, status=Status.WARN, hint=expected[check.name])
        else:
            yield check
