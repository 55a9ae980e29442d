"""What a demonstration stands on: a copy of an example that may be changed, and the image."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.config import Settings
from corral.resource import find_data


@contextmanager
def copied_example(name: str) -> Iterator[Path]:
    """A copy of the example's repository, the user's own in mode and owner; gone at the end, whatever the end is."""
    with tempfile.TemporaryDirectory(prefix="corral-demo-", ignore_cleanup_errors=True) as place:
        target = Path(place) / "repo"
        # copyfile: an installed wheel may belong to root and be read-only; the copy must not.
        shutil.copytree(
            find_data("examples") / name / "repo",
            target,
            copy_function=shutil.copyfile,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        yield target


def require_image(settings: Settings, on_progress: Callable[[str], None]) -> None:
    """Builds the sandbox image when it is missing or of another version. Raises ImageError, SandboxError."""
    from corral.sandbox.image import build_image, find_image  # late: start-up time

    if settings.image is not None:
        return  # the user's own image: its absence is told when the box starts
    found = find_image()
    if found is None or not found.current:
        on_progress("the sandbox image is missing or old: building it (the first time takes a minute or two)")
        build_image(on_progress=on_progress)
