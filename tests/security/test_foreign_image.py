"""What an image that somebody else made tries on the toolbox that is lent to it."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from tests.contract.boxes import make_spec, output
from tests.support.foreign_image import ForeignImage, build_program, busybox_image, lend_engine

from corral.errors import ImageError
from corral.sandbox.container import build_config
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.foreign.runtime import COMMAND, describe_runtime
from corral.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.docker

EVIL = '#include <unistd.h>\n__attribute__((constructor)) void evil(void) { write(2, "EVIL\\n", 5); _exit(99); }'


@pytest.fixture
def load(docker_engine: docker.DockerClient, sandbox_image: str) -> Iterator[Callable[[ForeignImage], str]]:
    with lend_engine(docker_engine) as put:
        yield put


def open_box(tmp_path: Path, image: str, **changes: object) -> DockerSandbox:
    (tmp_path / "workspace").mkdir(exist_ok=True)
    return DockerSandbox(make_spec(tmp_path / "workspace", tmp_path, image, **changes))


def ask_runtime(client: docker.DockerClient, sandbox_image: str, image: str, script: str) -> str:
    """What the lent Python says in a container of that image."""
    sandbox_id = client.api.inspect_image(sandbox_image)["Id"]  # type: ignore[no-untyped-call]
    mount = describe_runtime(sandbox_id)
    config = {
        "Image": image,
        "Entrypoint": [*COMMAND[:-1], "-c", script],
        "Env": build_config(SandboxSpec(Path("/w"), Path("/r"), "x"), mount={}, marks={}, seccomp="")["Env"],
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
    }
    container = client.api.create_container_from_config(config, f"corral-test-{secrets.token_hex(4)}")["Id"]  # type: ignore[no-untyped-call]
    try:
        client.api.start(container)
        client.api.wait(container)
        return client.api.logs(container).decode()
    finally:
        client.api.remove_container(container, force=True)


async def test_an_images_preload_list_does_not_reach_the_toolbox(
    tmp_path: Path, load: Callable[[ForeignImage], str], docker_engine: docker.DockerClient, sandbox_image: str
) -> None:
    image = busybox_image()
    evil = build_program(docker_engine, sandbox_image, EVIL, "-shared", "-fPIC", "-nostartfiles")
    image.files |= {"evil.so": (evil, 0o755), "etc/ld.so.preload": (b"/evil.so\n", 0o644)}
    async with open_box(tmp_path, load(image)) as box:
        assert output((await box.shell("echo fine")).stdout) == b"fine\n"


async def test_an_images_locale_does_not_reach_the_toolbox(
    tmp_path: Path, load: Callable[[ForeignImage], str], docker_engine: docker.DockerClient, sandbox_image: str
) -> None:
    """Every file that the lent Python has mapped is lent, too, whatever the image has at the well-known places."""
    archive = docker_engine.containers.run(
        sandbox_image, entrypoint=["base64", "/usr/lib/locale/locale-archive"], network_mode="none", remove=True
    )
    image = busybox_image()
    image.files |= {
        "usr/lib/locale/locale-archive": (base64.b64decode(archive), 0o644),
        "usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache": (b"\0" * 64, 0o644),
        "etc/ld.so.cache": (b"x", 0o644),
    }
    name = load(image)
    async with open_box(tmp_path, name):  # the runtime is made
        pass
    script = (
        "import ctypes, hashlib, json, socket\n"
        "names = {line.split(maxsplit=5)[5].strip() for line in open('/proc/self/maps') if ' /' in line}\n"
        "print(json.dumps(sorted(name for name in names if not name.startswith('/opt/corral/runtime/'))))"
    )
    assert json.loads(ask_runtime(docker_engine, sandbox_image, name, script)) == []


def test_an_image_cannot_bring_its_own_runtime(
    load: Callable[[ForeignImage], str], docker_engine: docker.DockerClient, sandbox_image: str
) -> None:
    """The engine fills a new volume from the image's directory of that name, unless it is told not to."""
    image = busybox_image()
    image.files["opt/corral/runtime/ld.so"] = (b"evil", 0o755)
    mount = describe_runtime(f"sha256:{secrets.token_hex(32)}")
    config = {
        "Image": load(image),
        "Entrypoint": ["/bin/true"],
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
    }
    container = docker_engine.api.create_container_from_config(config, f"corral-test-{secrets.token_hex(4)}")["Id"]  # type: ignore[no-untyped-call]
    try:
        found = docker_engine.containers.run(
            sandbox_image,
            entrypoint=["find", "/volume", "-mindepth", "1"],
            network_mode="none",
            mounts=[docker.types.Mount("/volume", mount["Source"])],
            remove=True,
        )
        assert found == b""
    finally:
        docker_engine.api.remove_container(container, force=True)
        docker_engine.api.remove_volume(mount["Source"])


@pytest.mark.parametrize(
    ("links", "mount_point", "fault"),
    [
        ({"tmp": "/opt/corral/runtime/licences"}, "/workspace", "a link of this image leads into /opt/corral"),
        ({"src/lib": "/opt/corral/runtime"}, "/src/lib/licences", "a link of this image leads into /opt/corral"),
        ({"workspace": "/opt"}, "/workspace", "/opt is not root's in this image"),
    ],
    ids=["a directory of the box", "the workspace", "the workspace around it"],
)
async def test_an_image_cannot_lead_the_boxs_directories_over_the_toolbox(
    tmp_path: Path, load: Callable[[ForeignImage], str], links: dict[str, str], mount_point: str, fault: str
) -> None:
    """The runtime follows the image's links when it mounts; some of the toolbox's modules are loaded late."""
    image = busybox_image()
    image.files["opt/corral/runtime/licences/x"] = (b"", 0o644)
    image.links |= links
    with pytest.raises(ImageError) as caught:
        async with open_box(tmp_path, load(image), mount_point=mount_point):
            pass
    assert caught.value.message == f"the image's toolbox refuses us: {fault}"


async def test_the_lent_toolbox_cannot_be_changed(tmp_path: Path, load: Callable[[ForeignImage], str]) -> None:
    async with open_box(tmp_path, load(busybox_image())) as box:
        result = await box.shell(
            "for f in /opt/corral/runtime/ld.so /opt/corral/toolbox/__main__.py /opt/corral/new /etc/passwd; do\n"
            "echo x >> $f && echo written; mv $f /tmp/ && echo moved; done; grep ' /opt/corral ' /proc/mounts"
        )
        (mount,) = output(result.stdout).decode().splitlines()
        assert mount.split()[3].split(",")[0] == "ro"


def test_every_module_of_the_toolbox_loads(
    load: Callable[[ForeignImage], str], docker_engine: docker.DockerClient, sandbox_image: str
) -> None:
    """Also those that only a rare call needs: the lent library is trimmed."""
    script = (
        "import sys, pkgutil, importlib; sys.path.insert(0, '/opt/corral/toolbox')\n"
        "import corral_toolbox, corral_protocol\n"
        "for package in (corral_toolbox, corral_protocol):\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        "import hashlib; print(hashlib.sha256.__module__, 'corral_runtime' in sys.modules)"
    )
    assert ask_runtime(docker_engine, sandbox_image, load(busybox_image()), script) == "_hashlib False\n"
