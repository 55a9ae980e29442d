"""A user in the engine's group, by the real command: what the box is, what is applied and what is left is theirs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
from tests.support.command import SOCKET, Ran, User, corral, find_user, list_outcomes
from tests.support.foreign_image import busybox_image

USER = 54324
DEMO = Path(__file__).parents[2] / "examples/demo"

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: needs root"),
    pytest.mark.skipif(not SOCKET.exists(), reason=f"no engine at {SOCKET}: its group cannot be taken on"),
]


@dataclass(frozen=True)
class Person:
    user: User
    home: Path
    image: str

    @property
    def runs(self) -> Path:
        return self.home / ".data/corral/runs"

    def corral(self, *arguments: str) -> Ran:
        return corral(*arguments, user=self.user, env={"DOCKER_HOST": f"unix://{SOCKET}"})

    def exec(self, workspace: Path, command: str, *options: str) -> dict[str, object]:
        ran = self.corral(
            "exec", "--json", "--image", self.image, *options, "-C", str(workspace), "--", "sh", "-c", command
        )
        answer = ran.json()
        assert (ran.code, answer["error"]) == (answer["exit_code"], None), ran.err
        return answer

    def sh(self, command: str) -> subprocess.CompletedProcess[str]:
        """A command of the user's own, outside any box."""
        return subprocess.run(
            ["sh", "-c", command], cwd=self.home, capture_output=True, text=True, user=USER, group=USER, extra_groups=[]
        )


@pytest.fixture
def person(sandbox_image: str) -> Iterator[Person]:
    home = Path(tempfile.mkdtemp(prefix="corral-user-"))
    try:
        os.chown(home, USER, USER)
        yield Person(find_user(USER, (SOCKET.stat().st_gid,), home), home, sandbox_image)
    finally:
        shutil.rmtree(home)


@pytest.fixture
def own(person: Person) -> Path:
    """A workspace that is the user's, hard links and closed files included."""
    script = (
        "mkdir -p w/d/e; cd w; echo one > a; ln a hard; echo two > b; chmod 600 b; echo f > d/e/f; echo run > d/run"
    )
    assert person.sh(f"umask 022; {script}; chmod 755 d/run").returncode == 0
    return person.home / "w"


@pytest.fixture
def foreign(person: Person) -> Path:
    """A workspace of root's, with a few places open to everybody."""
    workspace = person.home / "foreign"
    (workspace / "open").mkdir(parents=True)
    (workspace / "closed").mkdir()
    files = {"readable": 0o644, "secret": 0o600, "writable": 0o666, "closed/writable": 0o666}
    for name, mode in files.items():
        (workspace / name).write_text(f"{name}\n")
        (workspace / name).chmod(mode)
    (workspace / "open").chmod(0o777)
    return workspace


def owners(tree: Path) -> set[int]:
    return {path.lstat().st_uid for path in (tree, *tree.rglob("*"))}


def changes(answer: dict[str, object]) -> dict[str, str]:
    found = answer["changes"] or {"files": []}
    return {one["path"]: one["action"] for one in found["files"]}  # type: ignore[index]


def left_out(answer: dict[str, object]) -> dict[str, str]:
    found = answer["changes"] or {"not_exported": []}
    return {one["path"]: one["reason"] for one in found["not_exported"]}  # type: ignore[index]


def test_what_is_applied_is_the_users(person: Person, own: Path) -> None:
    command = "id -u; umask 077; echo more >> hard; rm b; mkdir n; echo new > n/new; mv d/e e; chmod 644 d/run"
    answer = person.exec(own, command)
    assert answer["stdout"]["head"] == f"{USER}\n"  # type: ignore[index]
    assert changes(answer) == {
        "b": "deleted",
        "d/run": "mode",
        "e/f": "renamed",
        "hard": "modified",
        "n/new": "added",
    }
    assert person.corral("apply", str(answer["run"])).code == 0
    modes = {str(path.relative_to(own)): path.stat().st_mode & 0o777 for path in own.rglob("*")}
    files, folders = ("a", "hard", "d/run", "e/f", "n/new"), ("d", "e", "n")
    assert modes == dict.fromkeys(files, 0o644) | dict.fromkeys(folders, 0o755)
    assert owners(own) == {USER}
    assert ((own / "a").read_text(), (own / "hard").read_text()) == ("one\n", "one\nmore\n")


def test_nothing_is_left_that_the_user_cannot_remove(
    person: Person, own: Path, docker_engine: docker.DockerClient
) -> None:
    person.exec(own, "echo more >> hard; echo more >> a; rm -r d; mkdir d; echo x > d/x; chmod 0 b")
    person.exec(own, "echo more >> a", "--mode", "copy")
    assert sorted(path.name for path in person.runs.glob("*/box/*")) == ["ready", "uid", "uid", "upper", "upper"]
    assert person.corral("gc").out.startswith(b"nothing was left behind")
    label = {"label": "corral.role=removal"}
    assert docker_engine.api.containers(all=True, filters=label) == []
    removed = person.sh("rm -rf .data")
    assert (removed.returncode, removed.stderr) == (0, "")


def test_what_a_box_closed_to_its_user_is_told(person: Person, own: Path) -> None:
    answer = person.exec(own, "echo more >> a; chmod 0 b d; echo new > new; chmod 0 .")
    assert changes(answer) == {"a": "modified", "new": "added"}
    assert left_out(answer) == {"b": "unreadable", "d/": "unreadable"}
    run = str(answer["run"])
    assert person.corral("runs", "rm", run).out == f"removed {run}\n".encode()
    assert list(person.runs.iterdir()) == []


def test_a_model_works_for_the_user(person: Person) -> None:
    shutil.copytree(DEMO / "repo", person.home / "repo")
    for path in (person.home / "repo", *(person.home / "repo").rglob("*")):
        os.chown(path, USER, USER)
    script = person.home / "script.json"
    shutil.copy(DEMO / "script.json", script)
    settings = person.home / ".config/corral/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'image = "{person.image}"\n')
    ran = person.corral("run", "-C", str(person.home / "repo"), "--model", f"scripted:{script}", "fix it")
    result = json.loads(ran.out.splitlines()[-1])
    assert (ran.code, result["exit_code"]) == (0, 0), ran.err
    assert person.corral("apply", "--yes", "last").code == 0
    changed = person.home / "repo/durations.py"
    assert changed.read_text() != (DEMO / "repo/durations.py").read_text()
    assert changed.stat().st_uid == USER


def test_a_workspace_of_somebody_else(person: Person, foreign: Path) -> None:
    before = {path: (path.lstat().st_mode, path.lstat().st_mtime_ns) for path in foreign.rglob("*")}
    script = (
        "for name in readable secret writable closed/writable open/new new; do echo more >> $name; done; cat secret"
    )
    answer = person.exec(foreign, script)
    refused = answer["stderr"]["head"]  # type: ignore[index]
    assert "readable: Permission denied" in refused and "cat: secret: Permission denied" in refused
    assert changes(answer) == {
        "closed/writable": "modified",
        "new": "added",
        "open/new": "added",
        "writable": "modified",
    }
    ran = person.corral("apply", str(answer["run"]))
    assert ran.told == (2, ["corral: the patch could not be applied: Permission denied", "  hint: nothing was applied"])
    assert before == {path: (path.lstat().st_mode, path.lstat().st_mtime_ns) for path in foreign.rglob("*")}
    run = str(answer["run"])
    assert person.corral("runs", "rm", run).out == f"removed {run}\n".encode()
    assert list_outcomes(user=person.user) == []


def test_root_gives_what_it_applies_to_the_owner_of_the_workspace(person: Person, own: Path) -> None:
    command = ("sh", "-c", "echo more >> a; mkdir n; echo new > n/new")
    ran = corral("exec", "--json", "--image", person.image, "-C", str(own), "--", *command)
    assert corral("apply", str(ran.json()["run"])).code == 0
    assert (own / "n/new").read_text() == "new\n"
    assert owners(own) == {USER}


def test_an_image_of_others_runs_on_its_own_tree(person: Person, docker_engine: docker.DockerClient) -> None:
    image = busybox_image()
    image.files |= {"testbed/a": (b"one\n", 0o644), "etc/passwd": (b"root:x:0:0::/:/bin/sh\n", 0o644)}
    name = image.load(docker_engine)
    try:
        command = ("exec", "--image", name, "-C", "image:/testbed", "--", "sh", "-c")
        first = person.corral(*command, "id -u; whoami; cat a; echo two > a; echo new > b; echo x > ~/x")
        second = person.corral(*command, "cat a; ls")
    finally:
        docker_engine.api.remove_image(name)
    assert (first.code, first.out) == (0, f"{USER}\nbox\none\n".encode()), first.err
    assert (second.code, second.out) == (0, b"one\na\n"), second.err
    assert person.sh("rm -r .data").returncode == 0


def test_a_set_up_layer_is_the_users(person: Person, own: Path) -> None:
    options = ("exec", "--image", person.image, "-C", str(own))
    script = "mkdir -p deps; echo lib > deps/lib; ln deps/lib deps/hard; rm -r d; mkdir d; echo x > d/x"
    kept = person.corral(*options, "--keep", "deps", "--", "sh", "-c", script)
    assert (kept.code, "kept as layer deps" in kept.err) == (0, True), kept.err
    used = person.corral(*options, "--from", "deps", "--", "sh", "-c", "cat deps/hard; ls d; echo more >> deps/lib")
    assert (used.code, used.out) == (0, b"lib\nx\n"), used.err
    assert person.sh("find .data/corral/layers ! -user $(id -u) | grep . && exit 1; rm -r .data").returncode == 0
