"""The second, trusted container shape: removes what the engine made as root in a directory of an ordinary user.

An overlay's work directory holds entries of root, which an ordinary user cannot remove. No untrusted code ever runs in
this shape: a fixed program of our own image, one mount, no network, and only the capability to pass by file owners.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from corral.errors import SandboxError
from corral.sandbox.container import choose_name, load_seccomp_profile
from corral.sandbox.engine import Engine, remove_container
from corral.sandbox.labels import labels
from corral.sandbox.spec import MIB

_LIMIT_S = 60.0
_TARGET = "/sweep"


def sweep_directory(engine: Engine, image: str, directory: Path) -> None:
    """Empty `directory`, which must be the caller's own; it stays. Blocks. Raises SandboxError."""
    status = directory.lstat()
    # SECURITY: never a directory that somebody else chose or could swap (test_refuses_what_is_not_ours).
    if status.st_uid != os.geteuid() or not directory.is_dir() or directory.resolve() != directory:
        raise SandboxError(f"{str(directory)!r} is not a plain directory of ours and will not be emptied")
    name = choose_name()
    config = build_sweeper(image, str(directory))
    engine.ask("create the sweeper", lambda client: client.create_container_from_config(config, name))  # type: ignore[no-untyped-call]
    try:
        engine.ask("start the sweeper", lambda client: client.start(name), _LIMIT_S)
        ended = engine.ask("wait for the sweeper", lambda client: client.wait(name), _LIMIT_S)
    finally:
        engine.ask("remove the sweeper", lambda client: remove_container(client, name), _LIMIT_S)
    if ended.get("StatusCode") != 0:
        raise SandboxError(f"{str(directory)!r} could not be emptied by the engine")


def build_sweeper(image: str, directory: str) -> dict[str, Any]:
    """The body of POST /containers/create."""
    return {
        "Image": image,
        "Labels": labels("", "sweeper"),
        "Entrypoint": ["/usr/bin/find", _TARGET, "-xdev", "-mindepth", "1", "-delete"],
        "Cmd": [],
        "User": "0:0",
        "WorkingDir": "/",
        "Env": ["PATH=/usr/bin:/bin"],
        "Healthcheck": {"Test": ["NONE"]},
        "NetworkDisabled": True,
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "CapAdd": ["DAC_OVERRIDE", "FOWNER"],
            "SecurityOpt": ["no-new-privileges", f"seccomp={load_seccomp_profile()}"],
            "LogConfig": {"Type": "none", "Config": {}},
            "Memory": 128 * MIB,
            "MemorySwap": 128 * MIB,
            "PidsLimit": 16,
            "IpcMode": "none",
            "Mounts": [{"Type": "bind", "Source": directory, "Target": _TARGET}],
        },
    }
