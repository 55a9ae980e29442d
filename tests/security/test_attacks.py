"""Hostile programs in a box, and in controls where each must succeed: a seeded tenth of `make bench-security`."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.security.attacks import ATTACKS
from benchmarks.security.suite import RESIDUAL, find_faults, try_attacks

_SHARE = 0.1
ROOT = Path(__file__).parents[2]


def test_the_suite_is_large_and_covers_every_family() -> None:
    counted = Counter(attack.family for attack in ATTACKS.values())
    assert len(ATTACKS) >= 150
    assert set(counted) == {"privilege", "kernel surface", "network", "resources", "integrity", "persistence"}
    assert min(counted.values()) >= 20, counted


def test_only_what_is_named_may_remain() -> None:
    """The residual list is closed, and the same in the text and in the code."""
    assert set(RESIDUAL) == {"home-writable", "see-overlay-path", "resolv-conf"}
    text = (ROOT / "SECURITY.md").read_text()
    assert [name for name in RESIDUAL if f"`{name}`" not in text] == []


@pytest.mark.docker
def test_attacks_are_held_in_a_box_and_succeed_in_a_control(chance: random.Random, sandbox_image: str) -> None:
    chosen = sorted(chance.sample(sorted(ATTACKS), round(len(ATTACKS) * _SHARE)))
    with tempfile.TemporaryDirectory(prefix="corral-attacks-", dir="/var/tmp") as folder:
        rows = try_attacks(Path(folder), sandbox_image, chosen)
    assert [row.attack.id for row in rows if row.attack.id in chosen] == [name for name in ATTACKS if name in chosen]
    assert find_faults(rows) == []
