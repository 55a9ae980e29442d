"""docs/reference/patch.md names every reason and every finding, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from corral.patch.checks import _FOUND
from corral.schema.patch import Reason

ROOT = Path(__file__).parents[2]


def test_reasons_and_findings_are_documented() -> None:
    text = (ROOT / "docs/reference/patch.md").read_text()
    reasons, findings = (set(re.findall(r"^\| `(\w+)`", part, re.M)) for part in text.split("## Findings"))
    source = "".join(path.read_text() for path in (ROOT / "orchestrator/corral/patch").rglob("*.py"))
    kinds = set(re.findall(r"_finding\(\s*\"(\w+)\"", source)) | set(re.findall(r"kind=\"(\w+)\"", source))
    kinds |= set(_FOUND)
    assert (reasons, findings) == ({reason.value for reason in Reason}, kinds)
