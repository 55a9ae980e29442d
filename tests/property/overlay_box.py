"""A stand-in for the box's file system: edits made through a really mounted overlay, in a mount namespace of their own.

The program of edits runs in a child process that mounts, locks itself into the mounted tree (random links lead
anywhere), edits, describes the merged tree and ends; the mount ends with it. The same interpreter makes the originals.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

Operation = tuple[str, ...]
"""A verb and its arguments; paths and content as latin-1 text, so that any bytes survive JSON."""


@dataclass(frozen=True)
class Seen:
    """One entry of a tree, as a test compares it."""

    kind: str
    mode: int
    content: bytes = b""


def _edit(operations: list[Operation]) -> None:
    """Run a program of edits; what fails, fails, as it would in a shell script without `set -e`."""
    root = b"/"
    for verb, *arguments in operations:
        texts = [argument.encode("latin-1") for argument in arguments]
        try:
            _VERBS[verb](root, *texts)
        except OSError:
            pass


def _write(root: bytes, path: bytes, content: bytes) -> None:
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    _put(os.path.join(root, path), os.O_CREAT | os.O_TRUNC, content)


def _append(root: bytes, path: bytes, content: bytes) -> None:
    _put(os.path.join(root, path), os.O_APPEND, content)


def _put(place: bytes, flags: int, content: bytes) -> None:
    descriptor = os.open(place, os.O_WRONLY | os.O_NONBLOCK | flags, 0o644)  # never waits for a FIFO's reader
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _remove(root: bytes, path: bytes) -> None:
    place = os.path.join(root, path)
    if os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place)
    else:
        os.unlink(place)


def _fifo(root: bytes, path: bytes) -> None:
    os.mkfifo(os.path.join(root, path))


def _move(root: bytes, source: bytes, target: bytes) -> None:
    one, other = os.path.join(root, source), os.path.join(root, target)
    try:
        os.rename(one, other)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copytree(one, other, symlinks=True)  # a directory of the original: overlay makes programs copy
        shutil.rmtree(one)


def _empty(root: bytes, path: bytes) -> None:
    """Remove what is in a directory and keep it."""
    for name in os.listdir(os.path.join(root, path)):
        _remove(root, path + b"/" + name)


def _renew(root: bytes, path: bytes, below: bytes, content: bytes) -> None:
    """Replace whatever stands there by a new directory: opaque, in the upper directory."""
    _remove(root, path)
    os.mkdir(os.path.join(root, path))
    _write(root, path + b"/" + below, content)


_VERBS = {
    "empty": _empty,
    "renew": _renew,
    "write": _write,
    "append": _append,
    "remove": _remove,
    "fifo": _fifo,
    "move": _move,
    "mkdir": lambda root, path: os.makedirs(os.path.join(root, path)),
    "symlink": lambda root, path, target: os.symlink(target, os.path.join(root, path)),
    "link": lambda root, path, source: os.link(
        os.path.join(root, source), os.path.join(root, path), follow_symlinks=False
    ),
    "chmod": lambda root, path, mode: os.chmod(os.path.join(root, path), int(mode, 8)),
    "touch": lambda root, path: os.utime(os.path.join(root, path)),
    "xattr": lambda root, path: os.setxattr(os.path.join(root, path), "user.note", b"1"),
}


def describe(root: bytes) -> dict[bytes, Seen]:
    """Everything in a tree, without following links."""
    found = dict[bytes, Seen]()
    for directory, folders, files in os.walk(root):
        for name in folders + files:
            place = os.path.join(directory, name)
            info = os.lstat(place)
            path, mode = os.path.relpath(place, root), stat.S_IMODE(info.st_mode)
            if stat.S_ISLNK(info.st_mode):
                found[path] = Seen("symlink", 0o777, os.readlink(place))
            elif stat.S_ISDIR(info.st_mode):
                found[path] = Seen("dir", mode)
            elif stat.S_ISREG(info.st_mode):
                with open(place, "rb") as stream:
                    found[path] = Seen("file", mode, stream.read())
            else:
                found[path] = Seen("special", mode)
    return found


def run_in_overlay(base: Path, lower: Path, operations: list[Operation]) -> dict[bytes, Seen]:
    """Edit `lower` through an overlay whose changes land in `base/upper`; gives the merged tree."""
    for name in ("upper", "work", "merged"):
        (base / name).mkdir()
    options = f"lowerdir={lower},upperdir={base}/upper,workdir={base}/work,userxattr,index=on"
    return _run(base / "merged", operations, options)


def make_tree(root: Path, operations: list[Operation]) -> dict[bytes, Seen]:
    """Make a plain tree by a program of edits."""
    root.mkdir()
    return _run(root, operations, "")


def _run(root: Path, operations: list[Operation], options: str) -> dict[bytes, Seen]:
    order = {"root": str(root), "options": options, "operations": operations}
    command = ["unshare", "-m", sys.executable, "-S", __file__]
    result = subprocess.run(command, input=json.dumps(order).encode(), capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr.decode()
    return {
        base64.b64decode(path): Seen(kind, mode, base64.b64decode(content))
        for path, kind, mode, content in json.loads(result.stdout)
    }


def can_mount() -> bool:
    """Whether this process may mount: root, with the right to."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


def _child() -> None:
    os.umask(0o022)
    order = json.load(sys.stdin)
    if order["options"]:
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", order["options"], order["root"]], check=True)
    os.chroot(order["root"])
    os.chdir("/")
    _edit(order["operations"])
    rows = [
        (base64.b64encode(path).decode(), seen.kind, seen.mode, base64.b64encode(seen.content).decode())
        for path, seen in describe(b"/").items()
    ]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    _child()
