"""A path in its wire form, as a person may see it."""

from __future__ import annotations

from corral.schema.visible import visible
from corral_protocol.name import decode_name


def show_path(wire: str) -> str:
    """The name with everything unprintable spelled out; also for a claim that is no valid wire name."""
    try:
        return visible(decode_name(wire))
    except ValueError:
        return visible(wire)
