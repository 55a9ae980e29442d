"""The prepared workspace as a real engine mounts it: ownership, originals, masks, odd paths, and what is left."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from tests.contract.workspace_box import make_spec, open_box, require_engine

from corral.errors import SandboxError, WorkspaceError
from corral.sandbox.base import MaskedFile
from corral.sandbox.spec import Limits, WorkspaceMode
from corral.sandbox.workspace import find_stale_link_dirs, load_baseline, prepare_workspace

pytestmark = pytest.mark.docker

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="maps file owners: needs root")


@pytest.fixture(autouse=True)
def _engine() -> None:
    require_engine()


def snapshot(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything below a directory: mode, owner, change time, content."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path.relative_to(root))] = (status.st_mode, status.st_uid, status.st_ctime_ns, content)
    return found


@needs_root
@pytest.mark.parametrize("owner", [0, 1000])
def test_box_user_owns_what_the_workspace_owner_owns(tmp_path: Path, owner: int) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir(mode=0o750)
    (workspace / "open").write_text("a")
    (workspace / "private").write_text("b")
    (workspace / "private").chmod(0o600)
    (workspace / "other").write_text("c")
    for path in (workspace, workspace / "open", workspace / "private"):
        os.chown(path, owner, owner)
    os.chown(workspace / "other", 1234, 1234)
    before = snapshot(workspace)
    prepared = prepare_workspace(make_spec(workspace, tmp_path / "run"))
    with open_box(prepared) as box:
        assert prepared.verify(box.hello()) is None
        prepared.after_start()
        box.shell("echo more >> private; mkdir d; echo new > d/new; rm open; chmod 700 private")
        seen = box.shell("stat -c '%n %u %g %a' . other private d/new")
    prepared.discard()
    own = str(prepared.uid)
    expected = {".": (own, own, "750"), "other": ("1234", "1234", "644")}
    expected |= {"private": (own, own, "700"), "d/new": (own, own, "644")}
    assert {line.split()[0]: tuple(line.split()[1:]) for line in seen.splitlines()} == expected
    assert snapshot(workspace) == before
    upper = prepared.upper
    assert upper is not None
    assert sorted(str(path.relative_to(upper)) for path in upper.rglob("*")) == ["d", "d/new", "open", "private"]
    assert (upper / "private").read_text() == "bmore\n"
    assert stat.S_ISCHR((upper / "open").lstat().st_mode)


@needs_root
def test_box_user_is_nobody_of_this_host(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    first = prepare_workspace(make_spec(tmp_path / "w", tmp_path / "run1"))
    second = prepare_workspace(make_spec(tmp_path / "w", tmp_path / "run2"))
    assert first.uid != second.uid
    assert min(first.uid, second.uid) >= 0x70000000
    first.discard()
    second.discard()


@needs_root
def test_mount_and_links_go_after_start_and_box_goes_on(tmp_path: Path) -> None:
    (tmp_path / "w" / "sub").mkdir(parents=True)
    (tmp_path / "w" / "sub" / "a").write_text("text")
    prepared = prepare_workspace(make_spec(tmp_path / "w", tmp_path / "run"))
    assert prepared.overlay is not None
    links = prepared.overlay.links.path
    with open_box(prepared) as box:
        assert f" {links}/l " in Path("/proc/self/mountinfo").read_text()
        prepared.after_start()
        assert not links.exists()
        assert f" {links}/l " not in Path("/proc/self/mountinfo").read_text()
        assert box.shell("cat sub/a; echo b > sub/b; mv sub sub2; ls -A . sub2") == "text.:\nsub2\n\nsub2:\na\nb\n"
    prepared.discard()
    assert [stale.path for stale in find_stale_link_dirs() if stale.path == links] == []


ODD = [
    b"a b",
    b"a,b",
    b"a:b",
    b"a\nb",
    b"a\\b",
    b"lowerdir=x,upperdir=y",
    "é".encode(),
    b"\xff\xfe",
    b"-rf",
    b"x" * 200,
]


@pytest.mark.parametrize("name", ODD)
def test_any_path_can_be_the_workspace(tmp_path: Path, name: bytes) -> None:
    workspace = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    workspace.mkdir()
    (workspace / os.fsdecode(name)).write_text("inside")
    prepared = prepare_workspace(make_spec(workspace, tmp_path / "run"))
    assert prepared.mode is WorkspaceMode.OVERLAY
    with open_box(prepared) as box:
        assert prepared.verify(box.hello()) is None
        prepared.after_start()
        assert box.shell("cat ./*") == "inside"
    prepared.discard()
    assert load_baseline(prepared.baseline).workspace == os.fsencode(workspace)


def test_secret_files_are_placeholders(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    (workspace / ".git").mkdir(parents=True)
    (workspace / "deep" / "er").mkdir(parents=True)
    (workspace / ".env").write_text("KEY=hunter2\n")
    (workspace / ".env.example").write_text("KEY=\n")
    (workspace / "deep" / "er" / ".npmrc").write_text("//r/:_authToken=hunter2\n")
    (workspace / "deep" / "er" / ".npmrc").chmod(0o600)
    (workspace / ".git" / "config").write_text('[remote "o"]\n\turl = https://me:hunter2@host/x\n')
    before = snapshot(workspace)
    prepared = prepare_workspace(make_spec(workspace, tmp_path / "run"))
    with open_box(prepared) as box:
        assert prepared.verify(box.hello()) is None
        prepared.after_start()
        assert box.attempt("grep", "-r", "hunter2", "/workspace") == (1, b"")
        assert box.shell("cat .git/config .env.example") == '[remote "o"]\n\turl = https://host/x\nKEY=\n'
        assert box.shell("stat -c %a,%u deep/er/.npmrc deep/er") == f"600,{prepared.uid}\n755,{prepared.uid}\n"
        assert box.shell("cat .env") == "# masked by corral: the box does not see this secret file\n"
    prepared.discard()
    assert prepared.masked == (
        MaskedFile(b".env", ".env"),
        MaskedFile(b".git/config", "credentials in .git/config"),
        MaskedFile(b"deep/er/.npmrc", ".npmrc"),
    )
    assert snapshot(workspace) == before


def test_masked_directory_is_empty(tmp_path: Path) -> None:
    (tmp_path / "w" / "secret" / "deep").mkdir(parents=True)
    (tmp_path / "w" / "secret" / "deep" / "key").write_text("hunter2")
    prepared = prepare_workspace(make_spec(tmp_path / "w", tmp_path / "run", mask=("secret/",)))
    with open_box(prepared) as box:
        assert prepared.verify(box.hello()) is None
        assert box.shell("find secret") == "secret\n"
    prepared.discard()
    assert prepared.masked == (MaskedFile(b"secret", "secret/"),)


def test_read_only_root_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a").write_text("a")
    (tmp_path / "w").chmod(0o555)
    prepared = prepare_workspace(make_spec(tmp_path / "w", tmp_path / "run"))
    with open_box(prepared) as box:
        assert prepared.verify(box.hello()) is None
        prepared.after_start()
        assert box.attempt("touch", "b")[0] == 1
        assert box.shell("stat -c %a .; ls -A") == "555\na\n"
    prepared.discard()


def test_another_workspace_is_noticed(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    mine = prepare_workspace(make_spec(tmp_path / "mine", tmp_path / "run1"))
    other = prepare_workspace(make_spec(tmp_path / "other", tmp_path / "run2"))
    with open_box(other) as box:
        hello = box.hello()
    assert other.verify(hello) is None
    assert mine.verify(hello) == "the engine does not see the run's directory"
    mine.discard()
    other.discard()


def test_box_cannot_forge_overlay_marks(tmp_path: Path) -> None:
    (tmp_path / "w" / "d").mkdir(parents=True)
    (tmp_path / "w" / "d" / "a").write_text("a")
    prepared = prepare_workspace(make_spec(tmp_path / "w", tmp_path / "run"))
    forge = "import os; os.setxattr('d', 'user.overlay.opaque', b'y')"
    with open_box(prepared) as box:
        prepared.after_start()
        box.attempt("python3", "-c", forge)
        assert box.shell("ls d") == "a\n"
    prepared.discard()
    upper = prepared.upper
    assert upper is not None
    assert not (upper / "d").exists() or "user.overlay.opaque" not in os.listxattr(upper / "d")


def test_second_box_over_same_changes_goes_on(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".env").write_text("hunter2")
    spec = make_spec(tmp_path / "w", tmp_path / "run")
    first = prepare_workspace(spec)
    with pytest.raises(SandboxError, match="in use by another box"):
        prepare_workspace(spec)
    with open_box(first) as box:
        first.after_start()
        box.shell("echo kept > kept; rm .env; mkdir .env; chmod 700 .")
    first.discard()
    second = prepare_workspace(spec)
    assert (second.uid, second.mode) == (first.uid, WorkspaceMode.OVERLAY)
    with open_box(second) as box:
        assert second.verify(box.hello()) is None
        second.after_start()
        assert box.shell("cat kept; stat -c %a .; ls -A; ls -A .env") == "kept\n700\n.env\nkept\n"
    second.discard()


async def test_copy_volume_takes_what_was_packed(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a").write_text("text")
    prepared = prepare_workspace(make_spec(tmp_path / "w", tmp_path / "run", mode=WorkspaceMode.COPY))
    data = b"".join([batch async for batch in prepared.tar_stream()])
    with open_box(prepared) as box:
        assert prepared.verify(box.hello()) is None
        limits = box.shell("df --output=size,itotal -B1 . | tail -1; stat -c %u .").split()
        made = box.client.exec_create(
            box.id, ["tar", "xf", "-"], stdin=True, user=f"{prepared.uid}:{prepared.gid}", workdir="/workspace"
        )
        stream = box.client.exec_start(made["Id"], socket=True)
        stream._sock.sendall(data)
        stream._sock.shutdown(1)
        stream._sock.recv(1000)
        stream._response.close()
        stream.close()
        assert box.shell("cat a; stat -c %u a") == f"text{prepared.uid}\n"
    prepared.discard()
    assert int(limits[0]) <= 2 << 30
    assert limits[1:] == ["200000", str(prepared.uid)]


@needs_root
def test_mounts_inside_the_workspace_are_named_and_copied(tmp_path: Path) -> None:
    inside = tmp_path / "w" / "data\n"
    inside.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(inside)], check=True)
    try:
        (inside / "a").write_text("a")
        prepared = prepare_workspace(make_spec(tmp_path / "w", tmp_path / "run"))
        told = f"other file systems are mounted inside the workspace: {str(inside)!r}"
        assert (prepared.mode, prepared.mode_reason) == (WorkspaceMode.COPY, told)
        prepared.discard()
        with pytest.raises(WorkspaceError) as caught:
            prepare_workspace(make_spec(tmp_path / "w", tmp_path / "run", mode=WorkspaceMode.OVERLAY))
        assert caught.value.message == f"overlay mode is not possible: {told}"
    finally:
        subprocess.run(["umount", str(inside)], check=True)


@needs_root
def test_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".env").write_text("x")
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=8", "tmpfs", str(data)], check=True)
    try:
        (data / "filler").write_bytes(bytes(32 << 10))
        before = set(os.listdir("/tmp"))
        with pytest.raises(SandboxError) as caught:
            prepare_workspace(make_spec(tmp_path / "w", data / "run", limits=Limits(min_free_bytes=0)))
        assert "disk is full" in caught.value.message
        assert caught.value.hint == "free some space, or set XDG_DATA_HOME"
        assert {name for name in set(os.listdir("/tmp")) - before if name.startswith("corral-")} == set()
    finally:
        subprocess.run(["umount", str(data)], check=True)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@needs_root
def test_changes_can_lie_on_another_file_system(tmp_path: Path) -> None:
    (tmp_path / "w" / "d").mkdir(parents=True)
    (tmp_path / "w" / "d" / "a").write_text("a")
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(data)], check=True)
    try:
        prepared = prepare_workspace(make_spec(tmp_path / "w", data / "run"))
        assert prepared.mode is WorkspaceMode.OVERLAY
        with open_box(prepared) as box:
            assert prepared.verify(box.hello()) is None
            prepared.after_start()
            assert box.shell("rm -r d; mkdir d; ls -A d; echo b > d/b; cat d/b") == "b\n"
        prepared.discard()
    finally:
        subprocess.run(["umount", str(data)], check=True)
