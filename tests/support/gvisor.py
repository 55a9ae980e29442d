"""An engine of a test's own that has gVisor, where runsc is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from tests.support.own_engine import OwnEngine

RUNTIME = "runsc"
ARGUMENTS = ("--network=none",)
"""No network of its own making: it wants to set one up in what it takes for the host's namespace."""
HANGS, MISSES, FAILS = "hangs", "absent", "fails"
"""Runtimes of the own engine that start nothing; the second is not registered."""


def open_gvisor_engine(place: Path, engine: docker.DockerClient, image: str) -> Iterator[OwnEngine]:
    """One that has the image. Skips, and says why, where there is no gVisor."""
    program = shutil.which("runsc")
    if program is None:
        pytest.skip("gVisor is not installed (apt-get install runsc)")
    hanging = place.with_name(f"{place.name}-hangs")
    hanging.write_text("#!/bin/sh\nexec sleep 120\n")
    hanging.chmod(0o755)
    runtimes = {
        RUNTIME: [program, *ARGUMENTS],
        HANGS: [str(hanging)],
        FAILS: ["/bin/false"],
    }
    with OwnEngine(place, runtimes=runtimes) as own:
        own.copy_image(engine, image)
        yield own
