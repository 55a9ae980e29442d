"""Boxes of images that have nothing of corral: no Python, no glibc, no shell, and settings that get in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import docker
import pytest
from tests.contract.boxes import find_leftovers, make_spec, output
from tests.support.foreign_image import (
    PROGRAM,
    ForeignImage,
    build_program,
    busybox_image,
    lend_engine,
    musl_image,
    static_image,
)

from corral.errors import ImageError, ToolError
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.engine import Engine
from corral.sandbox.foreign import fill_runtime
from corral.sandbox.foreign.runtime import LABEL, name_runtime
from corral.sandbox.gc import collect_garbage
from corral.sandbox.spec import WorkspaceMode
from corral_protocol.message import EditStep, ExecStatus

pytestmark = pytest.mark.docker

OpenBox = Callable[..., "asynccontextmanager[DockerSandbox]"]


@pytest.fixture(scope="module")
def load(docker_engine: docker.DockerClient, sandbox_image: str) -> Iterator[Callable[[ForeignImage], str]]:
    with lend_engine(docker_engine) as put:
        yield put


@pytest.fixture(scope="module")
def program(docker_engine: docker.DockerClient, sandbox_image: str) -> bytes:
    return build_program(docker_engine, sandbox_image, PROGRAM, "-static")


@pytest.fixture(scope="module")
def busybox(load: Callable[[ForeignImage], str]) -> str:
    return load(busybox_image())


@pytest.fixture(scope="module")
def static(load: Callable[[ForeignImage], str], program: bytes) -> str:
    return load(static_image(program))


@pytest.fixture
def open_box(tmp_path: Path) -> OpenBox:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\ntwo\n")

    @asynccontextmanager
    async def start(image: str, **changes: object) -> AsyncIterator[DockerSandbox]:
        async with DockerSandbox(make_spec(workspace, tmp_path, image, **changes)) as box:
            yield box

    return start


async def run(box: DockerSandbox, *argv: str) -> tuple[int, str]:
    result = await box.exec(list(argv), merge_stderr=True)
    return result.exit_code, output(result.stdout).decode()


async def test_runs_without_a_shell_or_a_library(open_box: OpenBox, static: str) -> None:
    async with open_box(static) as box:
        uid, gid = box.info.uid, box.info.gid
        answers = [
            await run(box, "/app", "pwd"),
            await run(box, "/app", "id"),
            await run(box, "/app", "cat", "a.txt"),
            await run(box, "/app", "exit", "7"),
            await run(box, "/app", "write", "new.txt", "x"),
            await run(box, "/app", "write", "/etc/passwd", "x"),
        ]
        assert answers == [
            (0, "/workspace\n"),
            (0, f"{uid} {gid}\n"),
            (0, "one\ntwo\n"),
            (7, ""),
            (0, ""),
            (1, "/etc/passwd: Read-only file system\n"),
        ]
        assert (box.info.facts["shell"], box.info.lacks) == ("", ("shell", "git", "rg"))


async def test_calls_end_without_a_shell(open_box: OpenBox, static: str) -> None:
    async with open_box(static) as box:
        late = await box.exec(["/app", "sleep", "60"], timeout_s=0.2)
        killed = asyncio.ensure_future(box.exec(["/app", "sleep", "60"]))
        await asyncio.sleep(0.3)
        frozen = await box.freeze()
        await box.thaw()
        await box.kill_all()
        assert (late.status, frozen.unstoppable, (await killed).status) == (ExecStatus.TIMEOUT, 0, ExecStatus.KILLED)


async def test_files_are_worked_on_without_a_program_of_the_image(open_box: OpenBox, static: str) -> None:
    async with open_box(static) as box:
        await box.write_file("d/new.txt", b"x\n")
        await box.edit_file("a.txt", [EditStep("two", "three")])
        await box.apply_patch(b"*** Begin Patch\n*** Add File: p.txt\n+p\n*** End Patch\n")
        await box.move_file("p.txt", "d/q.txt")
        await box.delete_file("d/new.txt")
        found = {entry.path async for entry in box.scan_tree()}
        read = await box.read_file("a.txt")
        assert (found, read.text.split()) == ({"a.txt", "d", "d/q.txt"}, ["1", "one", "2", "three"])


async def test_a_missing_shell_is_told_with_a_hint(open_box: OpenBox, static: str) -> None:
    async with open_box(static) as box:
        with pytest.raises(ToolError) as caught:
            await box.shell("true")
    assert (caught.value.message, caught.value.hint, caught.value.code) == (
        "this image has no shell",
        "run a program of the image by its name and arguments (exec), or take an image that has a shell",
        "unsupported",
    )


async def test_a_program_that_may_not_be_run_is_told(open_box: OpenBox, load: Callable[[ForeignImage], str]) -> None:
    image = busybox_image()
    image.files["bin/plain"] = (b"#!/bin/sh\n", 0o644)
    async with open_box(load(image)) as box:
        result = await box.exec(["plain"])
        assert (result.status, result.exit_code) == (ExecStatus.NOT_STARTED, 126)


async def test_a_program_of_another_c_library_runs(
    open_box: OpenBox, load: Callable[[ForeignImage], str], docker_engine: docker.DockerClient, sandbox_image: str
) -> None:
    async with open_box(load(musl_image(docker_engine, sandbox_image))) as box:
        assert await run(box, "musl") == (0, "hello from musl\n")


async def test_nothing_an_image_sets_gets_in_the_way(open_box: OpenBox, load: Callable[[ForeignImage], str]) -> None:
    image = busybox_image()
    image.config = {
        "Entrypoint": ["/bin/false"],
        "Cmd": ["x"],
        "User": "nobody",
        "WorkingDir": "/missing",
        "Volumes": {"/opt/corral": {}, "/data": {}},
        "Healthcheck": {"Test": ["CMD", "false"]},
        "OnBuild": ["RUN false"],
        "Shell": ["/bin/false"],
        "StopSignal": "SIGSTOP",
        "Env": ["PATH=/nothing", "LD_PRELOAD=/x.so", "LD_LIBRARY_PATH=/lib", "PYTHONHOME=/x", "LC_ALL=de_DE", "A=1"],
    }
    async with open_box(load(image)) as box:
        _, text = await run(box, "env")
        env = dict(line.split("=", 1) for line in text.splitlines())
        kept = {name: env[name] for name in ("A", "LD_LIBRARY_PATH", "LC_ALL", "PYTHONHOME")}
        assert kept == {"A": "1", "LD_LIBRARY_PATH": "/lib", "LC_ALL": "de_DE", "PYTHONHOME": "/x"}
        assert env["PATH"].split(":")[0] == "/nothing"


async def test_a_shell_is_found_where_the_image_has_it(open_box: OpenBox, load: Callable[[ForeignImage], str]) -> None:
    image = busybox_image()
    image.files["busybox/busybox"] = image.files.pop("bin/busybox")
    image.links = {f"busybox/{name}": "busybox" for name in ("sh", "echo")}
    image.config = {"Env": ["PATH=/busybox"]}
    async with open_box(load(image)) as box:
        result = await box.shell("echo here")
        assert (output(result.stdout), box.info.facts["shell"]) == (b"here\n", "/busybox/sh")


async def test_users_of_the_image_stay_and_the_box_has_a_name(
    open_box: OpenBox, load: Callable[[ForeignImage], str]
) -> None:
    image = busybox_image()
    image.files |= {
        "etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh", 0o644),
        "etc/group": (b"root:x:0:\nnode:x:1000:\n", 0o644),
        "home/node/.profile": (b"kept\n", 0o644),
    }
    async with open_box(load(image)) as box:
        uid, gid = box.info.uid, box.info.gid
        result = await box.shell("cat /etc/passwd /etc/group /home/node/.profile; whoami; touch ~/x && echo $HOME")
        assert output(result.stdout).decode().splitlines() == [
            "root:x:0:0:root:/root:/bin/sh",
            f"box:x:{uid}:{gid}:box:/home/box:/bin/sh",
            "node:x:1000:1000::/home/node:/bin/sh",
            "root:x:0:",
            f"box:x:{gid}:",
            "node:x:1000:",
            "kept",
            "box",
            "/home/box",
        ]


async def test_a_copy_of_the_workspace_works_and_says_what_is_missing(open_box: OpenBox, busybox: str) -> None:
    async with open_box(busybox, mode=WorkspaceMode.COPY) as box:
        assert (await run(box, "cat", "a.txt")) == (0, "one\ntwo\n")
        assert "the box's user has no name in this image: the engine cannot see our files" in box.info.warnings


async def test_an_image_for_another_machine_is_refused(
    open_box: OpenBox, load: Callable[[ForeignImage], str], docker_engine: docker.DockerClient, sandbox_image: str
) -> None:
    own = docker_engine.api.inspect_image(sandbox_image)["Architecture"]  # type: ignore[no-untyped-call]
    name = load(ForeignImage({"app": (b"", 0o755)}, architecture="s390x"))
    with pytest.raises(ImageError) as caught:
        async with open_box(name):
            pass
    assert (caught.value.message, caught.value.hint) == (
        f"{name!r} is an image for linux/s390x, and this engine runs linux/{own}",
        f"pull or build it for linux/{own}",
    )


async def test_the_first_box_makes_the_runtime_and_nothing_of_a_run_is_left(
    open_box: OpenBox, busybox: str, docker_engine: docker.DockerClient, sandbox_image: str
) -> None:
    """Filled twice at once, as by two first boxes, it is the same."""
    sandbox_id = docker_engine.api.inspect_image(sandbox_image)["Id"]  # type: ignore[no-untyped-call]
    async with open_box(busybox) as box:
        engine = Engine()
        await asyncio.gather(*[fill_runtime(engine, sandbox_id, box.info.run_id) for _ in range(2)])
        assert await run(box, "true") == (0, "")
    volume = docker_engine.api.inspect_volume(name_runtime(sandbox_id))  # type: ignore[no-untyped-call]
    assert (volume["Labels"], find_leftovers(docker_engine, box.info.run_id)) == ({LABEL: sandbox_id}, [])


async def test_gc_removes_the_runtimes_of_images_that_are_gone(
    open_box: OpenBox, busybox: str, docker_engine: docker.DockerClient, sandbox_image: str
) -> None:
    sandbox_id = docker_engine.api.inspect_image(sandbox_image)["Id"]  # type: ignore[no-untyped-call]
    old = docker_engine.volumes.create("corral-runtime-of-nothing", labels={LABEL: "sha256:gone"}).name
    async with open_box(busybox):
        pass
    would = await asyncio.to_thread(collect_garbage, Engine(), dry_run=True)
    done = await asyncio.to_thread(collect_garbage, Engine())
    names = {volume.name for volume in docker_engine.volumes.list(filters={"label": LABEL})}
    current = name_runtime(sandbox_id)
    assert (old in would.runtimes, old in done.runtimes, old in names, current in names) == (True, True, False, True)
