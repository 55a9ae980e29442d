"""Where the files that ship with corral are: package data in a wheel, the repository's folders in a checkout."""

from __future__ import annotations

from pathlib import Path


def find_data(name: str) -> Path:
    """The shipped folder `name` (sandbox-image, policies, examples). Raises FileNotFoundError."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "_data" / name, package.parent.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"corral's data folder {name!r} is missing from this installation")
