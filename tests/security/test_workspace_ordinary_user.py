"""A user who is not root, in the engine's group: the box has that user's own ids, and the run can be removed again.

The test's process forks and becomes a user that does not exist; nothing is made on the host for it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contract.workspace_box import make_spec, open_box, require_engine

from corral.errors import RemovalBlocked
from corral.sandbox.workspace import find_stale_link_dirs, prepare_workspace
from corral.store.removal import remove_tree

SOCKET = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
USER = 54321

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: needs root"),
    pytest.mark.skipif(not Path(SOCKET).exists(), reason=f"no engine at {SOCKET}: its group cannot be taken on"),
]


@pytest.fixture(scope="module")
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One round as root: the interpreter may lie where the other user cannot read, so all imports happen before."""
    require_engine()
    path = tmp_path_factory.mktemp("round")
    (path / "w").mkdir()
    prepared = prepare_workspace(make_spec(path / "w", path / "run"))
    with open_box(prepared) as box:
        box.shell("true")
        box.hello()
    prepared.discard()
    traceback.format_exception(ValueError("loads what tracebacks need"))


@pytest.fixture
def place(_imported: None) -> Iterator[Path]:
    """A directory of that user's."""
    path = Path(tempfile.mkdtemp(prefix="workspace-user-"))
    os.chown(path, USER, USER)
    yield path
    shutil.rmtree(path)


def as_user(body: Callable[[], object]) -> object:
    """What `body` returns when run by the ordinary user, through JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([os.stat(SOCKET).st_gid])
            os.setgid(USER)
            os.setuid(USER)
            result = {"value": body()}
            code = 0
        except BaseException:
            result = {"error": traceback.format_exc()}
        os.write(writer, json.dumps(result).encode())
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = json.loads(file.read())
    os.waitpid(pid, 0)
    assert "error" not in answer, answer["error"]
    return answer["value"]


def test_box_has_the_users_own_ids_and_leaves_nothing(place: Path) -> None:
    def body() -> object:
        workspace = place / "w"
        (workspace / "d").mkdir(parents=True)
        (workspace / "d" / "private").write_text("text")
        (workspace / "d" / "private").chmod(0o600)
        (workspace / ".env").write_text("hunter2")
        prepared = prepare_workspace(make_spec(workspace, place / "run"))
        with open_box(prepared) as box:
            proof = prepared.verify(box.hello())
            prepared.after_start()
            seen = box.shell("echo more >> d/private; mkdir n; chmod 0 n; cat .env; stat -c '%u %a' d/private")
        upper = prepared.upper
        assert upper is not None
        owner = (upper / "d" / "private").stat().st_uid
        prepared.discard()
        remove_tree(place / "run")
        left = [str(stale.path) for stale in find_stale_link_dirs()]
        return [prepared.uid, prepared.gid, proof, seen, owner, (workspace / "d" / "private").read_text(), left]

    masked = "# masked by corral: the box does not see this secret file\n"
    assert as_user(body) == [USER, USER, None, f"{masked}{USER} 600\n", USER, "text", []]
    assert sorted(os.listdir(place)) == ["w"]


def test_files_of_others_stay_closed(place: Path) -> None:
    (place / "w").mkdir()
    (place / "w" / "root-only").write_text("hunter2")
    (place / "w" / "root-only").chmod(0o600)
    (place / "w" / "readable").write_text("text")

    def body() -> object:
        prepared = prepare_workspace(make_spec(place / "w", place / "run"))
        with open_box(prepared) as box:
            proof = prepared.verify(box.hello())
            prepared.after_start()
            result = [box.attempt("cat", "root-only")[0], box.shell("cat readable; stat -c %u readable"), proof]
        prepared.discard()
        return result

    assert as_user(body) == [1, "text0\n", None]


def test_what_the_engine_left_as_root_is_named(place: Path) -> None:
    """Hard links copied up leave root-owned entries in the work directory."""

    def body() -> object:
        (place / "w").mkdir()
        (place / "w" / "a").write_text("text")
        os.link(place / "w" / "a", place / "w" / "b")
        prepared = prepare_workspace(make_spec(place / "w", place / "run"))
        with open_box(prepared) as box:
            prepared.after_start()
            box.shell("echo more >> a")
        prepared.discard()
        try:
            remove_tree(place / "run" / "box" / "work")
        except RemovalBlocked as error:
            return str(error.path)
        return "removed"

    outcome = as_user(body)
    index = place / "run" / "box" / "work" / "index"
    is_left = index.exists() and bool(os.listdir(index))
    assert outcome == (str(place / "run" / "box" / "work") if is_left else "removed")
    assert stat.S_ISDIR((place / "run" / "box" / "upper").stat().st_mode)
