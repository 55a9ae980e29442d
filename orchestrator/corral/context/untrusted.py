"""Tool output on its way to a model: always data with a source, in a wrapper it cannot close."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from corral.schema.visible import visible


def new_boundary() -> str:
    """Twenty digits nobody in the box can know. Digits only: comparing two outputs ignores numbers."""
    return f"{secrets.randbelow(10**20):020d}"


def wrap_untrusted(text: str, source: str, *, boundary: Callable[[], str] = new_boundary) -> str:
    """`text` between two lines that name the source and share a boundary drawn after the text was made."""
    mark = boundary()
    # SECURITY: text that holds the boundary could close the wrapper; test_output_cannot_close_its_wrapper
    while mark in text:
        mark = boundary()
    name = visible(source, limit=100).replace('"', "'")
    end = "" if text.endswith("\n") else "\n"
    return f'<untrusted source="{name}" id="{mark}">\n{text}{end}</untrusted id="{mark}">'
