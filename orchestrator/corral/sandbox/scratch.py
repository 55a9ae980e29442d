"""Temporary directories that say in their name whose they are, so that a kill -9 leaves nothing that nobody removes."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from corral.sandbox.labels import process_start_ticks, read_pid_namespace

_NAME = re.compile(r"corral-[a-z]+-(\d*)-(\d+)-(\d+)-[^-]*")


def make_scratch(purpose: str, parent: str | None = None) -> tempfile.TemporaryDirectory[str]:
    """A directory for this process, in `parent` or where temporary files go. `purpose`: one lower-case word."""
    pid = os.getpid()
    prefix = f"corral-{purpose}-{_find_namespace()}-{pid}-{process_start_ticks(pid) or 0}-"
    return tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)


def is_scratch(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def find_stale_scratch(*parents: Path) -> list[Path]:
    """Those of this user's dead processes: in `parents`, or where temporary files go."""
    found = []
    temporary = ("/tmp", os.path.realpath(tempfile.gettempdir()), "/dev/shm")
    for parent in dict.fromkeys(map(str, parents or temporary)):
        try:
            entries = list(os.scandir(parent))
        except OSError:
            continue
        found += [Path(entry.path) for entry in entries if _is_stale(entry)]
    return sorted(found)


def _is_stale(entry: os.DirEntry[str]) -> bool:
    match = _NAME.fullmatch(entry.name)
    # A number of another namespace says nothing here.
    if match is None or match[1] != _find_namespace() or process_start_ticks(int(match[2])) == int(match[3]):
        return False
    try:
        # SECURITY: the place is world-writable; only a directory of our own user is removed (test_scratch.py).
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except OSError:
        return False


def _find_namespace() -> str:
    """The number in `pid:[4026531836]`."""
    return "".join(filter(str.isdecimal, read_pid_namespace()))
