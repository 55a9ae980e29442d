"""An orchestrator in a container with the engine's socket: what it sees at a path, the engine may see otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from tests.contract.boxes import find_leftovers
from tests.support.command import Ran
from tests.support.contained import Contained, require_python

from corral.sandbox.engine import Engine
from corral.sandbox.gc import collect_garbage
from corral.sandbox.labels import MARK

UID = 54323

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="gives directories to another user: needs root"),
]


@pytest.fixture
def place(docker_engine: docker.DockerClient, sandbox_image: str) -> Iterator[Path]:
    """A directory of the user's in /tmp, with a workspace, data and a home."""
    require_python(docker_engine, sandbox_image)
    folder = Path(tempfile.mkdtemp(prefix="contained-", dir="/tmp"))
    for name in ("work", "home"):
        (folder / name / "sub").mkdir(parents=True)
    (folder / "work" / "file").write_text("one\n")
    (folder / "work" / "sub" / "deep").write_text("deep\n")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def contain(docker_engine: docker.DockerClient, sandbox_image: str, place: Path) -> Callable[..., Contained]:
    def make(binds: dict[str, str], uid: int = UID, home: str = f"{place}/home") -> Contained:
        for path in (place, *place.rglob("*")):
            os.chown(path, uid, uid)
        return Contained(docker_engine, sandbox_image, home, binds, uid)

    return make


def execute(inside: Contained, place: Path, *command: str) -> tuple[Ran, dict[str, Any], str]:
    ran = inside.corral("exec", "--json", "--image", inside.image, "-C", f"{place}/work", "--", *command)
    answer: dict[str, Any] = ran.json()
    run = str(answer["run"])
    deadline = time.monotonic() + 20  # its janitor went with it: the engine removes the box by itself
    while (left := find_leftovers(inside.client, run)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    return ran, answer["box"], answer["stdout"]["head"]


def test_the_same_directory_at_the_same_path_is_an_overlay(place: Path, contain: Callable[..., Contained]) -> None:
    inside = contain({"/tmp": "/tmp"})
    ran, box, out = execute(inside, place, "sh", "-c", "cat file sub/deep; id -u; echo two >> file")
    assert (ran.code, out) == (0, f"one\ndeep\n{UID}\n")
    assert (box["mode"], box.get("mode_reason"), (place / "work/file").read_text()) == ("overlay", None, "one\n")
    assert inside.corral("apply", "last").code == 0
    assert (place / "work/file").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("kind", ["other", "clone"])
def test_another_directory_at_the_same_path_is_copied(
    place: Path, contain: Callable[..., Contained], tmp_path: Path, kind: str
) -> None:
    """The container has its own work directory where the host has another, were it with all names and times alike."""
    own = place / "own"
    if kind == "clone":
        subprocess.run(["cp", "-a", place / "work", own], check=True)
        status = (own / "sub" / "deep").stat()
        (own / "sub" / "deep").write_text("mine\n")
        os.utime(own / "sub" / "deep", ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        (own / "sub").mkdir(parents=True)
        (own / "file").write_text("another\n")
        (own / "sub" / "deep").write_text("mine\n")
    inside = contain({"/tmp": "/tmp", str(own): f"{place}/work"})
    while (own / "file").stat().st_ctime_ns == (place / "work" / "file").stat().st_ctime_ns:
        (own / "file").chmod(0o644)  # made within one tick of the clock, as only a test does
    ran, box, out = execute(inside, place, "sh", "-c", "cat sub/deep; echo two >> file")
    assert (ran.code, out) == (0, "mine\n")
    assert (box["mode"], box["mode_reason"]) == ("copy", "the engine sees another workspace: 'file' differs")
    assert (place / "work/file").read_text() == "one\n"
    assert (own / "file").read_text() == ("one\n" if kind == "clone" else "another\n")


def test_with_the_socket_alone_it_is_copied(place: Path, contain: Callable[..., Contained]) -> None:
    """The workspace is there at another path only, and nothing else of the container is the host's."""
    inside = contain({f"{place}/work": "/elsewhere/work"}, uid=0, home="/run")
    ran, box, out = execute(inside, Path("/elsewhere"), "sh", "-c", "cat file; echo two >> file")
    assert (ran.code, out, box["mode"]) == (0, "one\n", "copy")
    assert box["mode_reason"]
    assert (place / "work/file").read_text() == "one\n"


def test_a_killed_container_leaves_nothing(
    place: Path, contain: Callable[..., Contained], docker_engine: docker.DockerClient
) -> None:
    inside = contain({"/tmp": "/tmp"})
    command = ("exec", "--image", inside.image, "-C", f"{place}/work", "--", "sh", "-c", "echo ready; sleep 300")
    with inside.start(*command) as container:
        deadline = time.monotonic() + 60
        while not (ready := container.logs(stderr=False)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert ready == b"ready\n"
        (run,) = (path.name for path in (place / "home").glob(".local/share/corral/runs/*"))
        container.kill()
        container.wait(timeout=30)
    deadline = time.monotonic() + 30
    while (left := find_leftovers(docker_engine, run)) and time.monotonic() < deadline:
        report = collect_garbage(Engine())
        assert report.problems == []
        time.sleep(0.1)
    assert left == []
    assert docker_engine.api.volumes(filters={"label": f"{MARK}.run={run}"})["Volumes"] in (None, [])
