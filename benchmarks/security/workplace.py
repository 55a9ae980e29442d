"""Workspaces to attack: prepared on the host, and compared afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.security.attacks import ATTACKS
from benchmarks.security.attacks.attack import Attack

_PACKAGE = Path(__file__).parent / "attacks"
_VICTIMS = (
    *("file", "appended", "truncated", "mapped", "deleted", "left", "right"),
    *("mode", "swapped", "linked", "piped", "time", "attribute", "reopened"),
)


@dataclass(frozen=True)
class Outcome:
    """How one attack ended in one place."""

    verdict: str
    reason: str = ""


def make_workspace(folder: Path) -> Path:
    """A small repository with victims, and the attacks themselves."""
    workspace = folder / "workspace"
    victim = workspace / "victim"
    for directory in (
        victim / "tree",
        victim / "renamed",
        workspace / ".git" / "hooks",
        workspace / ".git" / "objects",
    ):
        directory.mkdir(parents=True)
    for name in (*_VICTIMS, "tree/inner", "renamed/inner"):
        (victim / name).write_text(f"what {name} says\n")
    (victim / "script.sh").write_text("#!/bin/sh\n")
    (victim / "script.sh").chmod(0o755)
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / ".git" / "config").write_text("[core]\n\tbare = false\n")
    (workspace / "Makefile").write_text("all:\n\ttrue\n")
    (workspace / "package.json").write_text("{}\n")
    shutil.copytree(_PACKAGE, workspace / "attacks", ignore=shutil.ignore_patterns("__pycache__"))
    return workspace


@contextlib.contextmanager
def host_ends(workspace: Path) -> Iterator[dict[str, str]]:
    """A socket and a pipe in the workspace at which the host waits, as variables for the attacks."""
    pipe = workspace / "host.fifo"
    os.mkfifo(pipe, 0o666)
    pipe.chmod(0o666)
    held = os.open(pipe, os.O_RDWR)
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(workspace)  # a socket's path is short
        try:
            server.bind("host.sock")
        finally:
            os.chdir(here)
        (workspace / "host.sock").chmod(0o777)
        server.listen()
        try:
            yield {"ATTACK_SOCKET": "/workspace/host.sock", "ATTACK_FIFO": "/workspace/host.fifo"}
        finally:
            os.close(held)


def fingerprint(path: Path) -> tuple[object, ...] | None:
    """What an attack could have changed about a path; None where nothing is."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    kind, mode = stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(kind):
        return (kind, mode, found.st_uid, found.st_gid)  # its time changes with its neighbours
    content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(kind) else ""
    target = os.readlink(path) if stat.S_ISLNK(kind) else ""
    names = tuple(os.listxattr(path, follow_symlinks=False))
    return (kind, mode, found.st_uid, found.st_gid, found.st_mtime_ns, found.st_nlink, content, target, names)


def fingerprints(workspace: Path) -> dict[str, tuple[object, ...] | None]:
    return {a.id: fingerprint(workspace / a.path) for a in ATTACKS.values() if a.needs == "end"}


def judge_ends(
    attacks: list[Attack],
    told: dict[str, Outcome],
    before: dict[str, tuple[object, ...] | None],
    after: dict[str, tuple[object, ...] | None],
) -> dict[str, Outcome]:
    """What the original says about plants: changed is a breach, whatever the box said."""
    found = {}
    for attack in attacks:
        outcome = told.get(attack.id, Outcome("unknown", "it said nothing"))
        if before[attack.id] != after[attack.id]:
            outcome = Outcome("breach", "the original has changed")
        elif outcome.verdict == "planted":
            outcome = Outcome("held", "nothing of it is in the original")
        found[attack.id] = outcome
    return found
