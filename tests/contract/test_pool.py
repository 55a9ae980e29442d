"""Boxes of a pool: handed out once, alive, showing what is there now, and nothing of them stays."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest
from tests.contract.boxes import find_leftovers, make_spec, output
from tests.support.leftovers import wait_for_nothing
from tests.support.pool import KINDS, make_pool, wait_until

import corral
from corral.doctor import Status, inside
from corral.doctor.box import InsideFacts, judge_engine_view, judge_inside
from corral.errors import ConfigError
from corral.sandbox.base import Sandbox
from corral.sandbox.container import load_seccomp_profile
from corral.sandbox.pool.yard import PLACE, Yard
from corral.sandbox.spec import WorkspaceMode

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="late boxes are mounted by root"),
]
MODES = {"late": WorkspaceMode.AUTO, "kept": WorkspaceMode.AUTO, "copy": WorkspaceMode.COPY}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "deep/er").mkdir(parents=True)
    for name in ("replaced", "written", "removed", "deep/er/replaced"):
        (folder / name).write_text("before\n")
    return folder


async def say(box: Sandbox, command: str) -> str:
    result = await box.shell(command)
    assert result.exit_code == 0, output(result.stderr)
    return output(result.stdout).decode()


def list_pool(client: docker.DockerClient) -> set[str]:
    """Containers of pools of this process that exist."""
    mark = {"label": ["corral=1", f"corral.owner.pid={os.getpid()}"]}
    return {one["Id"] for one in client.api.containers(all=True, filters=mark)}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_box_is_handed_out_once_and_the_pool_refills(
    kind: str, workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    seen = []
    async with make_pool(kind, workspace, tmp_path, image) as pool:
        for _ in range(2):
            await pool.wait_filled()
            spec = make_spec(workspace, tmp_path, image, mode=MODES[kind])
            async with pool.make(spec) as box:
                seen.append((box.info.box_id, box.info.facts["pool"], box.info.run_id == spec.run_id))
                assert await say(box, "cat written; echo new > new; cat new") == "before\nnew\n"
            await wait_until(lambda: pool.ready == 1)
        assert (pool.kind, pool.problem) == ("late" if kind == "late" else "kept", "")
    ids, kinds, are_own = zip(*seen, strict=True)
    assert (len(set(ids)), set(kinds), set(are_own)) == (2, {pool.kind}, {True})
    assert (list_pool(docker_engine), (workspace / "new").exists()) == (set(), False)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_view_shows_the_workspace_as_it_is_at_hand_out(
    kind: str, workspace: Path, tmp_path: Path, image: str
) -> None:
    async with make_pool(kind, workspace, tmp_path, image) as pool:
        await pool.wait_filled()
        for name in ("replaced", "deep/er/replaced"):
            (tmp_path / "other").write_text("after\n")
            (tmp_path / "other").rename(workspace / name)
        (workspace / "written").write_text("after, and longer\n")
        (workspace / "removed").unlink()
        (workspace / "deep/new").mkdir()
        (workspace / "deep/new/file").write_text("after\n")
        async with pool.make(make_spec(workspace, tmp_path, image, mode=MODES[kind])) as box:
            text = await say(box, "cat replaced written deep/er/replaced deep/new/file; ls -A")
            names = "deep\nreplaced\nwritten\n"
            assert text == f"after\nafter, and longer\nafter\nafter\n{names}"
            assert box.info.facts["pool"] == pool.kind


@pytest.mark.parametrize("kind", KINDS)
async def test_a_secret_that_came_later_is_masked(kind: str, workspace: Path, tmp_path: Path, image: str) -> None:
    async with make_pool(kind, workspace, tmp_path, image) as pool:
        await pool.wait_filled()
        (workspace / "deep/.env").write_text("TOKEN=hunter2\n")
        async with pool.make(make_spec(workspace, tmp_path, image, mode=MODES[kind])) as box:
            assert "masked by corral" in await say(box, "cat deep/.env")
            assert [one.path for one in box.info.masked] == [b"deep/.env"]
            # The masks of a mount that is there already cannot change: then the box is a new one.
            assert box.info.facts.get("pool") == (None if kind == "kept" else pool.kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_secret_that_went_leaves_no_placeholder(kind: str, workspace: Path, tmp_path: Path, image: str) -> None:
    (workspace / ".env").write_text("TOKEN=hunter2\n")
    async with make_pool(kind, workspace, tmp_path, image) as pool:
        await pool.wait_filled()
        (workspace / ".env").unlink()
        spec = make_spec(workspace, tmp_path, image, mode=MODES[kind])
        async with pool.make(spec) as box:
            assert (await say(box, "ls -A"), box.info.masked) == ("deep\nremoved\nreplaced\nwritten\n", ())
        upper = spec.run_dir / "box/upper"
        assert not list(upper.iterdir())


@pytest.mark.parametrize("kind", KINDS)
async def test_another_directory_under_the_same_name_is_the_one_that_is_seen(
    kind: str, workspace: Path, tmp_path: Path, image: str
) -> None:
    async with make_pool(kind, workspace, tmp_path, image) as pool:
        await pool.wait_filled()
        workspace.rename(tmp_path / "old")
        workspace.mkdir()
        (workspace / "other").write_text("other\n")
        async with pool.make(make_spec(workspace, tmp_path, image, mode=MODES[kind])) as box:
            assert await say(box, "ls -A") == "other\n"


async def test_late_boxes_are_for_any_workspace_and_any_run(tmp_path: Path, image: str) -> None:
    async with make_pool("late", tmp_path, tmp_path, image, size=2) as pool:
        await pool.wait_filled()
        boxes = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / name).write_text(f"{name}\n")
            os.chown(tmp_path / name, 4321, 4321)
            boxes.append(pool.make(make_spec(tmp_path / name, tmp_path, image, env={"WHO": name})))
        async with boxes[0] as one, boxes[1] as two:
            for name, box in (("one", one), ("two", two)):
                assert await say(box, "ls; echo $WHO; touch mine") == f"{name}\n{name}\n"
                assert (box.info.facts["pool"], box.info.uid >= 0x70000000) == ("late", True)
            assert one.info.uid != two.info.uid


async def test_a_late_box_sees_nothing_of_its_neighbours(workspace: Path, tmp_path: Path, image: str) -> None:
    async with make_pool("late", workspace, tmp_path, image, size=2) as pool:
        await pool.wait_filled()
        async with pool.make(make_spec(workspace, tmp_path, image)) as box:
            before = await say(box, "cat /proc/self/mountinfo")
            async with pool.make(make_spec(workspace, tmp_path, image)) as neighbour:
                own = await say(neighbour, "grep ' /workspace ' /proc/self/mountinfo | wc -l")
                assert (int(own), await say(box, "cat /proc/self/mountinfo")) == (2, before)


async def test_a_late_box_passes_the_doctors_checks(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    async with make_pool("late", workspace, tmp_path, image) as pool:
        await pool.wait_filled()
        async with pool.make(make_spec(workspace, tmp_path, image)) as box:
            seen = docker_engine.api.inspect_container(box.info.box_id)
            source = Path(inside.__file__).read_text()
            text = bytearray()
            await box.exec(["python3", "-I", "-S", "-c", source], stdout=text.extend, stream_limit=-1)
            facts = InsideFacts.model_validate_json(bytes(text))
            profile = load_seccomp_profile()
            checks = [
                *judge_inside(facts, box.info, host_name=os.uname().nodename, debug=False),
                *judge_engine_view(seen, seccomp=profile, default_profile=profile),
            ]
            assert [(one.name, one.detail) for one in checks if one.status is Status.FAIL] == []
            assert len(checks) >= 20


async def test_a_box_that_died_while_it_waited_is_replaced(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    async with make_pool("late", workspace, tmp_path, image) as pool:
        await pool.wait_filled()
        (dead,) = list_pool(docker_engine)
        docker_engine.api.kill(dead)
        await wait_until(lambda: pool.ready == 1 and dead not in list_pool(docker_engine))
        async with pool.make(make_spec(workspace, tmp_path, image)) as box:
            assert (box.info.box_id != dead, await say(box, "cat written")) == (True, "before\n")


async def test_a_box_that_is_dead_and_not_yet_known_to_be_is_not_handed_out(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    async with make_pool("late", workspace, tmp_path, image) as pool:
        await pool.wait_filled()
        (dead,) = list_pool(docker_engine)
        docker_engine.api.kill(dead)  # blocks: the loop has had no chance to hear of it
        async with pool.make(make_spec(workspace, tmp_path, image)) as box:
            assert (box.info.box_id != dead, await say(box, "cat written")) == (True, "before\n")


async def test_an_old_box_is_replaced(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    async with make_pool("late", workspace, tmp_path, image, max_age_s=0.5) as pool:
        await pool.wait_filled()
        (old,) = list_pool(docker_engine)
        await wait_until(lambda: old not in list_pool(docker_engine))
        await wait_until(lambda: bool(list_pool(docker_engine)))


async def test_what_does_not_fit_is_started_as_ever(workspace: Path, tmp_path: Path, image: str) -> None:
    async with make_pool("late", workspace, tmp_path, image) as pool:
        await pool.wait_filled()
        for changes in ({"mode": WorkspaceMode.COPY}, {"mount_point": "/elsewhere"}, {"seccomp": "debug"}):
            async with pool.make(make_spec(workspace, tmp_path, image, **changes)) as box:
                assert ("pool" in box.info.facts, await say(box, "cat written")) == (False, "before\n")
        assert pool.ready == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_pool_that_is_closed_while_it_fills_leaves_nothing(
    kind: str, workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    yards = set(os.listdir(PLACE)) if PLACE.exists() else set()
    pool = make_pool(kind, workspace, tmp_path, image, size=4)
    await pool.start()
    await wait_until(lambda: bool(list_pool(docker_engine)))  # one is being made, by the engine or to its end
    await pool.close()
    assert (list_pool(docker_engine), pool.ready) == (set(), 0)
    assert set(os.listdir(PLACE) if PLACE.exists() else ()) <= yards
    assert [path for folder in tmp_path.glob("pools-*") for path in folder.iterdir()] == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_box_that_is_out_outlives_its_pool(
    kind: str, workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    pool = make_pool(kind, workspace, tmp_path, image)
    await pool.start()
    await pool.wait_filled()
    spec = make_spec(workspace, tmp_path, image, mode=MODES[kind])
    async with pool.make(spec) as box:
        await pool.close()
        assert await say(box, "cat written") == "before\n"
    assert (list_pool(docker_engine), find_leftovers(docker_engine, spec.run_id)) == (set(), [])


async def test_a_run_in_a_box_of_a_pool_is_a_run(workspace: Path, home: Path, image: str) -> None:
    async with corral.Pool(workspace, size=1, image=image) as pool:
        await pool.wait_filled()
        (workspace / "written").write_text("edited while the box waited\n")
        async with corral.Sandbox(workspace, image=image, network="none", pool=pool) as box:
            assert box.info.facts["pool"] == pool.kind
            assert (await box.shell("echo $HTTP_PROXY")).stdout.startswith(b"http://")
            await box.shell("echo more >> written; echo new > new")
            seen: list[Any] = [box.run_id]
    # What its user edited before the box was handed out is no conflict.
    assert [(one.path, one.action.value) for one in box.patch.files] == [("new", "added"), ("written", "modified")]
    assert (workspace / "written").read_text() == "edited while the box waited\n"
    assert box.record_path.parent.name == seen[0]


OWNER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.pool import make_pool
from tests.contract.boxes import make_spec
async def main():
    kind, workspace, folder, image = sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5]
    async with make_pool(kind, workspace, folder, image, size=2) as pool:
        await pool.wait_filled()
        box = pool.make(make_spec(workspace, folder, image))
        await box.start()
        assert box.info.facts["pool"] == pool.kind
        await box.write_file("mine", b"kept")
        print(box.info.run_id, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["late", "kept"])
def test_nothing_is_left_of_an_owner_that_was_killed(
    kind: str, workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    temporary, folder = tmp_path / "tmp", tmp_path / "runs"
    temporary.mkdir()
    folder.mkdir()
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", OWNER, root, kind, str(workspace), str(folder), image]
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().decode().strip()
        assert run_id, "the owner did not get a box"
        os.kill(process.pid, signal.SIGKILL)
    assert wait_for_nothing(docker_engine, process.pid, temporary) == []
    assert wait_for(lambda: _yards_of(process.pid) == [])
    assert wait_for(lambda: [*folder.glob("pools-*/*")] == [])
    # The run's own changes stay.
    assert (folder / run_id / "box/upper/mine").read_bytes() == b"kept"


def wait_for(holds: Callable[[], bool]) -> bool:
    async def wait() -> None:
        await wait_until(holds)

    asyncio.run(wait())
    return holds()


def _yards_of(pid: int) -> list[str]:
    found = []
    for yard in PLACE.iterdir() if PLACE.exists() else ():
        with_owner = yard / "owner.json"
        if with_owner.exists() and f'"{pid}"' in with_owner.read_text():
            found.append(yard.name)
    return found


def _links_of(pid: int) -> list[str]:
    """Short names, with the mounts under them, that boxes of this process were made from."""
    owners = Path("/tmp").glob("corral-*/owner.json")
    return [str(one.parent) for one in owners if one.exists() and f'"{pid}"' in one.read_text()]


def test_a_yard_that_is_still_mounted_keeps_what_lies_in_it(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("changes of a run")
    yard = Yard.create({"corral.owner.pid": str(os.getpid())})
    point = yard.add()
    subprocess.run(["mount", "--bind", str(tmp_path), str(point)], check=True)
    assert (point / "precious").read_text() == "changes of a run"
    yard.remove()
    assert ((tmp_path / "precious").read_text(), yard.path.exists()) == ("changes of a run", False)
    table = Path("/proc/self/mountinfo").read_text()
    assert yard.path.name not in table


async def test_a_pool_for_any_workspace_says_where_it_cannot_be(workspace: Path, tmp_path: Path, image: str) -> None:
    async def start(**options: Any) -> None:
        async with corral.Pool(image=image, **options):
            raise AssertionError("started")

    with pytest.raises(ConfigError, match="copy mode is asked for"):
        await start(mode="copy")
    with pytest.raises(ConfigError, match="a pool of 0 boxes"):
        await start(size=0)


@pytest.mark.slow
async def test_nothing_is_left_of_a_thousand_boxes(
    workspace: Path, tmp_path: Path, image: str, docker_engine: docker.DockerClient, rounds: Callable[[int], int]
) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    from_pool = 0
    async with make_pool("late", workspace, tmp_path, image, size=8) as pool:

        async def one() -> bool:
            spec = make_spec(workspace, tmp_path, image)
            try:
                async with pool.make(spec) as box:
                    await say(box, "echo new > new")
                    return "pool" in box.info.facts
            finally:
                shutil.rmtree(spec.run_dir)

        for _ in range(rounds(250)):
            from_pool += sum(await asyncio.gather(*(one() for _ in range(4))))
    assert from_pool > 0
    assert list_pool(docker_engine) == set()
    assert (_yards_of(os.getpid()), _links_of(os.getpid())) == ([], [])
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2  # the janitor's pipe, and who knows
