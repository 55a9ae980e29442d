"""Where the engine maps user ids, root of a box is nobody on the host, and everything works as elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from tests.support.command import Ran, User, corral, find_user
from tests.support.mapped_engine import FIRST, SIZE, MappedEngine, open_mapped_engine

pytestmark = [pytest.mark.docker, pytest.mark.slow]

PERSON = 54327
_WORK = "cut -c-33 /proc/self/uid_map; id -u; echo more >> old; mkdir new; echo x > new/x; rm gone; chmod 700 run"
_MAP = f"{0:>10} {FIRST:>10} {SIZE:>10}"
CHANGES = {"gone": "deleted", "new/x": "added", "old": "modified", "run": "mode"}


@pytest.fixture(scope="module")
def engine(docker_engine: docker.DockerClient, sandbox_image: str) -> Iterator[MappedEngine]:
    with open_mapped_engine(docker_engine, sandbox_image) as own:
        yield own


@pytest.fixture
def workspace() -> Iterator[Path]:
    """One of a user's, whom neither the box nor the engine's ids are."""
    place = Path(tempfile.mkdtemp(prefix="mapped-work-"))
    try:
        for name in ("old", "gone", "run"):
            (place / name).write_text(f"{name}\n")
        for path in (place, *place.iterdir()):
            os.chown(path, PERSON, PERSON)
        yield place
    finally:
        shutil.rmtree(place)


def work(user: User, workspace: Path, image: str) -> dict[str, Any]:
    """A command in a box that looks at its ids and changes files; its report."""
    ran = corral("exec", "--json", "--image", image, "-C", str(workspace), "--", "sh", "-ec", _WORK, user=user)
    answer = ran.json()
    assert (ran.code, answer["error"]) == (0, None), answer["error"]
    return answer


def split_output(answer: dict[str, Any]) -> tuple[str, int]:
    """The box's map and its user's id."""
    user_map, number = str(answer["stdout"]["head"]).splitlines()
    return user_map, int(number)


def list_changes(answer: dict[str, Any]) -> dict[str, str]:
    return {change["path"]: change["action"] for change in answer["changes"]["files"]}


def list_owners(folder: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in (folder, *folder.rglob("*"))}


def apply(user: User, answer: dict[str, Any]) -> Ran:
    return corral("apply", "--yes", str(answer["run"]), user=user)


def test_an_overlay_has_mapped_owners_and_its_patch_the_workspaces(
    engine: MappedEngine, workspace: Path, sandbox_image: str
) -> None:
    root = engine.find_neighbour()
    answer = work(root, workspace, sandbox_image)
    user_map, number = split_output(answer)
    assert (answer["box"]["mode"], user_map) == ("overlay", _MAP)
    assert SIZE // 2 <= number < SIZE - 2
    upper = Path(os.environ["XDG_DATA_HOME"]) / "corral/runs" / str(answer["run"]) / "box/upper"
    whiteout = {(0, 0)}  # the kernel's own
    assert list_owners(upper) == {(FIRST + number, FIRST + number)} | whiteout
    assert list_changes(answer) == CHANGES
    assert apply(root, answer).code == 0
    assert (workspace / "old").read_text() == "old\nmore\n"
    assert list_owners(workspace) == {(PERSON, PERSON)}


def test_where_the_engine_does_not_see_the_overlay_a_copy_has_mapped_owners(
    engine: MappedEngine, workspace: Path, sandbox_image: str
) -> None:
    root = User(env={"DOCKER_HOST": engine.url})  # in another mount namespace than the engine
    answer = work(root, workspace, sandbox_image)
    user_map, number = split_output(answer)
    assert (answer["box"]["mode"], user_map) == ("copy", _MAP)
    assert SIZE // 2 <= number < SIZE - 2
    assert str(answer["box"]["mode_reason"]).startswith(
        ("the engine sees another workspace", "the engine cannot mount it")
    )
    assert list_changes(answer) == CHANGES


def test_an_ordinary_user_works_on_a_copy_and_is_told_why(
    engine: MappedEngine, workspace: Path, sandbox_image: str
) -> None:
    socket = Path(engine.url.removeprefix("unix://"))
    home = Path(tempfile.mkdtemp(prefix="mapped-user-"))
    try:
        os.chown(home, PERSON, PERSON)
        os.chown(socket, 0, PERSON)
        found = find_user(PERSON, (), home)
        person = User(found.uid, found.groups, found.python, found.env | {"DOCKER_HOST": engine.url})
        answer = work(person, workspace, sandbox_image)
        assert split_output(answer) == (_MAP, PERSON)
        assert (answer["box"]["mode"], answer["box"]["mode_reason"]) == (
            "copy",
            "the engine maps user ids (userns-remap), and only root can give a box files of such an id",
        )
        assert list_changes(answer) == CHANGES
        assert apply(person, answer).code == 0
    finally:
        shutil.rmtree(home)


def test_doctor_sees_the_mapping_from_outside_and_inside(engine: MappedEngine) -> None:
    root = engine.find_neighbour()
    ran = corral("doctor", "--json", user=root)
    users = {check["name"]: check for check in ran.json()["checks"]}["users"]
    words = f"root of a box is user {FIRST} of this host (userns-remap)"
    assert (users["status"], users["detail"]) == ("ok", f"{words}: boxes use it")
    ran = corral("doctor", "--sandbox", "--json", user=root)
    checks = {check["name"]: check for check in ran.json()["checks"]}
    assert {name: check for name, check in checks.items() if check["status"] != "ok"} == {}
    assert checks["mapped users"]["detail"] == words.replace("a box", "the box").replace("this host", "the host")
