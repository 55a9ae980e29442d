"""What our texts point at exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def anchors(file: Path) -> set[str]:
    """The names that headings have on a forge's page."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_leads_somewhere(file: Path) -> None:
    text = re.sub(r"```.*?```", "", file.read_text(), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (file.parent / name).resolve() if name else file
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_every_path_named_in_the_texts_of_the_house_exists() -> None:
    texts = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "PRINCIPLES.md")]
    named = {
        path
        for file in texts
        for path in re.findall(r"`((?:docs|tests|toolbox|orchestrator|policies)/[\w./-]*)`", file.read_text())
    }
    # The table of measurements is made by `make bench`.
    assert sorted(path for path in named - {"docs/performance.md"} if not (ROOT / path).exists()) == []
