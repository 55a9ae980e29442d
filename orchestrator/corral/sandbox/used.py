"""What a box says that was used, in the form of results and record."""

from __future__ import annotations

from corral.schema.resources import BoxResources, CallResources
from corral_protocol.message import ExecResult, Stats


def build_call_resources(result: ExecResult) -> CallResources:
    return CallResources(
        user_s=result.user_s,
        system_s=result.system_s,
        max_rss_bytes=result.max_rss,
        programs=result.programs,
        programs_peak=result.programs_peak,
        written_bytes=result.written_bytes,
    )


def build_box_resources(stats: Stats) -> BoxResources:
    return BoxResources(
        user_s=stats.user_s,
        system_s=stats.system_s,
        memory_peak_bytes=stats.memory_peak,
        tasks_peak=stats.tasks_peak,
        programs=stats.programs,
        written_bytes=stats.written_bytes,
    )
