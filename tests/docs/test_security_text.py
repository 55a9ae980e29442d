"""SECURITY.md promises nothing that is not attacked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()


def boundaries() -> list[list[str]]:
    """The rows of the table of boundaries."""
    part = TEXT.split("## What is a boundary", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    return rows[2:]


def test_there_is_a_table_of_boundaries() -> None:
    assert len(boundaries()) >= 8
    assert {len(row) for row in boundaries()} == {3}


@pytest.mark.parametrize("row", boundaries(), ids=lambda row: row[0])
def test_every_boundary_names_tests_that_exist(row: list[str]) -> None:
    named = re.findall(r"`(test_\w+)`", row[2])
    assert named
    assert [name for name in named if not (ROOT / "tests" / "security" / f"{name}.py").is_file()] == []
