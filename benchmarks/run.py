"""How a group is run by itself, and how contenders take turns."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.place import Place
from benchmarks.table import Group, dump, render_text

Contender = Callable[[], Awaitable[float]]
"""Does it once and says how many seconds counted."""


@dataclass(frozen=True)
class Options:
    quick: bool
    place: Place

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full


Measure = Callable[[Options], Coroutine[None, None, Group]]


async def alternate(
    rounds: int, contenders: Mapping[str, Contender], *, pause_s: float = 0.0, warm: int = 0
) -> dict[str, list[float]]:
    """A, B, C, A, B, C …: what the machine does besides hits all of them. One round before is not counted.

    `warm` of each go uncounted before each that counts: what it is to repeat it, not to take turns with others. The
    pause is between contenders: what one leaves to be done is not charged to the next.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    for number in range(-1, rounds):
        for name, contender in contenders.items():
            await asyncio.sleep(pause_s)
            for _ in range(warm + 1):
                seconds = await contender()
            if number >= 0:
                found[name].append(seconds)
    return found


def timed(action: Callable[[], Awaitable[object]]) -> Contender:
    async def contender() -> float:
        began = time.perf_counter()
        await action()
        return time.perf_counter() - began

    return contender


def timed_blocking(action: Callable[[], object]) -> Contender:
    async def contender() -> float:
        began = time.perf_counter()
        action()
        return time.perf_counter() - began

    return contender


def main(measure: Measure) -> None:
    """The command line of one group's module."""
    arguments = parse()
    place = Place.make(arguments.dir)
    try:
        group = asyncio.run(measure(Options(arguments.quick, place)))
    finally:
        place.remove()
    if arguments.json:
        arguments.json.write_text(dump(group), encoding="utf-8")
    else:
        print(render_text(group))
        print(f"load average now: {os.getloadavg()[0]:.1f}")
    if any(row.is_over for row in group.rows) and not arguments.no_fail:
        sys.exit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller trees")
    parser.add_argument("--no-fail", action="store_true", help="exit 0 although a limit is missed")
    parser.add_argument("--dir", type=Path, help="where trees and runs are made (default: beside corral's own data)")
    parser.add_argument("--json", type=Path, help="write the group to this file instead of printing it")
    return parser.parse_args()
