from __future__ import annotations

from itertools import pairwise

import pytest

from corral.sandbox.workspace.kernel.idmap import FIRST_BOX_ID, SPARE_ID, IdMap

LAST = 2**32 - 2


def expand(lines: str) -> list[tuple[int, int, int]]:
    return [(int(a), int(b), int(c)) for a, b, c in (line.split() for line in lines.splitlines())]


@pytest.mark.parametrize("disk", [0, 1, 1000, FIRST_BOX_ID, FIRST_BOX_ID + 7, SPARE_ID - 1, SPARE_ID, LAST])
def test_no_two_owners_are_seen_as_one_and_none_is_lost(disk: int) -> None:
    idmap = IdMap(disk, FIRST_BOX_ID + 7)
    ranges = expand(idmap.lines())
    on_disk = sorted((start, start + length) for start, _, length in ranges)
    seen = sorted((start, start + length) for _, start, length in ranges)
    for taken in (on_disk, seen):
        assert all(before[1] <= after[0] for before, after in pairwise(taken))
    covered = sum(length for _, _, length in ranges)
    assert covered >= LAST  # of 2**32 - 1 ids at most the spare one has no place
    assert len(ranges) < 340
    for start, target, _ in ranges:
        assert idmap.view(start) == target
    assert idmap.view(disk) == FIRST_BOX_ID + 7
