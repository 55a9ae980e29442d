"""The directory of one run: owner-only, under the platform's data directory, locked while it is in use."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import platformdirs

from corral.errors import ConfigError, RecordError
from corral.store.removal import remove_tree
from corral_protocol.name import decode_name, encode_name

_VERSION = 1
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
_META = "meta.json"
_RESERVE = "reserve"
_RESERVE_BYTES = 64 << 10  # the last events and meta.json, with room to spare
LAST = "last"
"""Stands for the newest run wherever a run's id is asked for."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def find_runs_root() -> Path:
    """Where runs are kept; XDG_DATA_HOME moves it."""
    return Path(platformdirs.user_data_dir("corral", appauthor=False)) / "runs"


@dataclass(frozen=True)
class RunMeta:
    """What a run was, for lists and for applying its patch later. Written when the box is there, and at its end."""

    run_id: str
    workspace: bytes  # absolute path
    started_at: str  # ISO 8601, UTC
    command: str = ""  # for a list: what was run, printable
    mode: str = ""  # overlay or copy
    mode_reason: str = ""
    image: str = ""
    image_id: str = ""
    masked: tuple[tuple[bytes, str], ...] = ()  # path, reason
    base_time_ns: int = 0
    ended_at: str = ""
    outcome: str = ""
    facts: dict[str, str] = field(default_factory=dict)


@dataclass
class RunDir:
    """One run's directory, held by this process: nobody else opens or removes it until close()."""

    path: Path
    lock: int

    @classmethod
    def create(cls, root: Path | None = None) -> Self:
        """A new one. Raises ConfigError when the data directory cannot be used, RecordError when the disk is full."""
        parent = root or find_runs_root()
        try:
            _make_private(parent)
            while True:
                path = parent / _make_id()
                try:
                    path.mkdir(mode=0o700)
                except FileExistsError:
                    continue
                made = cls(path, _lock(path))
                try:
                    made._set_aside()
                except OSError:
                    made.remove()
                    raise
                return made
        except OSError as error:
            raise _explain(error, parent) from error

    @classmethod
    def open(cls, run_id: str, root: Path | None = None) -> Self:
        """An existing one. Raises ConfigError when there is none, or when it is in use."""
        path = find_run(run_id, root)
        return cls(path, _lock(path))

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def outputs(self) -> Path:
        """Full outputs of calls: `<call>.stdout`, `<call>.stderr`."""
        return self.path / "outputs"

    @property
    def patch(self) -> Path:
        return self.path / "patch.diff"

    @property
    def record(self) -> Path:
        return self.path / "record.jsonl"

    def write_meta(self, meta: RunMeta) -> None:
        row = dataclasses.asdict(meta) | {
            "version": _VERSION,
            "workspace": encode_name(meta.workspace),
            "masked": [[encode_name(path), reason] for path, reason in meta.masked],
        }
        write_atomic(self.path / _META, json.dumps(row, indent=1).encode() + b"\n")

    def release_reserve(self) -> None:
        """Give free what was set aside for the end of the run: a full disk must not keep it from being told."""
        with contextlib.suppress(OSError):
            (self.path / _RESERVE).unlink()

    def _set_aside(self) -> None:
        with open(self.path / _RESERVE, "xb") as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)

    def remove(self) -> None:
        """Remove the run and close it. Raises RemovalBlocked, with everything else still there."""
        _remove(self.path)
        self.close()

    def close(self) -> None:
        """Let others have it. Idempotent."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find_run(run_id: str, root: Path | None = None) -> Path:
    """The directory of a run; `last` is the newest. Raises ConfigError when there is none."""
    parent = root or find_runs_root()
    if run_id == LAST:
        run_id = next(iter(list_runs(parent)), LAST)
    path = parent / run_id
    # SECURITY: an id is a name of ours and never leads elsewhere. test_run_dir.py::test_refuses_ids_that_are_paths
    if _ID.fullmatch(run_id) and path.is_dir() and not path.is_symlink():
        return path
    raise ConfigError(f"there is no run {run_id!r}", hint="corral runs lists them")


def list_runs(root: Path | None = None) -> list[str]:
    """Ids of all runs, newest first."""
    parent = root or find_runs_root()
    try:
        names = os.listdir(parent)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _explain(error, parent) from error
    return sorted((name for name in names if _ID.fullmatch(name)), reverse=True)


def load_meta(run_id: str, root: Path | None = None) -> RunMeta:
    """Raises ConfigError when there is no such run, RecordError when its meta.json is missing or broken."""
    path = find_run(run_id, root) / _META
    try:
        row = json.loads(path.read_bytes())
        if row.pop("version") != _VERSION:
            raise ValueError("another version")
        row["workspace"] = decode_name(row["workspace"])
        row["masked"] = tuple((decode_name(name), str(reason)) for name, reason in row["masked"])
        return RunMeta(**row)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(f"run {run_id!r} has no usable {_META}: {error}", hint="remove it: corral runs rm") from None


def write_atomic(path: Path, content: bytes) -> None:
    """Replace a file, or leave it: never half written, also when the power goes."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _explain(error, path.parent) from error


def _remove(path: Path) -> None:
    # What the engine left there as root is the only thing that can stop us: it goes first.
    remove_tree(path / "box" / "work")
    remove_tree(path)


def _make_id() -> str:
    now = datetime.now(UTC)
    # Milliseconds before chance: runs of one second sort by age, and `last` is the last.
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03x}{secrets.randbelow(1 << 12):03x}"


def _make_private(parent: Path) -> None:
    parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    parent.mkdir(mode=0o700, exist_ok=True)
    status = parent.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user")
    # SECURITY: a box can leave real setuid files in there. test_run_dir.py::test_data_directory_is_owner_only
    if stat.S_IMODE(status.st_mode) != 0o700:
        parent.chmod(0o700)


def _lock(path: Path) -> int:
    descriptor = os.open(path, _DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"run {path.name!r} is in use", hint="wait until it has ended") from None
    return descriptor


def _explain(error: OSError, place: Path) -> ConfigError | RecordError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RecordError(
            f"the disk is full: nothing can be written in {str(place)!r}",
            hint="free some space, or set XDG_DATA_HOME to a directory on another disk",
        )
    return ConfigError(
        f"the data directory {str(place)!r} cannot be used: {error.strerror or error}",
        hint="fix its permissions, or set XDG_DATA_HOME to a writable directory",
    )
