"""How the toolbox gets into a container of one image, and is started there. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    command: tuple[str, ...]
    """Absolute, isolated from environment and site-packages: nothing in image or workspace can stand in for it."""
    mounts: tuple[Mapping[str, Any], ...] = ()
    home: str = "/home"
    """Where the writable home begins: what an image has beside it stays visible."""
    home_owner: tuple[int, int] | None = None
    warnings: tuple[str, ...] = ()


SANDBOX_ENTRY = Entry(("/usr/bin/python3", "-I", "-S", "/opt/corral/toolbox"))
"""Of our own image, which brings Python and toolbox with it."""
