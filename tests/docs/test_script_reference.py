from __future__ import annotations

import json
import re
from pathlib import Path

from corral.llm.scripted import Expectation, Script, ScriptedCall, ScriptedError, ScriptedReply

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "script.md"


def test_script_reference_names_exactly_the_fields_there_are() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert named == {*Script.model_fields, *ScriptedReply.model_fields, *Expectation.model_fields}
    text = "\n".join(rows)
    assert [name for name in (*ScriptedCall.model_fields, *ScriptedError.model_fields) if f"`{name}`" not in text] == []


def test_example_in_the_script_reference_is_a_script() -> None:
    example = PAGE.read_text().split("```json\n")[1].split("```")[0]
    assert len(Script.model_validate(json.loads(example)).replies) == 2
