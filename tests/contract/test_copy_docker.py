"""Copy mode in real boxes: trees of any size and names, on memory and on the engine's disk, and back out as a patch."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import docker
import pytest
from tests.contract.boxes import find_leftovers, make_spec, output

from corral.patch.export import Exporter
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import MIB, Limits, SandboxSpec, WorkspaceMode
from corral.schema.patch import Patch
from corral_protocol.name import encode_name

pytestmark = pytest.mark.docker

ON_DISK = "the copy lies on the engine's disk: the workspace's limits are watched, not held by its kernel"


@pytest.fixture
def spec(tmp_path: Path, sandbox_image: str) -> SandboxSpec:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "file").write_text("one\n")
    return make_spec(workspace, tmp_path, sandbox_image, mode=WorkspaceMode.COPY)


def small_box(spec: SandboxSpec) -> SandboxSpec:
    """With so little memory that the tree does not fit a tmpfs beside the others."""
    limits = Limits(memory_bytes=256 * MIB, tmp_bytes=8 * MIB, home_bytes=8 * MIB, shm_bytes=MIB)
    (spec.workspace / "large").write_bytes(os.urandom(1 << 20) * 60)
    return replace(spec, limits=limits)


async def run(spec: SandboxSpec, command: str) -> tuple[bytes, Patch | None, DockerSandbox]:
    async with DockerSandbox(spec) as box:
        result = await box.shell(command)
        assert (result.exit_code, output(result.stderr)) == (0, b"")
        await box.kill_all()
        patch = await Exporter(spec.workspace, spec.run_dir / "patch.diff").export(box)
    return output(result.stdout), patch, box


def names(patch: Patch | None) -> dict[str, str]:
    return {} if patch is None else {file.path: file.action.value for file in patch.files}


async def test_a_tree_that_does_not_fit_memory_lies_on_the_engines_disk(
    spec: SandboxSpec, docker_engine: docker.DockerClient
) -> None:
    command = "stat -f -c %T .; echo two >> file; mkdir d; echo new > d/new; rm large; touch .; ls -A"
    told, patch, box = await run(small_box(spec), command)
    kind, *listed = told.decode().split()
    assert kind != "tmpfs" and listed == ["d", "file"]
    assert box.info.warnings == (ON_DISK,)
    assert names(patch) == {"file": "modified", "d/new": "added", "large": "deleted"}
    assert find_leftovers(docker_engine, spec.run_id) == []


async def test_a_tree_that_fits_lies_in_memory_with_its_limits(spec: SandboxSpec) -> None:
    told, patch, box = await run(spec, "stat -f -c '%T %c' .; stat -c '%u %a' .; id -u")
    kind, inodes, owner, mode, user = told.decode().split()
    assert (kind, int(inodes), owner, mode) == ("tmpfs", spec.limits.workspace_inodes, user, "755")
    assert (box.info.warnings, patch) == ((), None)


async def test_a_workspace_closed_to_others_is_filled(spec: SandboxSpec) -> None:
    spec.workspace.chmod(0o700)
    told, patch, _ = await run(spec, "stat -c %a .; cat file; echo two >> file")
    assert (told, names(patch)) == (b"700\none\n", {"file": "modified"})


async def test_fifty_thousand_files(spec: SandboxSpec) -> None:
    for number in range(100):
        folder = spec.workspace / f"d{number}"
        folder.mkdir()
        for other in range(500):
            (folder / f"f{other}").write_text(f"{number} {other}\n")
    told, patch, box = await run(spec, "find . -type f | wc -l; echo more >> d7/f7; rm d99/f499")
    assert (told, box.info.warnings, box.info.mode_reason) == (b"50001\n", (), "asked for")
    assert names(patch) == {"d7/f7": "modified", "d99/f499": "deleted"}


async def test_names_that_are_no_text(spec: SandboxSpec) -> None:
    (spec.workspace / os.fsdecode(b"old\xff")).write_text("old\n")
    _, patch, _ = await run(spec, r"""echo more >> "$(printf 'old\377')"; echo new > "$(printf 'new\377\n.')" """)
    assert names(patch) == {encode_name(b"old\xff"): "modified", encode_name(b"new\xff\n."): "added"}


async def test_what_the_box_closed_is_told_and_never_taken_for_removed(spec: SandboxSpec) -> None:
    (spec.workspace / "kept").mkdir()
    (spec.workspace / "kept/file").write_text("kept\n")
    (spec.workspace / "searchable").mkdir()
    (spec.workspace / "searchable/file").write_text("kept\n")
    (spec.workspace / "closed").write_text("text\n")
    command = (
        "echo two >> file; chmod 0 kept closed; chmod 600 searchable; mkdir new; touch new/x; chmod 0 new; chmod 0 ."
    )
    _, patch, _ = await run(spec, command)
    assert patch is not None
    assert names(patch) == {"file": "modified"}
    assert {(one.path, one.reason.value) for one in patch.not_exported} == {
        ("closed", "unreadable"),
        ("kept/", "unreadable"),
        ("new/", "unreadable"),
        ("searchable/", "unreadable"),
    }


async def test_files_of_a_killed_file_tool_are_told(spec: SandboxSpec) -> None:
    (spec.workspace / ".corral-tmp-original").write_text("of the repository\n")
    command = "echo x > .corral-tmp-0123456789abcdef; echo y >> .corral-tmp-original; echo z > .corral-tmp-old-0"
    for mode in (WorkspaceMode.COPY, WorkspaceMode.OVERLAY):
        _, patch, _ = await run(make_spec(spec.workspace, spec.run_dir.parent, spec.image, mode=mode), command)
        assert patch is not None
        assert names(patch) == {".corral-tmp-original": "modified"}
        assert {(one.path, one.reason.value) for one in patch.not_exported} == {
            (".corral-tmp-0123456789abcdef", "leftover"),
            (".corral-tmp-old-0", "leftover"),
        }
