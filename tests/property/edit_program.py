"""Seeded random programs of edits, for where every one costs a box: no two alike, and dense.

The vocabulary is that of the cheap property (test_patch_round_trip.py), where hypothesis searches.
"""

from __future__ import annotations

from random import Random

from tests.property.overlay_box import Operation
from tests.property.test_patch_round_trip import CONTENT, NAMES, START, USUAL

MODES = ["644", "755", "600", "444", "4755"]
HARD_MODES = ["0", "100", "200", "400", "500", "700", "1777"]
LEFTOVERS = [".corral-tmp-0123456789abcdef", "a/.corral-tmp-old-0123456789abcdef"]
_VERBS = [
    *("write", "write", "write", "append", "append", "remove", "remove", "empty", "renew", "move", "move"),
    *("mkdir", "symlink", "link", "chmod", "chmod", "touch", "fifo", "xattr"),
]


def draw_original(chance: Random) -> list[Operation]:
    """A program that makes a tree."""
    start = START if chance.random() < 0.8 else []
    return start + [_draw(chance, MODES) for _ in range(chance.randrange(20))]


def draw_edits(chance: Random) -> list[Operation]:
    """A program that changes it, and now and then closes it, its root included."""
    edits = [_draw(chance, MODES + HARD_MODES) for _ in range(chance.randrange(1, 25))]
    if chance.random() < 0.3:
        edits.append(("write", chance.choice(LEFTOVERS), chance.choice(CONTENT)))
    if chance.random() < 0.3:
        edits.append(("chmod", ".", chance.choice(HARD_MODES)))
    return edits


def _draw(chance: Random, modes: list[str]) -> Operation:
    verb = chance.choice(_VERBS)
    more: dict[str, list[str]] = {
        "write": [chance.choice(CONTENT)],
        "append": [chance.choice(["more\n", "\0"])],
        "renew": [_draw_path(chance), chance.choice(CONTENT)],
        "move": [_draw_path(chance)],
        "symlink": [chance.choice(["a", "../b", "/etc", "c d/x.ig"])],
        "link": [_draw_path(chance)],
        "chmod": [chance.choice(modes)],
    }
    return (verb, _draw_path(chance), *more.get(verb, []))


def _draw_path(chance: Random) -> str:
    """Mostly one of few, so that edits meet each other."""
    if chance.random() < 0.7:
        return chance.choice(USUAL)
    return "/".join(chance.choice(NAMES) for _ in range(chance.randint(1, 3)))
