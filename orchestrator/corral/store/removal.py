"""Removing a tree that a box wrote: any depth, any modes, never through a link.

A directory is emptied by moving its subdirectories up beside it first, so two descriptors do however deep it goes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from corral.errors import RemovalBlocked

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a directory and all below it; fine when it is gone. Raises RemovalBlocked where we may not."""
    try:
        parent = os.open(path.parent, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        top = _open(parent, path.name)
        if top is None:
            return
        try:
            os.fchmod(top, 0o700)
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path.name, dir_fd=parent)
    except PermissionError as error:
        raise RemovalBlocked(
            f"{str(path)!r} holds files of another user",
            hint="they were made by the engine; root may remove them",
            path=path,
        ) from error
    finally:
        os.close(parent)


def _empty(top: int) -> None:
    serial = 0
    while True:
        names = os.listdir(top)
        if not names:
            return
        for name in names:
            if _remove_plain(top, name):
                continue
            serial = _lift_children(top, name, serial)
            os.rmdir(name, dir_fd=top)


def _lift_children(top: int, name: str, serial: int) -> int:
    """Empty the directory `name`: its files go, its subdirectories move up into `top` under names of ours."""
    os.chmod(name, 0o700, dir_fd=top)
    directory = _open(top, name)
    if directory is None:
        return serial
    try:
        for child in os.listdir(directory):
            if _remove_plain(directory, child):
                continue
            os.chmod(child, 0o700, dir_fd=directory)  # moving a directory rewrites its own `..`
            serial = _move_up(directory, child, top, serial)
    finally:
        os.close(directory)
    return serial


def _move_up(directory: int, child: str, top: int, serial: int) -> int:
    while True:
        serial += 1
        name = f".corral-gone-{os.getpid()}-{serial}"
        try:
            os.stat(name, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(child, name, src_dir_fd=directory, dst_dir_fd=top)
            return serial


def _remove_plain(directory: int, name: str) -> bool:
    """Remove anything but a directory, or an empty one. False: a directory with something in it."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=directory)
        return True
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError:
        return False
    return True


def _open(parent: int, name: str) -> int | None:
    """A directory, opened; one that its mode closes is opened to us first."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        return None
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)
