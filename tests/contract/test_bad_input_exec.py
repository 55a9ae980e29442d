"""Mistakes and mishaps around `corral exec` and `apply`, through the real command: a line, a hint, the exit code, and
nothing half done."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from tests.support.command import SOCKET, Ran, corral, find_user, list_outcomes

from corral.sandbox.labels import RUN

ENGINE_HINT = "  hint: start it, or set DOCKER_HOST; see: corral doctor"
NAME_HINT = "  hint: name an existing directory"
FORCE_HINT = "  hint: name a project directory, or force it with --force"
ODD_NAMES = ["with space", "com,ma", "co:lon", "back\\slash", "new\nline", "quo'te\"", "-dash", "%s", "é", "bad\udcff"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "file").write_text("one\ntwo\nthree\n")
    return folder


def run_in(
    workspace: Path | str, *command: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> Ran:
    return corral("exec", *options, "-C", os.fsencode(workspace), "--", *(command or ("true",)), env=env)


def assert_nothing_is_left(home: Path, client: docker.DockerClient) -> None:
    """Every run has ended, and the engine knows none of them."""
    runs = [path.name for path in (home / "xdg_data_home" / "corral" / "runs").glob("*")]
    assert not {"running", "killed"} & set(list_outcomes())
    for run in runs:
        label = {"label": f"{RUN}={run}"}
        assert client.api.containers(all=True, filters=label) == []
        assert not client.api.volumes(filters=label)["Volumes"]


# --- the engine and the image ---------------------------------------------------------------------------------------


@pytest.mark.docker
@pytest.mark.parametrize(
    ("image", "message", "hint"),
    [
        ("no-such-image:zz", "the engine has no image 'no-such-image:zz'", "pull or build it, or leave --image out"),
        ("corral-sandbox:zz", "the engine has no image 'corral-sandbox:zz'", "build it with: corral image build"),
        ("a b$%^", "'a b$%^' is not the name of an image", "a name is: repository:tag"),
    ],
)
def test_image_that_is_none(
    workspace: Path, home: Path, docker_engine: docker.DockerClient, image: str, message: str, hint: str
) -> None:
    ran = run_in(workspace, options=("--image", image))
    assert (ran.code, ran.err[:2]) == (125, [f"corral: {message}", f"  hint: {hint}"])
    assert list_outcomes() == [message]
    assert_nothing_is_left(home, docker_engine)


@pytest.mark.parametrize("address", ["unix:///no/such/socket", "tcp://127.0.0.1:1"])
def test_no_engine(workspace: Path, address: str) -> None:
    ran = run_in(workspace, env={"DOCKER_HOST": address})
    assert (ran.code, ran.err[:2]) == (125, [f"corral: no container engine answers at {address!r}", ENGINE_HINT])
    assert list_outcomes() == [f"no container engine answers at {address!r}"]


def test_a_socket_that_nobody_listens_on(workspace: Path) -> None:
    folder = Path(tempfile.mkdtemp())  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder / "dead"))
            address = f"unix://{folder}/dead"
            ran = run_in(workspace, env={"DOCKER_HOST": address})
    finally:
        shutil.rmtree(folder)
    assert (ran.code, ran.err[:2]) == (125, [f"corral: no container engine answers at {address!r}", ENGINE_HINT])


@pytest.mark.parametrize("address", ["nonsense://", "tcp://"])
def test_an_address_that_is_none(workspace: Path, address: str) -> None:
    ran = run_in(workspace, env={"DOCKER_HOST": address})
    assert ran.code == 125
    assert ran.err[0].startswith(f"corral: the container engine at {address!r} cannot be used: ")
    assert ran.err[1] == "  hint: see: corral doctor"


@pytest.mark.docker
@pytest.mark.skipif(not SOCKET.exists(), reason=f"no engine at {SOCKET}: nobody can be refused there")
def test_no_permission_on_the_socket() -> None:
    home = Path(tempfile.mkdtemp(prefix="corral-nobody-"))
    try:
        os.chown(home, 54322, 54322)
        user = find_user(54322, (), home)
        (home / "w").mkdir()
        ran = corral("exec", "-C", str(home / "w"), "--", "true", user=user, env={"DOCKER_HOST": f"unix://{SOCKET}"})
        outcomes = list_outcomes(user=user)
    finally:
        shutil.rmtree(home)
    message = f"no permission to talk to the container engine at 'unix://{SOCKET}'"
    assert (ran.code, ran.err[0], outcomes) == (125, f"corral: {message}", [message])
    assert ran.err[1].startswith("  hint: add yourself to the docker group")


# --- the workspace --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("{tmp}/missing", "workspace '{tmp}/missing' does not exist", NAME_HINT),
        ("{tmp}/file", "workspace '{tmp}/file' is not a directory", "  hint: name the directory that holds the file"),
        ("{tmp}/file/x", "workspace '{tmp}/file/x' cannot be used: Not a directory", NAME_HINT),
        ("{tmp}/loop", "workspace '{tmp}/loop' cannot be used: Too many levels of symbolic links", NAME_HINT),
        ("/", "workspace '/' is the whole file system", FORCE_HINT),
        ("{home}", "workspace '{home}' is your home directory", FORCE_HINT),
        (
            "{tmp}",
            "workspace '{tmp}' contains corral's own data directory '{tmp}/data/corral/runs'",
            "  hint: set XDG_DATA_HOME to a directory outside the workspace",
        ),
    ],
)
def test_workspaces_that_are_refused(tmp_path: Path, home: Path, name: str, message: str, hint: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    ran = run_in(name.format(tmp=tmp_path, home=home), env={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert ran == Ran(2, b"", [f"corral: {message.format(tmp=tmp_path, home=home)}", hint])
    assert not (tmp_path / "data").exists()


@pytest.mark.docker
def test_home_can_be_forced(tmp_path: Path, home: Path, sandbox_image: str) -> None:
    (home / "file").touch()
    options = ("--force", "--image", sandbox_image)
    ran = run_in(home, "ls", options=options, env={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert (ran.code, ran.out) == (0, b"file\n")


@pytest.mark.docker
@pytest.mark.parametrize("name", ODD_NAMES)
def test_paths_with_anything_in_them(tmp_path: Path, sandbox_image: str, name: str) -> None:
    workspace = tmp_path / name
    workspace.mkdir()
    (workspace / "file").write_text("one\n")
    data = {"XDG_DATA_HOME": str(tmp_path / f"data {name}")}
    ran = run_in(
        workspace, "sh", "-c", "cat file; echo two >> file", options=("--json", "--image", sandbox_image), env=data
    )
    answer = ran.json()
    assert (ran.code, answer["stdout"]) == (0, {"head": "one\n", "tail": "", "total_bytes": 4})
    assert answer["box"]["mode"] == "overlay"  # type: ignore[index]
    assert corral("apply", str(answer["run"]), env=data).code == 0
    assert (workspace / "file").read_text() == "one\ntwo\n"


@pytest.mark.docker
@pytest.mark.parametrize("mode", ["overlay", "copy"])
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a device: needs root")
def test_what_is_no_plain_file_is_left_alone(
    workspace: Path, sandbox_image: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(workspace / "fifo")
    os.mknod(workspace / "device", 0o020666, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(workspace)  # a socket's path is short
        bound.bind("socket")
    (workspace / "closed").write_text("text")
    (workspace / "closed").chmod(0)
    (workspace / "folder").mkdir()
    (workspace / "folder" / "file").write_text("text")
    (workspace / "folder").chmod(0)
    before = sorted((path.name, path.lstat().st_mode, path.lstat().st_mtime_ns) for path in workspace.iterdir())
    ran = run_in(workspace, "sh", "-c", "echo four >> file", options=("--mode", mode, "--image", sandbox_image))
    assert ran.code == 0
    assert "    M file  +1 -0" in ran.err
    warnings = [line for line in ran.err if line.startswith("corral warning: not copied")]
    told = [f"corral warning: not copied into the box: '{name}': a {name}" for name in ("device", "fifo", "socket")]
    assert [line.replace("a FIFO", "a fifo") for line in warnings] == (told if mode == "copy" else [])
    assert before == sorted((path.name, path.lstat().st_mode, path.lstat().st_mtime_ns) for path in workspace.iterdir())


# --- the disk -------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[dict[str, str]]:
    """A data directory with so much room."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=True)
    try:
        yield {"XDG_DATA_HOME": str(place)}
    finally:
        subprocess.run(["umount", str(place)], check=True)


needs_mount = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk: needs root")


@needs_mount
@pytest.mark.docker
@pytest.mark.parametrize("size", ["4k", "32k", "64k", "72k", "80k", "88k", "96k"])
def test_a_disk_that_is_full_at_the_start(
    workspace: Path, tmp_path: Path, home: Path, sandbox_image: str, docker_engine: docker.DockerClient, size: str
) -> None:
    with small_disk(tmp_path / "disk", size) as env:
        ran = run_in(workspace, "sh", "-c", "echo four >> file", options=("--image", sandbox_image), env=env)
        outcomes = list_outcomes(env=env)
    assert ran.code == 125
    assert any(words in ran.err[0] for words in ("disk is full", "disk is nearly full", "No space left on device"))
    assert ran.err[1].startswith("  hint: ")
    assert len(outcomes) <= 1 and not {"running", "killed"} & set(outcomes)
    assert "  nothing changed" not in ran.err
    assert_nothing_is_left(home, docker_engine)


@needs_mount
@pytest.mark.docker
def test_a_disk_that_the_command_fills(workspace: Path, tmp_path: Path, home: Path, sandbox_image: str) -> None:
    settings = home / "xdg_config_home" / "corral" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[limits]\nmin_free = "1MiB"\n')
    with small_disk(tmp_path / "disk", "3m") as env:
        command = "head -c 1500000 /dev/urandom > big; echo four >> file; echo end"
        ran = run_in(workspace, "sh", "-c", command, options=("--image", sandbox_image), env=env)
        (run_dir,) = (tmp_path / "disk" / "corral" / "runs").iterdir()
        outcomes = list_outcomes(env=env)
    assert (ran.code, ran.out) == (125, b"end\n")
    error = ran.err.index("corral: the patch cannot be made: No space left on device")
    assert ran.err[error + 1] == f"  hint: what the box changed is kept in {str(run_dir)!r}"
    assert outcomes == ["the patch cannot be made: No space left on device"]


# --- the command, settings and patches ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [(), ("",), ("", "x")])
def test_no_command(workspace: Path, command: tuple[str, ...]) -> None:
    ran = corral("exec", "-C", str(workspace), "--", *command)
    assert ran == Ran(2, b"", ["corral: no command given", "  hint: corral exec [options] -- CMD ..."])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode = ", ":1: not TOML: Invalid value"),
        ('image = "x"\nnosuch = 1\n', ":2: nosuch: there is no such setting"),
        ('[limits]\npids = "many"\n', ":2: limits.pids: 'many': "),
        ('\nmode = "weird"\n', ":2: mode: 'weird': input should be 'auto', 'overlay' or 'copy'"),
    ],
)
def test_settings_that_are_broken(workspace: Path, home: Path, text: str, message: str) -> None:
    file = home / "xdg_config_home" / "corral" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    ran = run_in(workspace)
    assert (ran.code, len(ran.err)) == (2, 2)
    assert ran.err[0].startswith(f"corral: {file}{message}")
    assert ran.err[1].startswith("  hint: ")


@pytest.mark.docker
def test_a_patch_that_no_longer_applies(workspace: Path, tmp_path: Path, sandbox_image: str) -> None:
    patch = tmp_path / "kept.diff"
    command = "sed -i s/two/TWO/ file; echo new > new"
    assert run_in(workspace, "sh", "-c", command, options=("--patch", str(patch), "--image", sandbox_image)).code == 0
    (workspace / "file").write_text("edited\n")
    for source, more in ((("last",), "try again with a three-way merge"), (("-C", str(workspace), str(patch)), "")):
        ran = corral("apply", *source)
        assert (ran.code, ran.err[0]) == (2, "corral: the patch does not fit the workspace: 'file' was edited since")
        assert ran.err[1].startswith("  hint: nothing was applied; " + more)
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"file": "edited\n"}


def test_sources_of_a_patch_that_are_none(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no patch\n")
    (tmp_path / "cut").write_text("--- a/file\n+++ b/file\n@@ -1 +1 @@\n-one")
    told = {
        "nosuch": "there is no run 'nosuch'",
        f"{tmp_path}/none": f"there is no patch file '{tmp_path}/none'",
        f"{tmp_path}/text": "this is not a patch: it names no file",
        f"{tmp_path}/cut": "the patch does not end with a newline: it was cut or stripped on the way",
    }
    for source, message in told.items():
        ran = corral("apply", source, "-C", str(workspace))
        assert (ran.code, ran.err[0], len(ran.err)) == (2, f"corral: {message}", 2)
    ran = corral("apply", f"{tmp_path}/text", "-C", f"{tmp_path}/missing")
    assert (ran.code, ran.err[0]) == (2, f"corral: the workspace '{tmp_path}/missing' is not a directory")
