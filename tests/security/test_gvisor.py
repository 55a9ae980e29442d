"""Boxes under gVisor: they work, what they cannot do is declared, and what a bomb takes along is told and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from tests.contract.boxes import output
from tests.support.foreign_image import busybox_image
from tests.support.gvisor import FAILS, HANGS, MISSES, RUNTIME, open_gvisor_engine
from tests.support.own_engine import OwnEngine

import corral
from corral.errors import BoxLost, ConfigError, ToolError
from corral.record import load_state
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.engine import Engine
from corral.sandbox.gc import collect_garbage
from corral.sandbox.spec import MIB, Limits, SandboxSpec, WorkspaceMode
from corral.store.run_dir import find_runs_root
from corral_protocol.message import EditStep, ExecStatus

pytestmark = [pytest.mark.docker, pytest.mark.slow]

PROCESS_BOMB = "b() { b | b & }; b; sleep 60"
MEMORY_BOMB = "python3 -c 'x = []\nwhile True: x.append(bytes(1 << 24).replace(bytes(1), bytes([1])))'"


@pytest.fixture(scope="module")
def gvisor(
    tmp_path_factory: pytest.TempPathFactory, docker_engine: docker.DockerClient, sandbox_image: str
) -> Iterator[OwnEngine]:
    yield from open_gvisor_engine(tmp_path_factory.mktemp("gvisor"), docker_engine, sandbox_image)


@pytest.fixture(autouse=True)
def _use_it(gvisor: OwnEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", gvisor.url)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


def make_spec(tmp_path: Path, workspace: Path, image: str, **more: Any) -> SandboxSpec:
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    return SandboxSpec(workspace, run_dir, f"gv-{os.getpid()}-{time.monotonic_ns()}", image, runtime=RUNTIME, **more)


@pytest.fixture
async def box(tmp_path: Path, workspace: Path, sandbox_image: str) -> AsyncIterator[DockerSandbox]:
    async with DockerSandbox(make_spec(tmp_path, workspace, sandbox_image)) as made:
        yield made


def configure(*, pids: int = 512, **settings: str) -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "corral"
    folder.mkdir(parents=True)
    lines = [*(f"{name} = {json.dumps(value)}" for name, value in settings.items()), f"limits.pids = {pids}"]
    (folder / "config.toml").write_text("\n".join(lines))


def run_corral(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    program = [sys.executable, "-m", "corral.cli", *arguments]
    return subprocess.run(program, capture_output=True, timeout=120)


async def test_it_says_what_it_cannot_do(box: DockerSandbox) -> None:
    assert box.info.runtime == RUNTIME
    assert (box.info.mode, box.info.mode_reason) == (WorkspaceMode.OVERLAY, "")
    assert {"exec", "files", "freeze", "stats"} <= set(box.info.capabilities)
    assert not {"host_kernel", "process_record", "landlock", "filter"} & set(box.info.capabilities)
    told = " ".join(box.info.warnings)
    assert "own kernel" in told and "filter" in told and "bomb" in told and "not recorded" in told


async def test_commands_and_files_work(box: DockerSandbox, workspace: Path, tmp_path: Path) -> None:
    result = await box.exec(["python3", "-c", "import os; print(os.getresuid(), os.getresgid(), os.getgroups())"])
    output = await _text(box, "id -u; id -g; cat a.txt")
    uid = str(box.info.uid)
    assert (result.exit_code, output.split()) == (0, [uid, str(box.info.gid), "one"])
    await box.write_file("new/b.txt", b"two\n")
    await box.edit_file("a.txt", [EditStep("one", "three")])
    assert (await box.read_file("a.txt")).text == "     1\tthree\n"
    assert [entry.path for entry in (await box.list_files(depth=2)).entries] == ["a.txt", "new", "new/b.txt"]
    upper = tmp_path / "run" / "box" / "upper"
    assert (upper / "a.txt").read_text() == "three\n"
    assert (upper / "new" / "b.txt").stat().st_uid == box.info.uid
    assert (workspace / "a.txt").read_text() == "one\n"


async def test_files_are_reached_as_the_untrusted_user(box: DockerSandbox) -> None:
    # The toolbox is root; with its own ids it would write there.
    for place in ("/etc/passwd", "/run/corral/x", "/opt/x"):
        with pytest.raises(ToolError):
            await box.write_file(place, b"x")
    made = await box.shell("mkdir -m 700 d && echo x > d/f && chmod 000 d/f")
    assert made.exit_code == 0
    with pytest.raises(ToolError) as refused:
        await box.read_file("d/f")
    assert refused.value.code == "permission_denied"


async def test_the_toolbox_cannot_be_signalled_or_traced(box: DockerSandbox) -> None:
    code = (
        "import ctypes, os\n"
        "c = ctypes.CDLL(None, use_errno=True)\n"
        "for pid in [int(p) for p in os.listdir('/proc') if p.isdigit()]:\n"
        "    try: words = open(f'/proc/{pid}/cmdline', 'rb').read().split(bytes(1))\n"
        "    except (FileNotFoundError, ProcessLookupError): continue\n"  # has just ended
        "    if words[1:4] != [b'-I', b'-S', b'/opt/corral/toolbox']: continue\n"
        # A command that has not begun yet looks like its supervisor, but for its ids.
        "    try: status = open(f'/proc/{pid}/status').read()\n"
        "    except (FileNotFoundError, ProcessLookupError): continue\n"
        "    if 'Uid:\\t0' not in status: continue\n"
        "    for n in range(200):\n"
        "        try: os.kill(pid, 0); print('signalled', pid)\n"
        "        except (PermissionError, ProcessLookupError): pass\n"
        "    if c.ptrace(16, pid, 0, 0) == 0: print('traced', pid)\n"
        "    for name in ('mem', 'fd/0', 'fd/1', 'fd/3'):\n"
        "        try: os.open(f'/proc/{pid}/{name}', os.O_WRONLY)\n"
        "        except OSError: continue\n"
        "        if pid == 1 or name in ('mem', 'fd/3'): print('opened', pid, name)\n"
    )
    text = bytearray()
    busy = asyncio.gather(*(box.read_file("a.txt") for _ in range(20)), *(box.shell("true") for _ in range(8)))
    result = await box.exec(["python3", "-c", code], stdout=lambda part: text.extend(part))
    await busy
    assert bytes(text) == b""
    assert result.exit_code == 0


async def test_a_call_that_is_ended_leaves_nothing(box: DockerSandbox) -> None:
    result = await box.shell("(setsid sleep 71 &); sleep 72 & sleep 73", timeout_s=1)
    assert result.status is ExecStatus.TIMEOUT
    look = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p; echo; done 2>/dev/null | grep -c '^sleep 7'"
    assert (await _text(box, look)).strip() == "0"


async def test_it_stands_still_when_told(box: DockerSandbox, tmp_path: Path) -> None:
    log = tmp_path / "run" / "box" / "upper" / "log"
    writer = asyncio.ensure_future(box.shell("while :; do echo x >> log; done", timeout_s=20))
    while not log.exists():
        await asyncio.sleep(0.05)
    assert (await box.freeze()).unstoppable == 0
    size = log.stat().st_size
    await asyncio.sleep(0.4)
    assert log.stat().st_size == size
    await box.thaw()
    await asyncio.sleep(0.4)
    assert log.stat().st_size > size
    await box.kill_all()
    assert (await writer).status is ExecStatus.KILLED


async def test_a_copy_works_where_no_overlay_is_wanted(tmp_path: Path, workspace: Path, sandbox_image: str) -> None:
    spec = make_spec(tmp_path, workspace, sandbox_image, mode=WorkspaceMode.COPY)
    async with DockerSandbox(spec) as box:
        assert await _text(box, "cat a.txt; echo more >> a.txt; cat a.txt") == "one\none\nmore\n"


@pytest.mark.parametrize(
    ("bomb", "cause", "limits"),
    [(PROCESS_BOMB, "pids_exhausted", Limits(pids=64)), (MEMORY_BOMB, "oom", Limits(memory_bytes=512 * MIB))],
    ids=["processes", "memory"],
)
async def test_a_bomb_ends_the_box_and_its_cause_is_told(
    bomb: str, cause: str, limits: Limits, tmp_path: Path, workspace: Path, sandbox_image: str
) -> None:
    spec = make_spec(tmp_path, workspace, sandbox_image, limits=limits)
    async with DockerSandbox(spec) as box:
        with pytest.raises(BoxLost) as lost:
            await box.shell(f"echo kept > kept; {bomb}", timeout_s=60)
        assert lost.value.cause == cause
    assert (spec.run_dir / "box" / "upper" / "kept").read_text() == "kept\n"


def test_exec_ends_with_the_cause_and_an_incomplete_patch(workspace: Path, sandbox_image: str) -> None:
    configure(runtime=RUNTIME, image=sandbox_image, pids=64)
    ended = run_corral("exec", "-C", str(workspace), "--json", "--", "sh", "-c", f"echo kept > kept; {PROCESS_BOMB}")
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["cause"], told["limits_touched"]) == (125, "pids_exhausted", ["processes 64"])
    assert told["box"]["runtime"] == RUNTIME and "process_record" not in told["box"]["capabilities"]
    run_dir = Path(told["run_dir"])
    assert b"+kept" in (run_dir / "patch.diff").read_bytes()
    state = load_state(run_dir / "record.jsonl")
    assert state.finished is not None and state.finished.box is not None
    assert (state.finished.stop_reason, state.finished.complete) == ("box_lost", False)
    assert (state.finished.box.runtime, state.finished.box.warnings) == (RUNTIME, tuple(told["box"]["warnings"]))


async def test_work_goes_on_in_a_new_box_over_the_same_changes(workspace: Path, sandbox_image: str) -> None:
    configure(runtime=RUNTIME, image=sandbox_image, pids=64)
    async with corral.Sandbox(workspace) as box:
        await box.shell("echo one > first; echo lost > /tmp/lost")
        (workspace / "a.txt").write_text("the user's own edit\n")
        with pytest.raises(ToolError) as told:
            await box.shell(PROCESS_BOMB, timeout_s=60)
        assert (told.value.code, "was replaced" in told.value.message) == ("box_lost", True)
        after = await box.shell("cat first; cat /tmp/lost; echo two > second; echo three > a.txt")
        assert after.stdout == b"one\n"
    assert box.patch is not None
    # What the user edited before the second box is no less a conflict than after it.
    assert {file.path for file in box.patch.files} == {"first", "second"}
    assert [one.reason.value for one in box.patch.not_exported] == ["base_changed"]
    (record,) = find_runs_root().glob("*/record.jsonl")
    finished = load_state(record).finished
    assert finished is not None and finished.box is not None
    assert any("replaced" in warning for warning in finished.box.warnings)


@pytest.mark.parametrize(
    ("runtime", "words"),
    [(MISSES, "has no runtime"), (FAILS, "cannot start a box"), (HANGS, "did not start a box within 20 s")],
)
async def test_a_runtime_that_starts_nothing_is_the_users_mistake(
    runtime: str, words: str, tmp_path: Path, workspace: Path, sandbox_image: str
) -> None:
    spec = make_spec(tmp_path, workspace, sandbox_image)
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=words) as told:
        async with DockerSandbox(SandboxSpec(**{**vars(spec), "runtime": runtime})):
            pass
    assert "\n" not in told.value.message and told.value.hint
    assert time.monotonic() - begun < 40
    if runtime == HANGS:
        with contextlib.suppress(corral.CorralError):
            collect_garbage(Engine())


def test_the_doctor_is_honest(sandbox_image: str) -> None:
    configure(runtime=RUNTIME, image=sandbox_image)
    told = json.loads(run_corral("doctor", "--sandbox", "--json").stdout)
    checks = {check["name"]: check["status"] for check in told["checks"]}
    assert [name for name, status in checks.items() if status == "fail"] == []
    assert {"kernel", "filter", "system calls", "second layer"} <= {n for n, s in checks.items() if s == "warn"}
    assert {"user", "capabilities", "connections", "engine", "root", "end"} <= {
        n for n, s in checks.items() if s == "ok"
    }
    (runtime,) = [c for c in json.loads(run_corral("doctor", "--json").stdout)["checks"] if c["name"] == "runtime"]
    assert runtime["status"] == "ok" and "starts a container of runsc in" in runtime["detail"]


async def _text(box: DockerSandbox, command: str) -> str:
    text = bytearray()
    await box.shell(command, stdout=lambda part: text.extend(part))
    return text.decode()


async def test_an_image_of_others_is_lent_a_toolbox_there_too(
    tmp_path: Path, workspace: Path, gvisor: OwnEngine, sandbox_image: str
) -> None:
    """Also the first time, when the runtime has still to be made: gVisor says in its own words that it is not there."""
    with contextlib.closing(docker.DockerClient(base_url=gvisor.url)) as client:
        image = busybox_image().load(client)
    async with DockerSandbox(make_spec(tmp_path, workspace, image)) as box:
        result = await box.shell("cat a.txt; id -un; echo two > b.txt")
        info = box.info
    assert (info.mode_reason, output(result.stdout), info.lacks) == ("", b"one\nbox\n", ("git", "rg"))
