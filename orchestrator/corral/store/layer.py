"""Set-up layers: what a box's changes were after its set-up, kept under a name and laid below later boxes' own changes.

A layer never changes: keeping one under the same name makes a new one beside it. Who uses one holds a lock on it, so
that it is removed only when nobody does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from corral.errors import ConfigError, RecordError
from corral.store.layer_tree import TreeLimits, copy_changes
from corral.store.removal import remove_tree

_VERSION = 1
_META = "meta.json"
_TREE = "tree"
_UNFINISHED = ".part-"
"""What is being made or removed, and is no layer."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SERIAL = re.compile(r"\d{8}-\d{6}-\d{6}-[0-9a-f]{6}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class LayerFacts:
    """How a layer was made."""

    run_id: str
    workspace: str  # as people call it
    mount_point: str
    image: str
    image_id: str
    command: str = ""
    exported: tuple[str, ...] = ()
    """The first of the paths that the run's patch holds: changes to the workspace itself, not only what is ignored."""
    exported_count: int = 0
    """How many there are."""


@dataclass(frozen=True)
class Layer:
    name: str
    path: Path
    facts: LayerFacts

    @property
    def tree(self) -> Path:
        return self.path / _TREE


def check_layer_name(name: str) -> str:
    """Raises ConfigError. A name is a directory of ours and never leads elsewhere."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name of a layer", hint="lower-case letters, digits, dots, dashes, at most 64: deps, py3.12"
        )
    return name


def find_layer(root: Path, name: str) -> Layer:
    """The newest of this name. Raises ConfigError when there is none."""
    for path in _list_serials(root / check_layer_name(name)):
        with contextlib.suppress(RecordError):
            return Layer(name, path, _load(path))
    raise ConfigError(f"there is no layer {name!r}", hint="corral layers lists them; corral exec --keep makes one")


def list_layers(root: Path) -> list[Layer]:
    """The newest of each name."""
    try:
        names = sorted(filter(_NAME.fullmatch, os.listdir(root)))
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        with contextlib.suppress(ConfigError):
            found.append(find_layer(root, name))
    return found


@contextlib.contextmanager
def hold_layer(layer: Layer) -> Iterator[Path]:
    """Its tree, which stays for as long. Raises ConfigError when it has just been removed."""
    with contextlib.ExitStack() as undo:
        try:
            lock = os.open(layer.path, _DIRECTORY)
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.stat(layer.tree)  # under the lock: it may have gone between the two
        except OSError:
            raise ConfigError(f"layer {layer.name!r} is being removed", hint="start again") from None
        yield layer.tree


def keep_layer(
    root: Path,
    name: str,
    upper: Path,
    facts: LayerFacts,
    *,
    skip: Collection[bytes],
    owner: tuple[int, int],
    max_bytes: int,
) -> Layer:
    """Copy a box's changes, which nobody writes to any more, into a new layer of that name.

    `skip` are the masked paths, `owner` the ids of the workspace's owner. Raises ConfigError, RecordError.
    """
    folder = root / check_layer_name(name)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder):
            _remove_unfinished(folder)
            stage = folder / f"{_UNFINISHED}{secrets.token_hex(4)}"
            stage.mkdir(mode=0o700)
            try:
                copy_changes(upper, stage / _TREE, skip=skip, owner=owner, limits=TreeLimits(max_bytes=max_bytes))
                row = {"version": _VERSION} | dataclasses.asdict(facts)
                (stage / _META).write_text(json.dumps(row, indent=1), encoding="utf-8")
                serial = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{secrets.token_hex(3)}"  # sorts by age
                stage.rename(folder / serial)
            except BaseException:
                remove_tree(stage)
                raise
            _remove_unused(_list_serials(folder)[1:])
    except OSError as error:
        raise RecordError(
            f"layer {name!r} cannot be kept: {error.strerror or error}", hint=f"it would lie in {str(folder)!r}"
        ) from error
    return Layer(name, folder / serial, facts)


def remove_layer(root: Path, name: str) -> bool:
    """Whether all of it is gone: what a box uses stays. Raises ConfigError when there is none."""
    folder = find_layer(root, name).path.parent
    with _locked(folder):
        _remove_unfinished(folder)
        is_gone = _remove_unused(_list_serials(folder))
    if is_gone:
        with contextlib.suppress(OSError):  # somebody keeps a new one just now
            folder.rmdir()
    return is_gone


def _list_serials(folder: Path) -> list[Path]:
    """Newest first."""
    try:
        return [folder / name for name in sorted(filter(_SERIAL.fullmatch, os.listdir(folder)), reverse=True)]
    except FileNotFoundError:
        return []


def _load(path: Path) -> LayerFacts:
    try:
        row = json.loads((path / _META).read_bytes())
        if row.pop("version") != _VERSION:
            raise ValueError("another version")
        return LayerFacts(**row | {"exported": tuple(row["exported"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(f"the layer {str(path)!r} cannot be read: {error}") from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One keeper or remover of a name at a time."""
    lock = os.open(folder, _DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _remove_unfinished(folder: Path) -> None:
    for name in os.listdir(folder):
        if name.startswith(_UNFINISHED):
            remove_tree(folder / name)


def _remove_unused(paths: list[Path]) -> bool:
    is_all = True
    for path in paths:
        lock = os.open(path, _DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = path.with_name(f"{_UNFINISHED}{path.name}")
            path.rename(gone)  # at once: half a layer is never taken for a whole one
            remove_tree(gone)
        except BlockingIOError:
            is_all = False
        finally:
            os.close(lock)
    return is_all
