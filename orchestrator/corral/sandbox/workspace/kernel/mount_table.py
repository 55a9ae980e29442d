"""/proc/self/mountinfo, parsed: what lies on which mount, and what is mounted inside a directory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    point: bytes
    filesystem: str  # "ext4", "overlay", "fuse.sshfs" ...
    options: tuple[bytes, ...]  # of the file system, not of the mount


@dataclass(frozen=True)
class MountTable:
    """In the kernel's order: of two mounts on one point the later one is on top."""

    mounts: tuple[Mount, ...]

    @classmethod
    def load(cls) -> MountTable:
        """The table of this process. Empty where /proc is missing."""
        try:
            return cls.parse(Path("/proc/self/mountinfo").read_bytes())
        except FileNotFoundError:
            return cls(())

    @classmethod
    def parse(cls, text: bytes) -> MountTable:
        return cls(tuple(mount for line in text.split(b"\n") if (mount := _parse_line(line)) is not None))

    def containing(self, path: bytes) -> Mount | None:
        """The mount that `path` (absolute, links resolved) lies on."""
        best: Mount | None = None
        for mount in self.mounts:
            if is_within(path, mount.point) and (best is None or len(mount.point) >= len(best.point)):
                best = mount
        return best

    def below(self, path: bytes) -> tuple[bytes, ...]:
        """Mount points strictly inside `path`, each once, sorted."""
        return tuple(sorted({m.point for m in self.mounts if m.point != path and is_within(m.point, path)}))


def is_within(path: bytes, directory: bytes) -> bool:
    """Whether `path` is `directory` or lies below it. Both absolute and normal."""
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def resolve(path: Path) -> bytes:
    """The absolute path with all links resolved, as bytes."""
    return os.path.realpath(os.fsencode(path))


def _parse_line(line: bytes) -> Mount | None:
    """One line: id, parent, device, root, point, options, optional fields, `-`, type, source, options."""
    fields = line.split(b" ")
    try:
        mark = fields.index(b"-", 6)
        point, kind, options = fields[4], fields[mark + 1], fields[mark + 3]
    except (ValueError, IndexError):
        return None
    return Mount(_unescape(point), kind.decode("ascii", "replace"), tuple(_unescape(options).split(b",")))


def _unescape(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), field)
