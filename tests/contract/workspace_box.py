"""A plain container over a prepared workspace, without the toolbox: what the mount alone does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from corral.sandbox.labels import labels
from corral.sandbox.spec import SandboxSpec
from corral.sandbox.workspace import PreparedWorkspace
from corral_protocol.message import HelloReply, RootEntry

IMAGE = os.environ.get("CORRAL_TEST_IMAGE", "corral-sandbox")

_LIST_ROOT = """
import json, os, sys
sys.path[:0] = ["/opt/corral/toolbox"]
from corral_protocol.name import encode_name
out = []
for name in sorted(os.listdir(b"/workspace"))[:256]:
    s = os.lstat(os.path.join(b"/workspace", name))
    out.append([encode_name(name), s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns])
print(json.dumps([open("/proc/sys/kernel/random/boot_id").read().strip(), out]))
"""


@dataclass
class PlainBox:
    """Runs commands as the box's user by `docker exec`."""

    client: docker.APIClient
    id: str
    prepared: PreparedWorkspace

    def run(self, *argv: str, check: bool = True) -> bytes:
        code, output = self.attempt(*argv)
        assert code == 0 or not check, output
        return output

    def attempt(self, *argv: str) -> tuple[int, bytes]:
        user = f"{self.prepared.uid}:{self.prepared.gid}"
        made = self.client.exec_create(self.id, list(argv), user=user, workdir="/workspace")
        output: bytes = self.client.exec_start(made["Id"])
        return int(self.client.exec_inspect(made["Id"])["ExitCode"]), output

    def shell(self, command: str) -> str:
        return self.run("sh", "-c", command).decode("utf-8", "surrogateescape")

    def hello(self) -> HelloReply:
        """What a toolbox would report."""
        boot_id, root = json.loads(self.run("python3", "-c", _LIST_ROOT))
        return HelloReply(1, "0", boot_id, "3", "/bin/sh", [RootEntry(*entry) for entry in root])

    def volume(self) -> str:
        mounts: list[dict[str, Any]] = self.client.inspect_container(self.id)["Mounts"]
        return next(str(mount["Name"]) for mount in mounts if mount["Destination"] == "/workspace")


@contextmanager
def open_box(prepared: PreparedWorkspace) -> Iterator[PlainBox]:
    client = docker.from_env(timeout=60).api
    host = client.create_host_config(network_mode="none", cap_drop=["ALL"], security_opt=["no-new-privileges"])
    host["Mounts"] = [prepared.mount]
    made = client.create_container(
        IMAGE, entrypoint=["sleep"], command=["120"], user="0:0", host_config=host, labels=labels("test", "box")
    )
    box = PlainBox(client, made["Id"], prepared)
    volume = ""
    try:
        client.start(box.id)
        volume = box.volume()
        yield box
    finally:
        client.remove_container(box.id, force=True, v=True)
        left = [v["Name"] for v in client.volumes()["Volumes"] or [] if v["Name"] == volume]
        client.close()
        assert left == []


def make_spec(workspace: Path, run_dir: Path, **changes: Any) -> SandboxSpec:
    run_dir.mkdir(mode=0o700, exist_ok=True)
    return SandboxSpec(workspace=workspace, run_dir=run_dir, run_id="test", **changes)


def require_engine() -> None:
    """Skip, saying why, where no engine or no image is."""
    try:
        client = docker.from_env(timeout=10).api
        client.inspect_image(IMAGE)
    except docker.errors.ImageNotFound:
        pytest.skip(f"image {IMAGE} is missing: corral image build")
    except docker.errors.DockerException as error:
        pytest.skip(f"no engine answers: {error}")
    else:
        client.close()
