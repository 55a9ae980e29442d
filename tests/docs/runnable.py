"""Blocks of our texts that can be run: ```sh run, ```python run, and what ```text expect says of the one before."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    marks: tuple[str, ...]
    text: str
    line: int

    @property
    def is_runnable(self) -> bool:
        return "run" in self.marks

    @property
    def is_expectation(self) -> bool:
        return "expect" in self.marks


def find_blocks(file: Path) -> list[Block]:
    text = file.read_text()
    return [
        Block(match[1], tuple(match[2].split()), match[3], text.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(text)
    ]


def missing_line(expected: str, output: str) -> str | None:
    """The first line of `expected` that does not come in `output`, in order; `…` stands for anything."""
    position = 0
    for line in expected.splitlines():
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        found = pattern.search(output, position)
        if found is None:
            return line
        position = found.end()
    return None
