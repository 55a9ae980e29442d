from __future__ import annotations

from tests.docs.tool_reference import TARGET, render_reference


def test_tool_reference_is_what_the_specs_say() -> None:
    assert TARGET.read_text() == render_reference(), "run: python tests/docs/tool_reference.py"
