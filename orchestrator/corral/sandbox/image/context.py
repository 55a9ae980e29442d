"""What goes into the sandbox image: the files of the build context, and the name their content has.

Pure but for reading the shipped files. The same files give the same bytes and the same tag on every machine, so a
tag that exists is an image that is current.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from corral.resource import find_data

IMAGE_NAME = "corral-sandbox"
BASE_NAME = "corral-base"
_BUILD_FILES = ("Dockerfile", "packages.txt", "install.sh")
_SECCOMP_FILES = ("check.py", "debug.json", "default.json")
_TOOLBOX_SUFFIXES = (".py", ".sh")


@dataclass(frozen=True)
class BuildContext:
    """The image's ingredients, by their path inside the context."""

    files: tuple[tuple[str, bytes], ...]

    def content_hash(self, *extra: str) -> str:
        """Twelve hex digits over every name and byte, and over `extra`."""
        digest = hashlib.sha256()
        for part in (*(item for name, body in self.files for item in (name.encode(), body)), *map(str.encode, extra)):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()[:12]

    def packages(self) -> tuple[str, ...]:
        """The distribution packages the image has."""
        lines = dict(self.files)["packages.txt"].decode().splitlines()
        return tuple(word for line in lines if (word := line.split("#")[0].strip()))

    def archive(self) -> bytes:
        """The context as the tar stream the engine takes; no clock, owner or mode of this machine is in it."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, body in self.files:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(body), 0o644
                tar.addfile(entry, io.BytesIO(body))
        return buffer.getvalue()


def load_context() -> BuildContext:
    """Reads the sandbox-image folder, profiles and toolbox that ship. Raises FileNotFoundError when one is missing."""
    image, toolbox, policies = find_data("sandbox-image"), find_data("toolbox"), find_data("policies")
    files = [(name, (image / name).read_bytes()) for name in _BUILD_FILES]
    files += [(f"seccomp/{name}", (policies / "seccomp" / name).read_bytes()) for name in _SECCOMP_FILES]
    files += [
        (f"toolbox/{path.relative_to(toolbox).as_posix()}", path.read_bytes()) for path in _toolbox_files(toolbox)
    ]
    return BuildContext(tuple(files))


def _toolbox_files(toolbox: Path) -> list[Path]:
    found = (path for path in toolbox.rglob("*") if path.suffix in _TOOLBOX_SUFFIXES and path.is_file())
    return sorted(path for path in found if "__pycache__" not in path.parts)
