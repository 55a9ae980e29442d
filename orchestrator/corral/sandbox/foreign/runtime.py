"""The runtime: toolbox and Python for images without ours, in a volume made once per version of the sandbox image.

The volume is named by the image it is filled from, so its content never changes, and it is found without a question:
a container that is to have it names it. Where the engine does not know it, it makes an empty one, the start fails for
want of a toolbox, and the volume is filled; what fills it publishes all or nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from corral.errors import SandboxError
from corral.sandbox.container import load_seccomp_profile
from corral.sandbox.engine import Engine, NameTaken, ObjectGone, run_in_thread
from corral.sandbox.labels import labels
from corral.sandbox.passing import open_container
from corral.sandbox.spec import MIB, SANDBOX_IMAGE
from corral.schema.visible import visible

LABEL = "corral.runtime"
"""On the volume, with the id of the image it is filled from. Not the label of a run's objects: nobody owns it."""
PLACE = "/opt/corral"
"""Where the toolbox is in every box."""
_RUNTIME = f"{PLACE}/runtime"
# --inhibit-cache: the image's list of its libraries is none of ours.
COMMAND = (
    f"{_RUNTIME}/ld.so", "--inhibit-cache", "--library-path", f"{_RUNTIME}/lib",
    f"{_RUNTIME}/bin/python3", "-I", "-S", f"{PLACE}/toolbox",
)  # fmt: skip
_FILL_S = 120.0
_TARGET = "/volume"


def name_runtime(sandbox_id: str) -> str:
    return f"corral-runtime-{sandbox_id.partition(':')[2][:12]}"


def describe_runtime(sandbox_id: str) -> dict[str, Any]:
    """The entry of HostConfig.Mounts."""
    return {
        "Type": "volume",
        "Source": name_runtime(sandbox_id),
        "Target": PLACE,
        # SECURITY: read-only, or one box could change the toolbox of the next; and never filled from the image's own
        # directory of that name (test_an_image_cannot_bring_its_own_runtime).
        "ReadOnly": True,
        "VolumeOptions": {"NoCopy": True, "Labels": {LABEL: sandbox_id}},
    }


async def fill_runtime(engine: Engine, sandbox_id: str, run_id: str) -> None:
    """Fill the volume from the sandbox image; several at once do no harm. Raises SandboxError."""
    async with open_container(engine, _build_config(sandbox_id, labels(run_id, "runtime"))) as container:
        await engine.start_container(container)
        reply = await engine.call("make the runtime", lambda client: client.wait(container), _FILL_S)
        if reply.get("StatusCode") != 0:
            said = await engine.call("read a log", lambda client: client.logs(container, tail=5))
            raise SandboxError(
                f"no runtime could be made for images of others: {visible(said.decode(errors='replace'), limit=500)}",
                hint="build the sandbox image anew: corral image build --rebuild",
            )
    with contextlib.suppress(SandboxError):  # room, not correctness
        await run_in_thread(lambda: _remove_old_runtimes(engine), name="corral-runtime")


def _build_config(sandbox_id: str, marks: Mapping[str, str]) -> dict[str, Any]:
    """A trusted container of our own image: nothing of a run, of the user or of another image is in it."""
    mount = describe_runtime(sandbox_id)
    return {
        "Image": sandbox_id,
        "User": "0:0",
        "Entrypoint": ["/usr/bin/python3", "-I", "-S", f"{PLACE}/toolbox/corral_runtime"],
        "Cmd": [_TARGET],
        "WorkingDir": "/",
        "NetworkDisabled": True,
        "Labels": dict(marks),
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", f"seccomp={load_seccomp_profile()}"],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            "Memory": 512 * MIB,
            "MemorySwap": 512 * MIB,
            "PidsLimit": 16,
            "IpcMode": "none",
            "Mounts": [{**mount, "Target": _TARGET, "ReadOnly": False}],
        },
    }


def find_old_runtimes(engine: Engine) -> list[str]:
    """Runtimes of images that the engine has no more under our name: nothing will ask for them again. Blocks."""
    images = engine.ask("list images", lambda client: client.images(SANDBOX_IMAGE))
    kept = {str(image["Id"]) for image in images}
    mark = {"label": LABEL}
    volumes = engine.ask("list volumes", lambda client: client.volumes(filters=mark)["Volumes"] or [])
    return sorted(one["Name"] for one in volumes if (one.get("Labels") or {}).get(LABEL) not in kept)


def remove_runtime(engine: Engine, name: str) -> bool:
    """Whether it is gone by this; one that a box is using stays. Blocks."""
    try:
        engine.ask("remove a volume", lambda client: client.remove_volume(name))
    except (ObjectGone, NameTaken):
        return False
    return True


def _remove_old_runtimes(engine: Engine) -> None:
    for name in find_old_runtimes(engine):
        remove_runtime(engine, name)
