"""What an engine says of its user ids, and which of them a box gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from corral.errors import SandboxError
from corral.sandbox.remap import Remap, find_remap, read_remap, rules_out_remap
from corral.sandbox.workspace.kernel.idmap import FIRST_BOX_ID, IdMap
from corral.sandbox.workspace.owner import choose_owner

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root reserves ids: needs root")


@pytest.mark.parametrize(
    ("driver", "ruled_out"),
    [
        ({"Data": {"UpperDir": "/var/lib/docker/overlay2/0a/diff"}}, True),
        ({"Data": {"UpperDir": "/home/u/.local/share/containers/storage/overlay/0a/diff"}}, True),
        ({"Data": {"UpperDir": "/var/lib/docker/100000.100000/overlay2/0a/diff"}}, False),
        ({"Data": {"UpperDir": "/var/lib/docker"}}, False),
        ({"Data": {"UpperDir": 7}}, False),
        ({"Data": None}, False),
        (None, False),
    ],
)
def test_an_images_place_rules_it_out_only_where_it_is_certain(driver: object, ruled_out: bool) -> None:
    assert rules_out_remap({"GraphDriver": driver}) is ruled_out
    assert rules_out_remap({}) is False


def describe(**changes: Any) -> dict[str, Any]:
    said = {"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}
    return said | {"DockerRootDir": "/d/231072.300000", "KernelVersion": "6.9.1-amd64"} | changes


def test_an_engine_that_maps_nothing_has_no_map() -> None:
    assert find_remap(describe(SecurityOptions=["name=seccomp,profile=userns"]), is_local=False) is None
    assert find_remap({}, is_local=True) is None


@pytest.mark.parametrize(
    ("kernel", "can_limit_ipc"),
    [("6.9.1-amd64", True), ("7.0", True), ("6.8.12", False), ("5.15.0", False), ("", False)],
)
def test_the_ids_of_an_engine_that_says_so(kernel: str, can_limit_ipc: bool) -> None:
    expected = Remap(231072, 300000, 65536, can_limit_ipc)
    assert find_remap(describe(KernelVersion=kernel), is_local=False) == expected


@pytest.mark.parametrize("root", ["", "/var/lib/docker", "/d/1.2/overlay2", "/d/x.1"])
def test_an_engine_that_does_not_say_to_which_ids(root: str) -> None:
    with pytest.raises(SandboxError, match="does not say to which"):
        find_remap(describe(DockerRootDir=root), is_local=False)


@pytest.mark.parametrize(
    ("subuid", "subgid", "size"),
    [
        ("dockremap:231072:65536\n", "dockremap:300000:65536\n", 65536),
        ("a:100000:9\ndockremap:231072:200000\n", "dockremap:300000:100000\n", 100000),
        ("dockremap:231072:8192\n", "dockremap:300000:65536\n", 8192),
        ("nonsense\ndockremap:231072:many\n::\n\n", "", 65536),  # nothing is known: what is usual
        (None, None, 65536),
    ],
)
def test_the_length_of_the_range(tmp_path: Path, subuid: str | None, subgid: str | None, size: int) -> None:
    for name, text in (("subuid", subuid), ("subgid", subgid)):
        if text is not None:
            (tmp_path / name).write_text(text)
    assert read_remap("/d/231072.300000", kernel="6.9", subids=tmp_path).size == size


def test_a_range_that_is_too_small_is_refused(tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("dockremap:231072:1000\n")
    with pytest.raises(SandboxError) as caught:
        read_remap("/d/231072.300000", kernel="6.9", subids=tmp_path)
    assert caught.value.message == "the engine maps user ids to a range of 1000, which is too small"


@pytest.mark.parametrize("size", [4096, 65536, 1 << 20])
def test_a_box_is_neither_root_nor_nobody_nor_outside_the_range(size: int) -> None:
    ids = Remap(100000, 100000, size).box_ids
    assert min(ids) >= 2048
    assert max(ids) < min(size, 65534)
    assert len(ids) >= 2000


@needs_root
def test_a_box_has_one_id_inside_and_another_outside(tmp_path: Path) -> None:
    remap = Remap(1_900_000_000, 1_950_000_000)
    first, second = (choose_owner(tmp_path.stat(), None, remap) for _ in range(2))
    try:
        for owner in (first, second):
            assert owner.uid == owner.gid
            assert owner.uid in remap.box_ids
            assert (owner.host_uid, owner.host_gid) == (1_900_000_000 + owner.uid, 1_950_000_000 + owner.uid)
            assert (owner.users, owner.groups) == (IdMap(0, owner.host_uid), IdMap(0, owner.host_gid))
        assert first.host_uid != second.host_uid
    finally:
        first.release()
        second.release()


@needs_root
def test_a_second_box_over_the_same_changes_has_the_same_id(tmp_path: Path) -> None:
    remap = Remap(1_900_000_000, 1_950_000_000)
    first = choose_owner(tmp_path.stat(), None, remap)
    with pytest.raises(SandboxError, match="still in use"):
        choose_owner(tmp_path.stat(), first.host_uid, remap)
    first.release()
    second = choose_owner(tmp_path.stat(), first.host_uid, remap)
    second.release()
    assert second.host_uid == first.host_uid


@needs_root
def test_changes_of_an_id_that_the_engine_does_not_have_are_not_lost_silently(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="belong to user id"):
        choose_owner(tmp_path.stat(), FIRST_BOX_ID, Remap(1_900_000_000, 1_950_000_000))


@needs_root
def test_an_engine_that_maps_nothing_has_one_id_for_both(tmp_path: Path) -> None:
    owner = choose_owner(tmp_path.stat(), None)
    owner.release()
    assert (owner.uid, owner.gid) == (owner.host_uid, owner.host_gid)
    assert FIRST_BOX_ID <= owner.uid < FIRST_BOX_ID + 65536
