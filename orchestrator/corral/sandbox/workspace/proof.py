"""Proof that the engine's box looks at this very workspace, through this very mount.

A remote engine, one in another mount namespace, or one that lost our id-mapped clone would show another directory, or
none. Before any untrusted process runs, the toolbox says what it sees: it must be this kernel, our list of names, and a
file with a random name that we have just put into the upper directory.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from corral.sandbox.labels import read_boot_id
from corral_protocol.message import HelloReply, RootEntry
from corral_protocol.name import decode_name, encode_name

MAX_NAMES = 256  # the toolbox reports the first so many, sorted
_PREFIX = b"\x01corral-"  # sorts before any name that people give


@dataclass(frozen=True)
class Look:
    """What is compared of one entry. Directories only by mode: a merged one has the upper's size and time."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int = field(default=0, compare=False)
    """0: not to be compared. A clone of the workspace (`cp -a`, two checkouts of a cache) has all else in common."""


Root = dict[bytes, Look]


def plant_nonce(upper: int) -> bytes:
    """A file with a name that nobody can guess, in the upper directory. Returns the name."""
    name = _PREFIX + secrets.token_hex(16).encode()
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=upper))
    return name


def remove_nonce(upper: int, name: bytes) -> None:
    """Take it away again; the upper directory's mode, which may forbid it, stays as it is."""
    mode = stat.S_IMODE(os.fstat(upper).st_mode)
    try:
        os.fchmod(upper, mode | 0o300)
        os.unlink(name, dir_fd=upper)
    except FileNotFoundError:
        pass
    finally:
        os.fchmod(upper, mode)


def list_merged(lower: int, *above: int) -> Root:
    """The root as an overlay of these directories shows it, from the lowest to the topmost."""
    merged = _list(lower)
    for directory in above:
        for name, (look, is_whiteout) in _list_with_whiteouts(directory).items():
            if is_whiteout:
                merged.pop(name, None)
            else:
                merged[name] = replace(look, ctime_ns=0)  # ours, and still being made
    return merged


def find_mismatch(
    hello: HelloReply, nonce: bytes, before: Root, now: Root, *, is_same_kernel: bool = True
) -> str | None:
    """Why the box does not see this workspace, in words; None when it does.

    Without `is_same_kernel` the names alone prove it, above all the one that nobody else can know. The user may edit
    while the box starts, so an entry may look as it did before or as it does now.
    """
    own = read_boot_id()
    if is_same_kernel and (not own or hello.boot_id != own):
        return "the engine runs on another machine or kernel"
    try:
        seen = _decode(hello.workspace_root)
    except ValueError:
        return "the box reported names that cannot be"
    if nonce not in seen:
        return "the engine does not see the run's directory"
    expected = before | now
    for name, look in seen.items():
        earlier, later = before.get(name), now.get(name)
        if look not in (earlier, later) or (is_same_kernel and not _can_be(look, earlier, later)):
            return f"the engine sees another workspace: {os.fsdecode(name)!r} differs"
    steady = {name for name in expected if before.get(name) == now.get(name)}
    missing = _first(steady) - seen.keys() if len(expected) <= MAX_NAMES else set()
    if missing:
        return f"the engine sees another workspace: {os.fsdecode(min(missing))!r} is missing"
    if len(expected) > MAX_NAMES and len(seen) < MAX_NAMES:
        return "the engine sees another workspace: it has fewer entries"
    return None


def _can_be(look: Look, earlier: Look | None, later: Look | None) -> bool:
    """Whether its change time lies where that of the same file must: time only goes on."""
    # SECURITY: where the engine has another file system at this path, a clone of the workspace would pass for it
    # (tests/contract/test_contained.py).
    return (earlier is None or earlier.ctime_ns <= look.ctime_ns) and (
        later is None or not later.ctime_ns or look.ctime_ns <= later.ctime_ns
    )


def _first(names: set[bytes]) -> set[bytes]:
    return set(sorted(names, key=encode_name)[:MAX_NAMES])


def _decode(entries: Sequence[RootEntry]) -> Root:
    return {
        decode_name(entry.name): _make_look(entry.mode, entry.size, entry.mtime_ns, entry.ctime_ns) for entry in entries
    }


def _list(directory: int) -> Root:
    return {name: look for name, (look, _) in _list_with_whiteouts(directory).items()}


def _list_with_whiteouts(directory: int) -> dict[bytes, tuple[Look, bool]]:
    found: dict[bytes, tuple[Look, bool]] = {}
    own = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        for text in os.listdir(own):
            try:
                status = os.stat(text, dir_fd=own, follow_symlinks=False)
            except FileNotFoundError:
                continue
            is_whiteout = stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
            look = _make_look(status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            found[os.fsencode(text)] = (look, is_whiteout)
    finally:
        os.close(own)
    return found


def _make_look(mode: int, size: int, mtime_ns: int, ctime_ns: int) -> Look:
    return Look(mode, 0, 0, ctime_ns) if stat.S_ISDIR(mode) else Look(mode, size, mtime_ns, ctime_ns)
