"""Builds what an overlay leaves behind, by hand: whiteouts and marks need no mount and no root."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.patch import ChangeSet, build_patch, collect_overlay
from corral.schema.patch import Patch, Reason
from corral_protocol.name import decode_name


@dataclass(frozen=True)
class Box:
    """An original and the upper directory of a box that ran on it."""

    base: Path

    @property
    def workspace(self) -> Path:
        return self.base / "workspace"

    @property
    def upper(self) -> Path:
        return self.base / "upper"

    @property
    def patch_file(self) -> Path:
        return self.base / "patch.diff"

    def start(self) -> int:
        """The time from which on the box runs; what was written before is older."""
        time.sleep(0.012)  # one tick of the file system's clock
        return time.clock_gettime_ns(_COARSE)

    def collect(self, started_ns: int = 1 << 62, **options: Any) -> ChangeSet:
        return collect_overlay(self.workspace, self.upper, started_ns=started_ns, **options)

    def export(self, started_ns: int = 1 << 62, **options: Any) -> Patch:
        return build_patch(self.collect(started_ns, **options), self.patch_file)


_COARSE = 5  # CLOCK_REALTIME_COARSE: the clock that stamps files


def make_box(base: Path) -> Box:
    box = Box(base)
    box.workspace.mkdir()
    box.upper.mkdir()
    return box


def put(root: Path, path: str | bytes, content: bytes = b"", mode: int = 0o644) -> None:
    place = Path(os.fsdecode(os.path.join(os.fsencode(root), os.fsencode(path))))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.write_bytes(content)
    place.chmod(mode)


def whiteout(upper: Path, path: str) -> None:
    (upper / path).parent.mkdir(parents=True, exist_ok=True)
    os.mknod(upper / path, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def make_opaque(upper: Path, path: str) -> None:
    (upper / path).mkdir(parents=True, exist_ok=True)
    os.setxattr(upper / path, "user.overlay.opaque", b"y")


def changed(patch: Patch) -> dict[bytes, str]:
    """Path and action of each file."""
    return {decode_name(file.path): file.action.value for file in patch.files}


def listed(result: Patch | ChangeSet) -> dict[bytes, Reason]:
    return {decode_name(one.path): one.reason for one in result.not_exported}
