"""What a run used: each number from the one whose word it is."""

from __future__ import annotations

import time

from corral.agent.account import Account
from corral.schema.resources import BoxResources
from corral_protocol.message import Stats

STATS = Stats(
    processes=1,
    zombies=0,
    calls=0,
    rss=0,
    pss=0,
    memory_peak=4096,
    user_s=1.5,
    system_s=0.5,
    tasks_peak=9,
    programs=3,
    written_bytes=512,
)


def test_the_boxs_numbers_stand_under_its_name_and_traffic_is_ours() -> None:
    traffic = [(1, 2)]
    account = Account(lambda: traffic[0])
    traffic[0] = (10, 20)
    used = account.read(STATS)
    assert used.box == BoxResources(
        user_s=1.5, system_s=0.5, memory_peak_bytes=4096, tasks_peak=9, programs=3, written_bytes=512
    )
    assert (used.network_in_bytes, used.network_out_bytes) == (10, 20)


def test_own_share_is_counted_from_the_beginning_of_the_run() -> None:
    burn(0.2)
    account = Account()
    first = account.read(None)
    burn(0.2)
    second = account.read(None)
    own = second.orchestrator
    assert (first.box, first.orchestrator.user_s + first.orchestrator.system_s < 0.2) == (None, True)
    assert own.user_s + own.system_s >= 0.19
    assert own.max_rss_bytes > 10 << 20
    assert second.wall_s >= 0.2


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
