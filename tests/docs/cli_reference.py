"""Writes docs/reference/cli.md from the commands themselves: `python -m tests.docs.cli_reference`."""

from __future__ import annotations

import sys
from pathlib import Path

from corral.cli.main import app

TARGET = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

HEAD = """\
# Commands

Written by `python -m tests.docs.cli_reference` from `corral --help`; a test holds it equal. What exit codes mean stands
in [errors.md](errors.md), what the settings file may hold in [settings.md](settings.md).

"""


def render_reference() -> str:
    # The usage lines of lazily loaded commands take their first words from the arguments of this process.
    arguments, sys.argv = sys.argv, ["corral"]
    try:
        body = app.generate_docs(output_format="markdown")
    finally:
        sys.argv = arguments
    # The first heading and usage line repeat the title.
    return HEAD + body.split("\n", 1)[1].strip() + "\n"


if __name__ == "__main__":
    TARGET.write_text(render_reference(), encoding="utf-8")
