"""Removing what the engine made as root."""

from __future__ import annotations

import os
from pathlib import Path

import docker
import pytest

from corral.errors import SandboxError
from corral.sandbox.engine import Engine
from corral.sandbox.removal import remove_as_root

pytestmark = pytest.mark.docker


async def test_removes_what_others_own_and_follows_no_link(
    tmp_path: Path, image: str, docker_engine: docker.DockerClient
) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "work/deep").mkdir(parents=True)
    (work / "index").mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (work / "link").symlink_to(outside)
    (work / "work/deep/#1").write_text("x")
    if os.geteuid() == 0:
        os.chown(work / "work/deep", 12345, 12345)
    (work / "work/deep").chmod(0)
    await remove_as_root(Engine(), work, image=image)
    assert not work.exists()
    assert (outside / "kept").read_text() == "kept"
    assert docker_engine.api.containers(all=True, filters={"label": "corral.role=removal"}) == []


async def test_refuses_what_is_not_ours(tmp_path: Path, image: str) -> None:
    (tmp_path / "real/work").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(SandboxError):
        await remove_as_root(Engine(), tmp_path / "link/work", image=image)
    if os.geteuid() == 0:
        os.chown(tmp_path / "real", 12345, 12345)
        with pytest.raises(SandboxError):
            await remove_as_root(Engine(), tmp_path / "real/work", image=image)
    assert (tmp_path / "real/work").is_dir()
