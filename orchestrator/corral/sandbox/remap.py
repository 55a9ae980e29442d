"""An engine that maps user ids (`userns-remap`): which ids of this machine its containers have.

Such a container's 0 is an id that nobody has here, and no other id than those of its range exists in it. So a box has
two ids: the one it runs as, and the one its files and processes have outside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.errors import SandboxError

SUBIDS = Path("/etc")
USUAL_SIZE = 1 << 16
"""What useradd gives, and all that an image's files need."""
_MIN_SIZE = 1 << 12  # fewer are no range to give boxes ids of their own
_NOBODY = 65534  # what the kernel shows for an id that is not mapped: never a box's
_PLACE = re.compile(r"/\d+\.\d+/[^/]+/[^/]+/diff")
_ROOT_DIR = re.compile(r"/(\d{1,10})\.(\d{1,10})/?$")
_IPC_KERNEL = (6, 9)
"""Before it only the host's root may set what bounds System V objects, also those of a box's own namespace."""


@dataclass(frozen=True)
class Remap:
    """0 in a container is `first_uid` and `first_gid` here, and so on for `size` ids."""

    first_uid: int
    first_gid: int
    size: int = USUAL_SIZE
    can_limit_ipc: bool = True

    @property
    def box_ids(self) -> range:
        """What boxes run as, seen from inside: the upper half, where users of an image seldom are."""
        usable = min(self.size, USUAL_SIZE)
        return range(usable // 2, min(usable, _NOBODY))

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.can_limit_ipc:
            return ()
        return (
            "System V objects are held by the box's memory limit alone: with userns-remap their own needs Linux 6.9",
        )

    def describe(self) -> str:
        """For people."""
        return f"root of a box is user {self.first_uid} of this host (userns-remap)"


def rules_out_remap(image: Mapping[str, Any]) -> bool:
    """Whether an image's own place says that its engine maps nothing: one that does keeps all it has below a directory
    with the name of its ids. False where that is not certain: the engine must be asked."""
    data = (image.get("GraphDriver") or {}).get("Data") or {}
    place = data.get("UpperDir")
    return isinstance(place, str) and place.endswith("/diff") and _PLACE.search(place) is None


def find_remap(info: Mapping[str, Any], *, is_local: bool) -> Remap | None:
    """What the engine's description says; None where it maps nothing. Raises SandboxError for ids no box can use."""
    options = {str(option).split(",")[0] for option in info.get("SecurityOptions") or ()}
    if "name=userns" not in options:
        return None
    root, kernel = str(info.get("DockerRootDir", "")), str(info.get("KernelVersion", ""))
    return read_remap(root, kernel=kernel, subids=SUBIDS if is_local else None)


def read_remap(root_dir: str, *, kernel: str, subids: Path | None) -> Remap:
    """Of an engine that maps ids: `root_dir` is where it keeps its data, `subids` the folder with the files subuid and
    subgid of its machine, None for another machine. Raises SandboxError for ids no box can use."""
    match = _ROOT_DIR.search(root_dir)
    if match is None:
        raise SandboxError(
            "the engine maps user ids (userns-remap) and does not say to which",
            hint=f"its data directory is {root_dir!r}, which should end in their numbers",
        )
    uid, gid = int(match[1]), int(match[2])
    size = USUAL_SIZE
    if subids is not None:
        size = min(_read_size(subids / "subuid", uid), _read_size(subids / "subgid", gid))
    if size < _MIN_SIZE:
        raise SandboxError(
            f"the engine maps user ids to a range of {size}, which is too small",
            hint=f"give its user at least {_MIN_SIZE} ids in /etc/subuid and /etc/subgid; {USUAL_SIZE} are usual",
        )
    return Remap(uid, gid, size, can_limit_ipc=_read_version(kernel) >= _IPC_KERNEL)


def _read_size(path: Path, first: int) -> int:
    """The length of the range that begins at `first`."""
    try:
        rows = [line.strip().split(":") for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return USUAL_SIZE
    sizes = [int(row[2]) for row in rows if len(row) == 3 and row[1] == str(first) and row[2].isdecimal()]
    return min(sizes, default=USUAL_SIZE)


def _read_version(text: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)
