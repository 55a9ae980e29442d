"""Where it is measured: a directory of our own, trees in it, boxes over them, and a plain container beside."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from docker import APIClient

from corral.sandbox.docker import DockerSandbox
from corral.sandbox.image import expected_tag, find_image
from corral.sandbox.spec import SandboxSpec
from corral.store.run_dir import RunDir

SMALL_FILES = 20
FILES_PER_DIRECTORY = 250
_LETTERS = b"abcdefghijklmnopqrstuvwxyz      \n"


@dataclass(frozen=True)
class Place:
    """A directory on the disk that corral itself uses; everything in it goes at the end."""

    root: Path
    image: str
    base: str
    """What the image stands on: the same distribution, and nothing of corral."""

    @classmethod
    def make(cls, parent: Path | None) -> Place:
        image = find_image(expected_tag())
        if image is None:
            raise SystemExit("there is no sandbox image: corral image build")
        parent = parent or Path(platformdirs.user_data_dir("corral", appauthor=False))
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(Path(tempfile.mkdtemp(prefix="bench-", dir=parent)), image.tag, image.base)

    def remove(self) -> None:
        shutil.rmtree(self.root)

    def make_tree(self, name: str, *, files: int = SMALL_FILES, file_bytes: int = 200) -> Path:
        """Files of text, no two alike, in directories of at most 250."""
        root = self.root / name
        pool = random.Random(0).choices(_LETTERS, k=1 << 18)
        text = bytes(pool) * 2
        for number in range(files):
            directory = root / f"d{number // FILES_PER_DIRECTORY:03}"
            if number % FILES_PER_DIRECTORY == 0:
                directory.mkdir(parents=True)
            start = (number * 7919) % (1 << 18)
            head = b"%d\n" % number
            with open(directory / f"f{number % FILES_PER_DIRECTORY:03}.txt", "wb", buffering=0) as file:
                file.write(head + text[start : start + file_bytes - len(head)])
        return root

    @contextlib.asynccontextmanager
    async def box(self, workspace: Path) -> AsyncIterator[tuple[DockerSandbox, RunDir]]:
        """A started box with a run directory of its own."""
        with self.run_dir() as run_dir:
            async with self.sandbox(workspace, run_dir) as sandbox:
                yield sandbox, run_dir

    @contextlib.contextmanager
    def run_dir(self) -> Iterator[RunDir]:
        run_dir = RunDir.create(self.root / "runs")
        try:
            yield run_dir
        finally:
            run_dir.close()

    def sandbox(self, workspace: Path, run_dir: RunDir, image: str | None = None) -> DockerSandbox:
        return DockerSandbox(self.spec(workspace, run_dir, image))

    def spec(self, workspace: Path, run_dir: RunDir, image: str | None = None) -> SandboxSpec:
        return SandboxSpec(workspace, run_dir.path, run_dir.run_id, image=image or self.image)


@contextlib.contextmanager
def open_client() -> Iterator[APIClient]:
    client = APIClient(version="1.41", timeout=120)
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def plain_container(client: APIClient, image: str) -> Iterator[str]:
    """What people use without corral: the same image, asleep, no network, nothing hardened."""
    identifier = create_plain(client, image)
    try:
        client.start(identifier)
        yield identifier
    finally:
        client.remove_container(identifier, force=True, v=True)


def create_plain(client: APIClient, image: str) -> str:
    """Created, not started. Returns the id."""
    reply = client.create_container(
        image, ["infinity"], entrypoint=["sleep"], network_disabled=False, host_config=_no_network(client)
    )
    return str(reply["Id"])


def _no_network(client: APIClient) -> dict[str, object]:
    return dict(client.create_host_config(network_mode="none"))


def run_quiet(*command: str | Path, cwd: Path | None = None) -> str:
    """A host program to its end; what it printed. Raises CalledProcessError."""
    done = subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, errors="replace")
    return done.stdout.strip()


def drop_nothing_dirty() -> None:
    """Let the disk finish what making the trees has left, so that it is not measured."""
    os.sync()
