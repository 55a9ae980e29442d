"""What an apply is about to do, written down outside of the workspace before it does it.

Whoever comes after a crash rolls back from it (recover.py). It lies in corral's own data directory: what lies in the
workspace may have come with the repository, and says nothing here.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from corral.errors import PatchConflict
from corral.sandbox.labels import labels, owner_is_alive
from corral.store.run_dir import find_runs_root
from corral_protocol.name import decode_name, encode_name

STAGING = ".corral-apply-"
"""How the directory in the workspace begins that holds what comes and what goes."""
_VERSION = 1
_MAX_BYTES = 256 << 20
_PART = ".part"
_PART_AGE_S = 3600.0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Entry:
    """One path of a plan: `old.N` and `new.N` in the staging directory are its files, N its place in the list."""

    path: bytes
    stands: bool  # a file or link stood there before
    leaves: bool  # it moves away before anything new comes
    new: tuple[int, ...] | None  # identity of what comes

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "path": encode_name(self.path)}

    @classmethod
    def from_json(cls, raw: Mapping[str, object]) -> Entry:
        new = raw["new"]
        return cls(
            _parse_path(raw["path"]),
            bool(raw["stands"]),
            bool(raw["leaves"]),
            tuple(int(part) for part in new) if isinstance(new, list) else None,
        )


@dataclass(frozen=True)
class Removal:
    """A directory that is about to be removed."""

    path: bytes
    mode: int
    uid: int
    gid: int

    def to_json(self) -> dict[str, object]:
        return {"rmdir": encode_name(self.path), "mode": self.mode, "uid": self.uid, "gid": self.gid}


@dataclass
class Story:
    """A journal as it was left behind."""

    file: Path
    workspace: Path
    inode: int
    staging: bytes
    owner: dict[str, str]
    entries: list[Entry] = field(default_factory=list)
    made: list[bytes] = field(default_factory=list)
    """Directories that are not there before."""
    removals: list[Removal] = field(default_factory=list)
    is_done: bool = False

    @property
    def owner_lives(self) -> bool:
        return self.owner.get("corral.owner.pid") != str(os.getpid()) and owner_is_alive(self.owner)


class Journal:
    """Written by one apply, from before its first change to after its last."""

    def __init__(self, file: Path, descriptor: int, staging: bytes) -> None:
        self.staging = staging
        self._file = file
        self._descriptor = descriptor

    def plan(self, entries: list[Entry], made: list[bytes]) -> None:
        """Everything is staged; from the next moment on files move."""
        story = {"entries": [entry.to_json() for entry in entries], "made": [encode_name(path) for path in made]}
        self._write(story, durable=True)

    def remove_directory(self, path: bytes, info: os.stat_result) -> None:
        self._write(Removal(path, info.st_mode & 0o7777, info.st_uid, info.st_gid).to_json(), durable=False)

    def finish(self) -> None:
        """Everything is in its place: what is left is to be cleaned up, not undone."""
        self._write({"done": True}, durable=True)

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)

    def _write(self, line: Mapping[str, object], *, durable: bool) -> None:
        data = json.dumps(line).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
        if durable:
            os.fsync(self._descriptor)


def find_journals() -> Path:
    return find_runs_root().parent / "applies"


@contextmanager
def open_journal(workspace: Path, root: int) -> Iterator[Journal]:
    """A journal for an apply to `workspace`, whose directory `root` is. Stays behind unless it is forgotten."""
    lock_workspace(root, workspace)
    token = secrets.token_hex(8)
    staging = f"{STAGING}{token}".encode()
    folder = find_journals()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{token}.jsonl"
    part = file.with_suffix(_PART)
    descriptor = os.open(part, _NEW, 0o600)
    try:
        journal = Journal(file, descriptor, staging)
        owner = {name: value for name, value in labels("", "apply").items() if name.startswith("corral.owner.")}
        head = {
            "version": _VERSION,
            "workspace": encode_name(os.fsencode(os.path.realpath(workspace))),
            "inode": os.fstat(root).st_ino,
            "staging": staging.decode(),
            "owner": owner,
        }
        journal._write(head, durable=True)
        os.rename(part, file)
        yield journal
    finally:
        os.close(descriptor)


def lock_workspace(root: int, workspace: Path) -> None:
    """One apply or recovery at a time, until the descriptor is closed. Raises PatchConflict when another is at work."""
    try:
        fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno != errno.EWOULDBLOCK:
            return  # a file system without locks: then only the owner in the journal tells
        raise PatchConflict(
            f"another corral apply is at work in {str(workspace)!r}",
            hint="nothing was applied; wait until it has ended",
        ) from None


def load_stories() -> Iterator[Story | Path]:
    """Every journal that is there; the path alone where it cannot be read."""
    for file in sorted(find_journals().glob("*.jsonl")):
        try:
            yield load_story(file)
        except FileNotFoundError:
            continue  # its apply has just ended
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            yield file


def remove_parts() -> None:
    """Journals that were not even begun: their applies had touched nothing."""
    for file in find_journals().glob(f"*{_PART}"):
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > _PART_AGE_S:
                file.unlink()


def load_story(file: Path) -> Story:
    """Raises ValueError and its like for what is no journal."""
    if file.stat().st_size > _MAX_BYTES:
        raise ValueError("too large")
    lines = file.read_bytes().split(b"\n")
    head = json.loads(lines[0])
    if head["version"] != _VERSION or not str(head["staging"]).startswith(STAGING) or "/" in head["staging"]:
        raise ValueError("not a journal of this version")
    story = Story(
        file,
        Path(os.fsdecode(decode_name(head["workspace"]))),
        int(head["inode"]),
        str(head["staging"]).encode(),
        {str(name): str(value) for name, value in head["owner"].items()},
    )
    for line in lines[1:-1]:  # what follows the last newline was being written when it ended: it did not happen
        _take(story, json.loads(line))
    return story


def _take(story: Story, raw: Mapping[str, object]) -> None:
    match raw:
        case {"entries": list() as entries, "made": list() as made}:
            story.entries = [Entry.from_json(entry) for entry in entries]
            story.made = [_parse_path(path) for path in made]
        case {"rmdir": path, "mode": int() as mode, "uid": int() as uid, "gid": int() as gid}:
            story.removals.append(Removal(_parse_path(path), mode, uid, gid))
        case {"done": True}:
            story.is_done = True
        case _:
            raise ValueError("an unknown line")


def _parse_path(raw: object) -> bytes:
    path = decode_name(str(raw))
    if any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise ValueError("not a path below the workspace")
    return path


def identify(info: os.stat_result) -> tuple[int, ...]:
    """What stays as it is when a file is moved, and changes when somebody edits or replaces it."""
    return info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns
