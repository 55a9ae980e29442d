"""docs/performance.md, from what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.machine import Machine
from benchmarks.table import Group, render_markdown

_HEAD = """\
# Performance

Written by `make bench` from its own results: never edited. The question is always the same: what does it cost beside
doing it with plain Docker, on this machine, in this minute?
"""

_METHOD = """\
## Method

Contenders take turns (A, B, C, A, B, C …) in one run, so that whatever else the machine does hits all of them; a first
round is not counted. Shown are the median and the span from the first to the last tenth; the ratio is the median of
the rounds' ratios. `limit` is what we hold ourselves to: a ratio where something stands beside, else the value itself.
Run it with `make bench`; `python -m benchmarks --quick` takes a minute or two, `python -m benchmarks.call` runs one
group. It exits 1 when a limit is missed.
"""

_LIMITS = """\
## What dominates

- **Start.** Creating and starting any container is most of it: the engine's bookkeeping, the runtime's namespaces,
  mounts and cgroups. Of that, half is the engine's network set-up, also for `none`; boxes of our own image leave it out
  (their `/etc/hosts` is in the image), which pays for all of the hardening. The workspace is an overlay mount: its
  size does not matter. Python's start in the box takes 20 to 30 ms.
- **`corral exec`.** The interpreter's own start and the imports come on top; they run while the engine makes the box.
  Removing the container, which a process has to wait for, costs as much again as starting it.
- **A warm call.** The message travels through the engine's attached stream, four processes each way; then bash starts,
  which on the host alone costs half of what a call takes in all. Nothing is forked after the call has arrived: the
  supervisor and its locked-down child wait for it.
- **Record.** One sync of the disk per call with a side effect, before the effect. A disk with a slow sync shows here
  and nowhere else. The rest is checking, deciding, chaining four events: a tenth of a millisecond when it is done over
  and over, two or three times that for a call by itself, whose code the caches have lost meanwhile.
- **Export.** Depends on what changed, not on the tree: what is left is git's own start for the diff.
- **Network.** Each byte passes the engine's attached stream, as a file's do, and two sockets more: one on the box's
  loopback, one outside. Data of all streams goes in turn, a chunk each, behind every message.
- **Output.** Bytes pass through the engine once and are never decoded; credit per stream bounds what is in flight.
- **Watching what runs.** Per program two changes of process and a dozen reads, 0.1 to 0.2 ms of a processor in all: a
  quarter of what it takes to start one that does nothing, a few hundredths of a compiler's run.
"""


def render_report(machine: Machine, groups: Sequence[Group], *, quick: bool) -> str:
    head = f"Measured on {machine.describe()}." + (" A quick run: fewer rounds, smaller trees." if quick else "")
    return "\n".join([_HEAD, head, "", *(f"{render_markdown(group)}\n" for group in groups), _METHOD, _LIMITS])
