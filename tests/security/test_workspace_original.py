"""The original is never written, whatever its files are and whatever an earlier box left in the changes."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest
from tests.contract.workspace_box import open_box, require_engine

from corral.sandbox.labels import OWNER_PID
from corral.sandbox.remap import Remap
from corral.sandbox.spec import SandboxSpec, WorkspaceMode
from corral.sandbox.workspace import cover_secrets, find_secrets, load_baseline, prepare_workspace
from corral.sandbox.workspace.kernel.idmap import FIRST_BOX_ID, IdMap, attach_idmapped_clone
from corral.sandbox.workspace.kernel.syscall import unmount
from corral_protocol.message import HelloReply

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts: needs root")


def make_spec(tmp_path: Path, **changes: object) -> SandboxSpec:
    (tmp_path / "run").mkdir(mode=0o700, exist_ok=True)
    (tmp_path / "w").mkdir(exist_ok=True)
    return SandboxSpec(workspace=tmp_path / "w", run_dir=tmp_path / "run", run_id="r", **changes)  # type: ignore[arg-type]


def find_own_link_dirs() -> list[Path]:
    """Those of this process: others work in the same place meanwhile."""
    owners = Path("/tmp").glob("corral-*/owner.json")
    return [path for path in owners if _read_owner(path) == str(os.getpid())]


def _read_owner(file: Path) -> str | None:
    try:
        owner: dict[str, str] = json.loads(file.read_text())
    except (OSError, ValueError):  # it is just coming or going
        return None
    return owner[OWNER_PID]


@needs_root
def test_blocks_write_through_clone(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a").write_text("a")
    (tmp_path / "clone").mkdir()
    directory = os.open(tmp_path / "w", os.O_RDONLY)
    ids = IdMap(0, FIRST_BOX_ID)
    attach_idmapped_clone(directory, tmp_path / "clone", ids, ids)
    os.close(directory)
    try:
        flags = os.statvfs(tmp_path / "clone").f_flag
        assert flags & os.ST_RDONLY and flags & os.ST_NOSUID and flags & os.ST_NODEV
        with pytest.raises(OSError, match="Read-only"):
            (tmp_path / "clone" / "a").write_text("b")
        assert (tmp_path / "clone" / "a").stat().st_uid == FIRST_BOX_ID
    finally:
        unmount(str(tmp_path / "clone"))
    assert (tmp_path / "w" / "a").read_text() == "a"


@pytest.mark.parametrize("trap", ["link", "file", "fifo"])
def test_blocks_masks_through_what_a_box_left(tmp_path: Path, trap: str) -> None:
    """An earlier box puts a link where a masked file's folder was: no placeholder lands outside."""
    spec = make_spec(tmp_path)
    (tmp_path / "w" / "conf").mkdir()
    (tmp_path / "w" / "conf" / ".env").write_text("hunter2")
    outside = tmp_path / "outside"
    outside.mkdir()
    prepare_workspace(spec).discard()
    place = tmp_path / "run" / "box" / "upper" / "conf"
    (place / ".env").unlink()
    place.rmdir()
    if trap == "link":
        place.symlink_to(outside)
    elif trap == "file":
        place.touch()
    else:
        os.mkfifo(place)
    prepare_workspace(spec).discard()
    assert os.listdir(outside) == []


@pytest.mark.parametrize("mode", [WorkspaceMode.OVERLAY, WorkspaceMode.COPY])
async def test_special_files_hang_nothing(tmp_path: Path, mode: WorkspaceMode) -> None:
    spec = make_spec(tmp_path, mode=mode)
    for name in (".env", "a.pem", "fifo"):
        os.mkfifo(tmp_path / "w" / name)
    (tmp_path / "w" / ".npmrc").symlink_to("/dev/zero")
    prepared = prepare_workspace(spec)
    if mode is WorkspaceMode.COPY:
        assert [batch async for batch in prepared.tar_stream()]
        assert prepared.warnings == tuple(
            f"not copied into the box: {name!r}: a FIFO" for name in (".env", "a.pem", "fifo")
        )
    prepared.discard()
    assert prepared.masked == ()


def test_a_mask_is_older_than_the_state_at_the_start(tmp_path: Path) -> None:
    """Else an export would call it a change of the box."""
    spec = make_spec(tmp_path)
    (tmp_path / "w" / ".env").write_text("hunter2")
    prepared = prepare_workspace(spec, is_covered=False)
    try:
        time.sleep(0.02)  # several ticks of the file system's clock
        cover_secrets(prepared, find_secrets(spec))
        if prepared.upper is None:
            pytest.skip(f"no overlay here: {prepared.mode_reason}")
        assert [one.path for one in prepared.masked] == [b".env"]
        started_ns = load_baseline(prepared.baseline).base_time_ns
        assert (prepared.upper / ".env").stat().st_ctime_ns <= started_ns <= time.time_ns()
    finally:
        prepared.discard()


def test_a_box_that_was_not_covered_proves_nothing(tmp_path: Path) -> None:
    prepared = prepare_workspace(make_spec(tmp_path), is_covered=False)
    try:
        if prepared.upper is None:
            pytest.skip(f"no overlay here: {prepared.mode_reason}")
        with pytest.raises(RuntimeError, match="before the start"):
            prepared.verify(HelloReply(1, "", "", "", ""))
    finally:
        prepared.discard()


def test_refusals_leave_nothing_behind(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    before = find_own_link_dirs()
    first = prepare_workspace(spec)
    with pytest.raises(Exception, match="in use by another box"):
        prepare_workspace(spec)
    first.discard()
    first.discard()
    assert find_own_link_dirs() == before
    assert f"{tmp_path}" not in Path("/proc/self/mountinfo").read_text()


@needs_root
def test_a_box_with_mapped_ids_finds_its_changes_again(tmp_path: Path) -> None:
    """Each start takes the engine for one that maps nothing until it hears otherwise."""
    spec, remap = make_spec(tmp_path), Remap(1_900_000_000, 1_950_000_000)
    seen = []
    for _ in range(2):
        prepare_workspace(spec, is_covered=False).discard()
        prepared = prepare_workspace(spec, remap=remap)
        upper = (tmp_path / "run/box/upper").stat()
        seen.append((prepared.mode, prepared.uid, upper.st_uid, upper.st_gid))
        prepared.discard()
    uid = seen[0][1]
    assert seen == [(WorkspaceMode.OVERLAY, uid, 1_900_000_000 + uid, 1_950_000_000 + uid)] * 2


@pytest.mark.docker
def test_blocks_sockets_and_pipes_of_host_processes(tmp_path: Path) -> None:
    """A process of the user listens on a socket in the workspace, and one reads a pipe: neither hears the box."""
    require_engine()
    spec = make_spec(tmp_path)
    os.mkfifo(tmp_path / "w" / "pipe", 0o666)
    reader = os.open(tmp_path / "w" / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    dial = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('sock'); s.send(b'hello')"
    write = "import os; os.write(os.open('pipe', os.O_RDWR | os.O_NONBLOCK), b'hello')"
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(tmp_path / "w", os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/sock")
        os.chmod(tmp_path / "w" / "sock", 0o777)
        listener.listen()
        listener.setblocking(False)
        prepared = prepare_workspace(spec)
        with open_box(prepared) as box:
            prepared.after_start()
            refused, _ = box.attempt("python3", "-c", dial)
            box.attempt("python3", "-c", write)
        prepared.discard()
        os.close(here)
        assert refused == 1
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert os.read(reader, 10) == b""
    os.close(reader)
