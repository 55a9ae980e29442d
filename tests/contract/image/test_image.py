"""The image as the engine has it: quick to find again, hard to break out of, right inside."""

from __future__ import annotations

import time
import uuid

import docker
import pytest

from corral.doctor import Status, run_checks
from corral.errors import EngineUnavailable, ImageError
from corral.sandbox.image import build_image, expected_tag, find_image

pytestmark = pytest.mark.docker


def look(engine: docker.DockerClient, image: str, script: str) -> str:
    """What a script in a plain container of the image prints."""
    output: bytes = engine.containers.run(
        image, ["-c", script], entrypoint="/bin/sh", user="0:0", network_mode="none", read_only=True, remove=True,
        tmpfs={"/tmp": "", "/run": ""},
    )  # fmt: skip
    return output.decode()


def test_an_unchanged_build_is_found_within_a_second(sandbox_image: str) -> None:
    lines: list[str] = []
    started = time.monotonic()
    report = build_image(on_progress=lines.append)
    assert time.monotonic() - started < 1
    assert (report.tag, report.built, report.current, lines) == (sandbox_image, False, True, [])


def test_the_image_is_found_by_its_name_and_known_as_current(sandbox_image: str) -> None:
    found = find_image()
    assert found is not None
    assert (found.current, sandbox_image) == (True, expected_tag())
    assert find_image(f"corral-sandbox:{uuid.uuid4().hex}") is None


def test_the_toolbox_is_roots_read_only_and_compiled(docker_engine: docker.DockerClient, sandbox_image: str) -> None:
    problems = look(
        docker_engine,
        sandbox_image,
        "cd /opt/corral/toolbox && find . ! -user 0 -o ! -group 0 -o -perm /0222 ! -type l;"
        "find . -name '*.py' | while read f; do d=$(dirname $f)/__pycache__; b=$(basename $f .py);"
        "ls $d/$b.*.pyc >/dev/null 2>&1 || echo uncompiled $f; done",
    )
    assert problems == ""


def test_there_is_no_set_id_program(docker_engine: docker.DockerClient, sandbox_image: str) -> None:
    assert look(docker_engine, sandbox_image, "find / -xdev -type f -perm /6000") == ""


def test_users_and_groups_come_from_run(docker_engine: docker.DockerClient, sandbox_image: str) -> None:
    links = look(docker_engine, sandbox_image, "readlink /etc/passwd /etc/group")
    assert links.split() == ["/run/corral/passwd", "/run/corral/group"]


def test_the_usual_tools_are_there(docker_engine: docker.DockerClient, sandbox_image: str) -> None:
    programs = "python3 pip3 pytest-3 git bash rg gcc g++ make patch diff pkg-config less file unzip xz curl ps"
    script = (
        f"for p in {programs}; do command -v $p >/dev/null || echo $p; done; python3 -c 'import venv, json, ctypes'"
    )
    assert look(docker_engine, sandbox_image, script) == ""


def test_a_base_that_does_not_exist_is_one_line_with_a_hint(docker_engine: docker.DockerClient) -> None:
    with pytest.raises(ImageError, match="no base image 'corral-no-such-base:1'") as caught:
        build_image(base="corral-no-such-base:1")
    assert caught.value.hint


def test_a_base_that_cannot_host_the_toolbox_says_so(docker_engine: docker.DockerClient) -> None:
    name = f"corral-empty-{uuid.uuid4().hex[:12]}"
    docker_engine.api.import_image_from_data(_empty_tar(), repository=name, tag="1")
    try:
        with pytest.raises(ImageError, match="the image build failed"):
            build_image(base=f"{name}:1")
        assert find_image(expected_tag(base=f"{name}:1")) is None
    finally:
        base = docker_engine.api.inspect_image(f"{name}:1")["Id"]  # type: ignore[no-untyped-call]
        for layer in docker_engine.api.images(filters={"dangling": True}):
            if layer["ParentId"] == base:
                docker_engine.api.remove_image(layer["Id"])
        docker_engine.api.remove_image(f"{name}:1")


def test_no_engine_is_one_error() -> None:
    with pytest.raises(EngineUnavailable) as caught:
        build_image(engine_url="unix:///nonexistent/socket")
    assert caught.value.hint


def test_the_doctor_is_content_with_engine_and_image(sandbox_image: str) -> None:
    checks = {check.name: check for check in run_checks()}
    assert [checks[name].status for name in ("engine", "image", "seccomp", "runtime")] == [Status.OK] * 4


def _empty_tar() -> bytes:
    return b"\0" * 10_240
