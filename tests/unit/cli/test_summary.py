"""One line about what a run used."""

from __future__ import annotations

from corral.cli.summary import describe_resources
from corral.schema.resources import BoxResources, OwnResources, RunResources

OWN = OwnResources(user_s=0.25, system_s=0.25, max_rss_bytes=1)


def test_what_is_nothing_is_not_told() -> None:
    box = BoxResources(user_s=1.0, system_s=0.25, memory_peak_bytes=3 << 20)
    assert describe_resources(RunResources(box=box, orchestrator=OWN)) == (
        "1.2 s of cpu (1.0 user, 0.2 system), 3.0 MiB of memory, corral itself 0.5 s of cpu"
    )


def test_all_of_it() -> None:
    box = BoxResources(user_s=1.0, memory_peak_bytes=3 << 20, programs=2, written_bytes=1 << 20)
    assert describe_resources(RunResources(box=box, orchestrator=OWN)) == (
        "1.0 s of cpu (1.0 user, 0.0 system), 3.0 MiB of memory, 2 processes, 1.0 MiB written,"
        " corral itself 0.5 s of cpu"
    )


def test_a_lost_box_says_nothing() -> None:
    assert describe_resources(RunResources(orchestrator=OWN)) == "corral itself 0.5 s of cpu"
