"""An engine of a test's own that maps user ids (`userns-remap`). It needs a user with subordinate ids, and the files
that name them are the host's: so it sees its own in a mount namespace, and so does who shares mounts with it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from tests.support.command import User
from tests.support.own_engine import OwnEngine

FIRST, SIZE = 1_900_000_000, 1 << 16
"""The ids of its containers: such as no host gives away."""
_USER = "corral-mapped"
_ENTER = 'for name in passwd group subuid subgid; do mount --bind "$0/$name" "/etc/$name" || exit; done; exec "$@"'


class MappedEngine(OwnEngine):
    def start(self) -> None:
        try:
            super().start()
        except pytest.fail.Exception as error:
            self.__exit__(None, None, None)
            pytest.skip(f"an engine with userns-remap does not start here: {error}")

    def wrap(self, arguments: list[str]) -> list[str]:
        names = self.place / "etc"
        names.mkdir()
        for name, row in (("passwd", f"{_USER}:x:{FIRST}:{FIRST}::/:/bin/false"), ("group", f"{_USER}:x:{FIRST}:")):
            (names / name).write_text(Path("/etc", name).read_text() + row + "\n")
        for name in ("subuid", "subgid"):
            (names / name).write_text(f"{_USER}:{FIRST}:{SIZE}\n")
        apart = ["unshare", "--mount", "sh", "-c", _ENTER, str(names)]
        return [*apart, *arguments, f"--userns-remap={_USER}"]

    def find_neighbour(self) -> User:
        """Root where the engine sees its mounts, as on a host with one namespace for both."""
        python = self.place / "python"
        pid = (self.place / "pid").read_text()
        python.write_text(f'#!/bin/sh\nexec nsenter --mount=/proc/{pid}/ns/mnt -- {sys.executable} "$@"\n')
        python.chmod(0o755)
        return User(python=str(python), env={"DOCKER_HOST": self.url})


@contextmanager
def open_mapped_engine(engine: docker.DockerClient, image: str) -> Iterator[MappedEngine]:
    """One that has the image. Skips, and says why, where there is none to be had."""
    for program in ("unshare", "nsenter"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} (util-linux)")
    tried = subprocess.run(["unshare", "--mount", "--user", "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this kernel gives no user namespace: {tried.stderr.strip()}")
    place = Path(tempfile.mkdtemp(prefix="mapped-engine-"))
    place.chmod(0o711)  # the mapped root has to get through, which pytest's own folders do not allow
    with MappedEngine(place) as own:
        own.copy_image(engine, image)
        yield own
