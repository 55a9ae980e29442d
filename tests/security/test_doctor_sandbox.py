"""`corral doctor --sandbox` on real containers: ours passes, a plain one does not, and nothing stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import docker
import pytest

from corral.doctor import Status, inside
from corral.doctor.box import InsideFacts, judge_engine_view, judge_inside
from corral.sandbox.base import BoxInfo
from corral.sandbox.container import load_seccomp_profile
from corral.sandbox.spec import WorkspaceMode

pytestmark = pytest.mark.docker


def test_a_box_of_ours_passes_and_leaves_nothing(
    home: Path, sandbox_image: str, docker_engine: docker.DockerClient
) -> None:
    def look() -> set[str]:
        containers = docker_engine.api.containers(all=True, filters={"label": "corral=1"})
        mine = [c["Id"] for c in containers if c["Labels"].get("corral.owner.pid") == str(done.pid)]
        return {*mine, *(str(path.relative_to(home)) for path in home.rglob("*") if not path.is_dir())}

    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli", "doctor", "--sandbox", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"HOME": str(home)},
    ) as done:
        out, err = done.communicate(timeout=120)
    told = json.loads(out)
    failed = {check["name"]: check["detail"] for check in told["checks"] if check["status"] == "fail"}
    assert (done.returncode, failed, err) == (0, {}, b"")
    assert len(told["checks"]) >= 30
    assert told["score"] == f"{sum(c['status'] == 'ok' for c in told['checks'])} of {len(told['checks'])}"
    assert look() == set()


def test_a_plain_container_does_not_pass(sandbox_image: str, docker_engine: docker.DockerClient) -> None:
    container = docker_engine.containers.run(
        sandbox_image,
        entrypoint=["/usr/bin/python3", "-S", "-c", "import signal; signal.pause()"],
        detach=True,
        network_mode="none",
        volumes=["/etc/hostname:/data/hostname:ro"],
    )
    try:
        source = Path(inside.__file__).read_text()
        _, text = container.exec_run(["python3", "-I", "-S", "-c", source])
        seen = docker_engine.api.inspect_container(container.id)
    finally:
        container.remove(force=True)
    info = BoxInfo("id", "run", "image", "sha256:1", "runc", WorkspaceMode.COPY, "", "/workspace", 7, 7)
    facts = InsideFacts.model_validate_json(text)
    profile = load_seccomp_profile()
    checks = [
        *judge_inside(facts, info, host_name="", debug=False),
        *judge_engine_view(seen, seccomp=profile, default_profile=profile),
    ]
    failed = {check.name for check in checks if check.status is Status.FAIL}
    assert failed >= {
        *("user", "capabilities", "new privileges", "system calls", "sockets", "system files", "kernel files"),
        *("toolbox", "limits", "first process", "no-new-privileges", "profile", "root", "ceilings", "mounts"),
        *("removal", "log"),
    }
