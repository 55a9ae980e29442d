"""What every Sandbox does, the real one and the fake."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import docker
import pytest
from tests.contract.boxes import docker_maker, fake_maker, make_spec, output
from tests.support.foreign_image import busybox_image, lend_engine
from tests.support.pool import KINDS, make_pool
from tests.support.remote_engine import TlsEngine

from corral.errors import BoxLost, RecordError, ToolError
from corral.sandbox.base import Sandbox
from corral.sandbox.engine import Engine
from corral_protocol.message import EditStep, ExecStatus


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "src/b.bin").write_bytes(bytes(range(256)))
    (folder / "link").symlink_to("a.txt")
    return folder


@pytest.fixture(scope="module")
def busybox(docker_engine: docker.DockerClient, sandbox_image: str) -> Iterator[str]:
    """An image that has nothing of corral, nor Python, nor glibc."""
    with lend_engine(docker_engine) as load:
        yield load(busybox_image())


@pytest.fixture(scope="module")
def far_engine(
    tmp_path_factory: pytest.TempPathFactory, docker_engine: docker.DockerClient, sandbox_image: str
) -> Iterator[TlsEngine]:
    """One that is reached over TLS."""
    with TlsEngine(tmp_path_factory.mktemp("remote") / "engine") as own:
        own.copy_image(docker_engine, sandbox_image)
        yield own


@pytest.fixture(
    params=[
        *(pytest.param(one, marks=pytest.mark.docker) for one in ("docker", "busybox", "late", "kept")),
        pytest.param("tls", marks=[pytest.mark.docker, pytest.mark.slow]),
        "fake",
    ],
)
async def box(request: pytest.FixtureRequest, workspace: Path, tmp_path: Path) -> AsyncIterator[Sandbox]:
    if request.param in KINDS:
        if os.geteuid() != 0:
            pytest.skip("late boxes are mounted by root")
        image = request.getfixturevalue("image")
        async with make_pool(request.param, workspace, tmp_path, image) as pool:
            await pool.wait_filled()
            async with pool.make(make_spec(workspace, tmp_path, image)) as started:
                assert (started.info.facts.get("pool"), pool.problem) == (request.param, "")
                yield started
        return
    if request.param == "docker":
        made = docker_maker(request.getfixturevalue("image"))(workspace, tmp_path)
    elif request.param == "tls":
        far: TlsEngine = request.getfixturevalue("far_engine")
        made = docker_maker(request.getfixturevalue("sandbox_image"), Engine(far.environment))(workspace, tmp_path)
    elif request.param == "busybox":
        made = docker_maker(request.getfixturevalue("busybox"))(workspace, tmp_path)
    else:
        made = fake_maker(workspace, tmp_path)
    async with made as started:
        yield started


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def is_there(box: Sandbox, name: str) -> bool:
    return name in {entry.path for entry in (await box.list_files()).entries}


async def test_tells_what_it_is(box: Sandbox) -> None:
    info = box.info
    assert (info.mode in ("overlay", "copy"), bool(info.box_id), info.start_s >= 0) == (True, True, True)
    with pytest.raises(RuntimeError):
        await box.start()


async def test_exit_code_and_both_outputs(box: Sandbox) -> None:
    result = await box.shell("echo out; echo err >&2; exit 3")
    assert (result.status, result.exit_code, output(result.stdout), output(result.stderr)) == (
        ExecStatus.EXITED,
        3,
        b"out\n",
        b"err\n",
    )


async def test_signal(box: Sandbox) -> None:
    result = await box.shell("kill -9 $$")
    assert (result.status, result.signal) == (ExecStatus.SIGNALED, 9)


async def test_unknown_program(box: Sandbox) -> None:
    result = await box.exec(["no-such-program"])
    assert (result.status, result.exit_code) == (ExecStatus.NOT_STARTED, 127)


async def test_stdin(box: Sandbox) -> None:
    result = await box.exec(["cat"], stdin=pieces(b"hello ", b"", b"world"))
    assert (result.exit_code, output(result.stdout)) == (0, b"hello world")


async def test_any_bytes(box: Sandbox) -> None:
    result = await box.shell("printf '\\377\\000'")
    assert output(result.stdout) == b"\xff\0"


async def test_full_output_to_the_sink_head_and_tail_in_the_result(box: Sandbox) -> None:
    got = bytearray()
    result = await box.exec(["head", "-c", "100000", "/dev/zero"], stdout=got.extend)
    capture = result.stdout
    assert (len(got), capture.total_bytes, capture.streamed_bytes) == (100_000, 100_000, 100_000)
    assert len(output(capture)) == 32 << 10


async def test_stream_limit(box: Sandbox) -> None:
    got = bytearray()
    result = await box.exec(["head", "-c", "100000", "/dev/zero"], stdout=got.extend, stream_limit=1000)
    assert (len(got), result.stdout.total_bytes, result.stdout.streamed_bytes) == (1000, 100_000, 1000)


async def test_a_slow_sink_gets_everything(box: Sandbox) -> None:
    got = bytearray()

    async def consume(data: bytes) -> None:
        await asyncio.sleep(0.001)
        got.extend(data)

    await box.exec(["head", "-c", "100000", "/dev/zero"], stdout=lambda piece: consume(bytes(piece)))
    assert len(got) == 100_000


async def test_time_limit(box: Sandbox) -> None:
    result = await box.shell("sleep 60", timeout_s=0.2)
    assert result.status is ExecStatus.TIMEOUT


async def test_cancel_ends_the_call(box: Sandbox) -> None:
    call = asyncio.ensure_future(box.shell("sleep 60"))
    await asyncio.sleep(0.2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 3)
    assert (await box.shell("true")).exit_code == 0
    assert (await box.stats()).calls == 0


async def test_a_held_command_starts_when_its_hold_has_ended(box: Sandbox) -> None:
    seen: list[bool] = []

    async def hold() -> None:
        await asyncio.sleep(0.2)
        seen.append(await is_there(box, "ran"))

    assert (await box.shell("echo > ran", hold=hold)).exit_code == 0
    assert [*seen, await is_there(box, "ran")] == [False, True]


async def test_a_command_whose_hold_fails_never_starts(box: Sandbox) -> None:
    async def hold() -> None:
        raise RecordError("the disk is gone")

    with pytest.raises(RecordError):
        await box.shell("echo > ran", hold=hold)
    await asyncio.sleep(0.2)
    assert not await is_there(box, "ran")


async def test_kill_all_ends_the_call(box: Sandbox) -> None:
    call = asyncio.ensure_future(box.shell("sleep 60"))
    await asyncio.sleep(0.2)
    await box.kill_all()
    assert (await asyncio.wait_for(call, 5)).status is ExecStatus.KILLED


async def test_calls_run_side_by_side(box: Sandbox) -> None:
    results = await asyncio.gather(*[box.shell("echo out; echo err >&2; exit 3") for _ in range(8)])
    assert [result.exit_code for result in results] == [3] * 8


async def test_freeze_and_thaw(box: Sandbox) -> None:
    assert (await box.freeze()).unstoppable == 0
    await box.thaw()
    assert (await box.shell("true")).exit_code == 0


async def test_read_file(box: Sandbox) -> None:
    content = await box.read_file("a.txt")
    assert (content.kind, content.size, content.total_lines, content.newline) == ("text", 8, 2, "lf")
    assert content.text.split() == ["1", "one", "2", "two"]


async def test_write_then_read(box: Sandbox) -> None:
    changed = await box.write_file("new/file.txt", b"x\n", mode=0o755)
    assert (changed.action, changed.sha256) == ("created", hashlib.sha256(b"x\n").hexdigest())
    assert (await box.read_file("new/file.txt")).mode & 0o777 == 0o755


async def test_a_large_write(box: Sandbox) -> None:
    data = os.urandom(3 << 20)
    await box.write_file("big", data)
    got = bytearray()
    reply = await box.fetch_file("big", got.extend)
    assert (reply.size, reply.sent, bytes(got) == data) == (3 << 20, 3 << 20, True)


async def test_refusals_are_tool_errors(box: Sandbox) -> None:
    codes = []
    for attempt in (
        box.read_file("missing"),
        box.write_file("a.txt", b"", overwrite=False),
        box.write_file("a.txt", b"", if_sha256="0" * 64),
        box.read_file("/etc/passwd"),
        box.read_file("../../etc/passwd"),
        box.delete_file("src"),
        box.edit_file("a.txt", [EditStep("nowhere", "x")]),
        box.apply_patch(b"no patch"),
        box.read_file("a\0b"),
        box.read_file("\ud800"),
    ):
        with pytest.raises(ToolError) as caught:
            await attempt
        codes.append(caught.value.code)
    assert codes == [
        "not_found",
        "exists",
        "patch_conflict",
        "outside_workspace",
        "outside_workspace",
        "not_empty",
        "no_match",
        "patch_invalid",
        "invalid_argument",
        "invalid_argument",
    ]


async def test_edit_patch_move_delete(box: Sandbox) -> None:
    assert (await box.edit_file("a.txt", [EditStep("two", "2")])).replaced == 1
    patch = b"--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+1\n 2\n"
    assert [f.action for f in (await box.apply_patch(patch, dry_run=True)).files] == ["modified"]
    assert [f.action for f in (await box.apply_patch(patch)).files] == ["modified"]
    assert (await box.move_file("a.txt", "c.txt")).action == "moved"
    got = bytearray()
    await box.fetch_file("c.txt", got.extend)
    assert got == b"1\n2\n"
    assert (await box.delete_file("src", recursive=True)).action == "deleted"
    listing = await box.list_files()
    assert sorted((entry.path, entry.kind) for entry in listing.entries) == [("c.txt", "file"), ("link", "symlink")]


async def test_fetch_a_part(box: Sandbox) -> None:
    got = bytearray()
    await box.fetch_file("src/b.bin", got.extend, offset=10, limit=5)
    assert got == bytes(range(10, 15))


async def test_store_of_the_wrong_size_leaves_the_old_bytes(box: Sandbox) -> None:
    with pytest.raises(ToolError):
        await box.store_file("a.txt", pieces(b"short"), 100)
    got = bytearray()
    await box.fetch_file("a.txt", got.extend)
    assert got == b"one\ntwo\n"


async def test_scan_tree(box: Sandbox) -> None:
    found = {entry.path: (entry.kind, entry.size, entry.sha256) async for entry in box.scan_tree()}
    empty = {path: entry for path, entry in found.items() if entry[0] == "file"}
    assert empty == {
        "a.txt": ("file", 8, hashlib.sha256(b"one\ntwo\n").hexdigest()),
        "src/b.bin": ("file", 256, hashlib.sha256(bytes(range(256))).hexdigest()),
    }
    assert (found["link"][0], found["src"][0]) == ("symlink", "dir")


async def test_odd_names_survive(box: Sandbox) -> None:
    name = os.fsdecode(b"b\xff \n'\".txt")
    await box.write_file(name, b"x")
    got = bytearray()
    await box.fetch_file(name, got.extend)
    assert got == b"x"


async def test_after_dispose_every_call_says_that_the_box_is_gone(box: Sandbox) -> None:
    call = asyncio.ensure_future(box.shell("sleep 60"))
    await asyncio.sleep(0.1)
    await box.dispose()
    await box.dispose()
    with pytest.raises(BoxLost):
        await call
    with pytest.raises(BoxLost):
        await box.shell("true")
