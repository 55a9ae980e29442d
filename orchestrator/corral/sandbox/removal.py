"""The second container shape: trusted, nothing untrusted in it, gone at once. It removes what a box's mount left as
root in a run's own directory, which an ordinary user may not.
"""

from __future__ import annotations

import os
from pathlib import Path

from corral.errors import SandboxError
from corral.sandbox.container import choose_name, load_seccomp_profile
from corral.sandbox.engine import Engine
from corral.sandbox.labels import labels
from corral.sandbox.spec import MIB, SANDBOX_IMAGE

_WAIT_S = 60.0
_PLACE = "/run-directory"


async def remove_as_root(engine: Engine, path: Path, *, image: str = SANDBOX_IMAGE) -> None:
    """Remove the directory `path`, which must lie in a run's directory of ours. Raises SandboxError."""
    # SECURITY: never below a directory that somebody else chose or could swap (test_refuses_what_is_not_ours).
    if path.parent.lstat().st_uid != os.geteuid() or path.parent.resolve() != path.parent:
        raise SandboxError(f"{str(path)!r} does not lie in a plain directory of ours and will not be removed")
    container = await engine.create_container(_build_config(path, image), choose_name())
    try:
        await engine.start_container(container)
        await engine.call("wait for the removal", lambda client: client.wait(container), _WAIT_S)
    finally:
        await engine.remove_container(container)
    if path.exists():
        raise SandboxError(
            f"{str(path)!r} could not be removed, not even by the engine", hint="an administrator can remove it"
        )


def _build_config(path: Path, image: str) -> dict[str, object]:
    return {
        "Image": image,
        "User": "0:0",
        "Entrypoint": ["/bin/rm"],
        # `rm` follows no link; the container sees nothing but this one directory.
        "Cmd": ["-rf", "--one-file-system", "--", f"{_PLACE}/{path.name}"],
        "WorkingDir": "/",
        "NetworkDisabled": True,
        "Labels": labels(path.parent.parent.name, "removal"),
        "HostConfig": {
            "NetworkMode": "none",
            "UsernsMode": "host",  # the files are this host's root's; mapped ids could not touch them
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "CapAdd": ["DAC_OVERRIDE", "FOWNER"],
            "SecurityOpt": ["no-new-privileges", f"seccomp={load_seccomp_profile()}"],
            "LogConfig": {"Type": "none", "Config": {}},
            "Memory": 128 * MIB,
            "MemorySwap": 128 * MIB,
            "PidsLimit": 16,
            "IpcMode": "none",
            "Mounts": [{"Type": "bind", "Source": str(path.parent), "Target": _PLACE}],
        },
    }
