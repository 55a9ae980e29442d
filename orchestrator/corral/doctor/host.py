"""What this machine offers: kernel, disk, mounts, programs, the user's folders."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from pathlib import Path

from corral.config import Settings, config_path, load_settings
from corral.doctor.check import Check, Status
from corral.errors import ConfigError

GIB = 1 << 30
MAX_MOUNTS = 5_000
"""Each mount costs every container start on the host; from here on it is felt."""


def check_settings() -> tuple[Settings, Check]:
    """The settings to go on with, and whether the user's file is right."""
    try:
        settings, path = load_settings(), config_path()
        settings.limits.to_limits()
    except ConfigError as error:
        return Settings(), Check("settings", Status.FAIL, error.message, error.hint)
    return settings, Check("settings", Status.OK, str(path) if path.exists() else "defaults; no settings file")


def check_kernel(release: str) -> Check:
    """`release` is the engine's kernel, which need not be ours."""
    found = re.match(r"(\d+)\.(\d+)", release)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version >= (5, 19):
        return Check("kernel", Status.OK, release)
    if version >= (5, 11):
        return Check("kernel", Status.WARN, release, "from 5.19 on, root need not copy the workspace")
    return Check("kernel", Status.WARN, release, "before 5.11 the workspace is always copied in")


def check_disk(name: str, folder: Path) -> Check:
    """Room where runs, or the engine's layers, are kept; `folder` need not exist yet."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check(name, Status.WARN, f"{folder}: {error.strerror}")
    detail = f"{free / GIB:.1f} GiB free for {folder}"
    if free >= 5 * GIB:
        return Check(name, Status.OK, detail)
    return Check(name, Status.WARN if free >= GIB else Status.FAIL, detail, "make room; 5 GiB is comfortable")


def check_data_dir(folder: Path) -> Check:
    """Whether runs can be kept in `folder`, which need not exist yet and is not made here."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Check("data", Status.OK, str(folder))
    return Check(
        "data", Status.FAIL, f"{folder} cannot be written", "data_dir in the settings file names another folder"
    )


def check_mounts(table: Path = Path("/proc/self/mountinfo")) -> Check:
    try:
        count = table.read_bytes().count(b"\n")
    except OSError as error:
        return Check("mounts", Status.WARN, f"{table}: {error.strerror}")
    if count <= MAX_MOUNTS:
        return Check("mounts", Status.OK, f"{count} mounts")
    return Check("mounts", Status.WARN, f"{count} mounts slow every start", "`corral gc`, then see what mounts them")


def check_python() -> Check:
    return Check("python", Status.OK, f"{platform.python_version()} at {sys.executable}")


def check_git() -> Check:
    found = shutil.which("git")
    if found:
        return Check("git", Status.OK, found)
    return Check("git", Status.FAIL, "git is missing; patches are made with it", "as root: apt-get install git")


def check_user() -> Check:
    if os.geteuid() == 0:
        return Check("user", Status.OK, "root: every box gets a user id of its own")
    return Check("user", Status.OK, "ordinary user: the box has your user id; see SECURITY.md")
