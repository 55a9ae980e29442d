"""`-C image:PATH`: a directory of the image is the workspace, through the real command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from tests.support.command import corral
from tests.support.foreign_image import busybox_image, lend_engine

import corral as corral_api
from corral.sandbox.foreign import hold_tree

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def image(docker_engine: docker.DockerClient, sandbox_image: str) -> Iterator[str]:
    image = busybox_image()
    image.files |= {
        "testbed/a.txt": (b"one\n", 0o644),
        "testbed/run.sh": (b"#!/bin/sh\ncat a.txt\n", 0o755),
        "testbed/.gitignore": (b"build\n", 0o644),
        "testbed/closed/b.txt": (b"two\n", 0o600),
        "etc/passwd": (b"root:x:0:0::/:/bin/sh\n", 0o644),
    }
    image.links |= {"testbed/link": "a.txt", "testbed/out": "/etc/passwd", "testlink": "testbed"}
    with lend_engine(docker_engine) as load:
        yield load(image)


def find_trees(home: Path) -> list[Path]:
    return sorted((home / "xdg_data_home/corral/trees").iterdir())


def exec_in(image: str, script: str, *options: str) -> tuple[int, str, list[str]]:
    ran = corral("exec", "--image", image, "-C", "image:/testbed", *options, "--", "sh", "-c", script)
    return ran.code, ran.out.decode(), ran.err


def test_the_box_works_in_the_images_own_place_and_its_changes_come_out(home: Path, image: str) -> None:
    script = (
        "pwd; ./run.sh; cat closed/b.txt link; readlink out; echo new > new.txt; rm a.txt; mkdir build; echo > build/x"
    )
    code, out, err = exec_in(image, script)
    assert (code, out) == (0, "/testbed\none\ntwo\none\n/etc/passwd\n")
    assert err[0] == f"taking /testbed out of {image}; once for this image"
    (run,) = re.findall(r"\d{8}-\d{6}-[0-9a-f]{6}", "\n".join(err))[:1]
    patch = (home / "xdg_data_home/corral/runs" / run / "patch.diff").read_text()
    assert re.findall(r"^diff --git .*$", patch, re.M) == [
        "diff --git a/a.txt b/a.txt",
        "diff --git a/new.txt b/new.txt",
    ]


def test_it_is_taken_out_once_and_never_changed(home: Path, image: str) -> None:
    exec_in(image, "rm -rf /testbed/closed; echo x > a.txt")
    (tree,) = find_trees(home)
    before = {path: path.lstat().st_ctime_ns for path in tree.rglob("*")}
    code, out, err = exec_in(image, "cat a.txt closed/b.txt")
    assert (code, out, find_trees(home)) == (0, "one\ntwo\n", [tree])
    assert not any("taking" in line for line in err)
    after = {path: path.lstat().st_ctime_ns for path in tree.rglob("*")}
    assert after == before


def test_a_copy_has_the_same_place(home: Path, image: str) -> None:
    code, out, _ = exec_in(image, "pwd; ./run.sh", "--mode", "copy")
    assert (code, out) == (0, "/testbed\none\n")


def test_its_patch_is_applied_where_one_says(home: Path, image: str, tmp_path: Path) -> None:
    exec_in(image, "echo two > a.txt")
    refused = corral("apply", "last")
    assert refused.code == 2
    assert "worked on image:/testbed, which is no directory of this machine" in refused.err[0]
    assert "-C DIR" in refused.err[1]
    (tmp_path / "a.txt").write_text("one\n")
    assert corral("apply", "last", "-C", str(tmp_path)).code == 0
    assert (tmp_path / "a.txt").read_text() == "two\n"
    assert b"image:/testbed" in corral("runs").out


@pytest.mark.parametrize(
    ("place", "code", "message"),
    [
        ("image:/nowhere", 125, "has no directory '/nowhere'"),
        ("image:/testlink", 125, "is not a directory"),
        ("image:/testbed/a.txt", 125, "is not a directory"),
        ("image:/testlink/closed", 125, "'/testlink' is a link"),
        ("image:testbed", 2, "is no directory of an image"),
        ("image:/", 2, "is no directory of an image"),
        ("image:/testbed/../etc", 2, "is no directory of an image"),
        ("image:/etc", 2, "cannot be the workspace"),
        ("image:/opt", 2, "cannot be the workspace"),
    ],
)
def test_what_cannot_be_a_workspace_is_told(home: Path, image: str, place: str, code: int, message: str) -> None:
    ran = corral("exec", "--image", image, "-C", place, "--", "true")
    assert (ran.code, message in "\n".join(ran.err)) == (code, True), ran.err
    trees = home / "xdg_data_home/corral/trees"
    assert not trees.exists() or not list(trees.iterdir())


def test_its_set_up_is_kept_as_a_layer_for_the_same_place(image: str, tmp_path: Path) -> None:
    code, _, err = exec_in(image, "mkdir build; echo tool > build/tool", "--keep", "tools")
    assert (code, "kept as layer tools" in err) == (0, True), err
    code, out, err = exec_in(image, "cat build/tool a.txt", "--from", "tools")
    assert (code, out) == (0, "tool\none\n"), err
    elsewhere = corral("exec", "--image", image, "-C", str(tmp_path), "--from", "tools", "--", "true")
    assert elsewhere.err[0] == "corral: layer 'tools' was made at '/testbed', not at '/workspace'"


async def test_a_program_of_ones_own_works_in_it(home: Path, image: str) -> None:
    async with corral_api.Sandbox("image:/testbed", image=image) as box:
        told = await box.shell("pwd; cat a.txt; echo two > a.txt")
    assert told.text == "/testbed\none\n"
    assert [file.path for file in box.patch.files] == ["a.txt"]


def test_gc_removes_the_trees_of_images_that_are_gone(
    home: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    gone = busybox_image()
    gone.files["testbed/x"] = (b"x", 0o644)
    name = gone.load(docker_engine)
    exec_in(name, "true")
    (old,) = find_trees(home)
    exec_in(image, "true")
    docker_engine.api.remove_image(name)
    with hold_tree(old / "tree"):
        corral("gc")
        assert old in find_trees(home)
    assert f"would remove tree of a gone image {old.name}".encode() in corral("gc", "--dry-run").out
    assert f"removed tree of a gone image {old.name}".encode() in corral("gc").out
    assert [path.name for path in find_trees(home)] != [old.name]
    assert len(find_trees(home)) == 1
