"""Outliving the box on the host: what the engine keeps when the one who started it has gone. The host judges."""

from __future__ import annotations

from .attack import PLANTED, Table

LEFT = Table("persistence")


def _nothing() -> str:
    return PLANTED


for _name, _what in (
    ("container", "the container itself stays"),
    ("volume", "a volume stays"),
    ("process", "a process of it runs on"),
    ("mount", "a mount stays in the host's table"),
):
    LEFT.add(f"left-{_name}", _what, _nothing, needs="host", path=_name)
