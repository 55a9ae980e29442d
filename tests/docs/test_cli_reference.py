"""Every command and flag is documented, with a text."""

from __future__ import annotations

import re

from tests.docs.cli_reference import TARGET, render_reference


def test_command_reference_is_what_the_commands_say() -> None:
    assert TARGET.read_text() == render_reference(), "run: python -m tests.docs.cli_reference"


def test_every_flag_has_a_text() -> None:
    flags = re.findall(r"^\* `(-[^`]*|[A-Z]+[^`]*)`(.*)$", render_reference(), re.MULTILINE)
    assert len(flags) > 10
    assert [flag for flag, text in flags if len(text.strip(": ").split("*[")[0]) < 10] == []
