"""What a run has used so far: its time, the box's counters, our own share, the bytes of its network."""

from __future__ import annotations

import resource  # the same numbers as psutil's, whose import costs more than a call
import time
from collections.abc import Callable

from corral.sandbox.used import build_box_resources
from corral.schema.resources import OwnResources, RunResources
from corral_protocol.message import Stats

Traffic = Callable[[], tuple[int, int]]
"""Bytes into the box and out of it, so far."""


def no_traffic() -> tuple[int, int]:
    """Of a box without network."""
    return 0, 0


class Account:
    """Begins when it is made."""

    def __init__(self, traffic: Traffic = no_traffic) -> None:
        self._began_at = time.monotonic()
        self._own = _read_own()
        self._traffic = traffic

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self._began_at

    def read(self, stats: Stats | None) -> RunResources:
        """`stats`: what the box says, where it could be asked."""
        user_s, system_s = (now - then for now, then in zip(_read_own(), self._own, strict=True))
        network_in, network_out = self._traffic()
        return RunResources(
            wall_s=round(self.wall_s, 3),
            box=None if stats is None else build_box_resources(stats),
            orchestrator=OwnResources(
                user_s=round(user_s, 3),
                system_s=round(system_s, 3),
                max_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
            ),
            network_in_bytes=network_in,
            network_out_bytes=network_out,
        )


def _read_own() -> tuple[float, float]:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime for one in both), sum(one.ru_stime for one in both)
