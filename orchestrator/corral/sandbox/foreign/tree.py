"""A directory of an image as one of this machine: taken out once, kept under the name of its content."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import posixpath
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from corral.errors import ConfigError, ImageError, SandboxError
from corral.sandbox.engine import Engine, ObjectGone
from corral.sandbox.foreign.find import find_image
from corral.sandbox.foreign.image_file import open_image
from corral.sandbox.foreign.unpack import Unpacked, unpack_tree
from corral.sandbox.scratch import find_stale_scratch, make_scratch

_GetArchive = Callable[[str], tuple[Iterable[bytes], Mapping[str, Any]]]
"""The engine's archive of a path, and what the path is."""
_LIMIT_S = 3600.0
_CHUNK_BYTES = 1 << 20
_TREE = "tree"
_RESERVED = ("/dev", "/etc", "/home", "/opt/corral", "/proc", "/run", "/sys", "/tmp")
"""The box has something of its own there."""
# SECURITY: in our own image the toolbox's Python is there: as the workspace it would be the box user's to change
# (test_places_that_cannot_be_a_workspace).
_PROGRAMS = ("/bin", "/lib", "/lib32", "/lib64", "/sbin", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/sbin")


def check_place(path: str) -> str:
    """A directory of an image that can be a workspace. Raises ConfigError."""
    if not path.startswith("/") or posixpath.normpath(path) != path.rstrip("/") or not path.isprintable():
        raise ConfigError(f"{path!r} is no directory of an image", hint="an absolute path: image:/testbed")
    place = path.rstrip("/")
    taken = (*_RESERVED, *_PROGRAMS)
    if any(place == one or place.startswith(f"{one}/") or one.startswith(f"{place}/") for one in taken):
        raise ConfigError(f"{path!r} of an image cannot be the workspace", hint="name the project's own directory")
    return place


async def take_tree(engine: Engine, image: str, path: str, store: Path, *, on_start: Callable[[], None]) -> Path:
    """The directory `path` of the image, below `store`. `on_start` is called when it has to be taken out first.

    Raises ConfigError, SandboxError.
    """
    place = check_place(path)
    facts = (await find_image(engine, image)).facts
    kept = store / hashlib.sha256(f"{facts.id}\0{place}".encode()).hexdigest()[:32]
    if (kept / _TREE).is_dir():
        return kept / _TREE
    on_start()
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stale in find_stale_scratch(store):
            await asyncio.to_thread(shutil.rmtree, stale, ignore_errors=True)
        with make_scratch("tree", str(store)) as folder:
            stage = Path(folder) / "stage"
            (stage / _TREE).mkdir(mode=0o700, parents=True)
            async with open_image(engine, facts.id, "") as container:
                done = await _fill(engine, container, place, image, stage / _TREE)
            told = {"image": image, "image_id": facts.id, "path": place, **asdict(done)}
            (stage / "meta.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
            _publish(stage, kept)
    except OSError as error:
        raise _explain(error, place, image) from error
    return kept / _TREE


def _explain(error: OSError, place: str, image: str) -> SandboxError:
    return SandboxError(
        f"{place!r} cannot be taken out of {image!r}: {error.strerror or error}",
        hint="it is kept in the data directory: setting data_dir",
    )


@contextlib.contextmanager
def hold_tree(tree: Path) -> Iterator[None]:
    """It stays for as long. Raises ConfigError when it has just been removed."""
    with contextlib.ExitStack() as undo:
        try:
            lock = _open(tree.parent)
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.stat(tree)  # under the lock: it may have gone between the two
        except OSError:
            raise ConfigError("the tree of this image is being removed by corral gc", hint="start again") from None
        yield


def remove_old_trees(engine: Engine, store: Path, *, dry_run: bool) -> list[str]:
    """Remove what was taken out of images that the engine has no more, but for what is in use. Blocks.

    Returns their names. Raises SandboxError.
    """
    removed = []
    for stale in find_stale_scratch(store):
        removed.append(stale.name)
        if not dry_run:
            shutil.rmtree(stale, ignore_errors=True)
    for kept in sorted(store.iterdir()) if store.is_dir() else ():
        image = _read_image(kept)
        if image is None or _has_image(engine, image):
            continue
        lock = _open(kept)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            removed.append(kept.name)
            if not dry_run:
                with make_scratch("tree", str(store)) as folder:
                    kept.rename(Path(folder) / _TREE)  # at once: half a tree is never taken for a whole one
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
    return removed


def _open(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _read_image(kept: Path) -> str | None:
    try:
        return str(json.loads((kept / "meta.json").read_text(encoding="utf-8"))["image_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _has_image(engine: Engine, image: str) -> bool:
    try:
        engine.ask("inspect an image", lambda client: client.inspect_image(image))  # type: ignore[no-untyped-call]
    except ObjectGone:
        return False
    return True


async def _fill(engine: Engine, container: str, place: str, image: str, target: Path) -> Unpacked:
    try:
        return await engine.call(
            "read a directory of the image",
            lambda client: _read(
                lambda path: client.get_archive(container, path, chunk_size=_CHUNK_BYTES), place, image, target
            ),
            _LIMIT_S,
        )
    except ObjectGone:
        raise ImageError(f"{image!r} has no directory {place!r}", hint="name one that is in the image") from None


def _read(get: _GetArchive, place: str, image: str, target: Path) -> Unpacked:
    """In the engine's thread, which may outlive who waits for it: what it writes to is its own."""
    from requests.exceptions import RequestException  # late: start-up time

    _refuse_links(get, place, image)
    directory = _open(target)
    try:
        return unpack_tree(get(place)[0], directory)
    except RequestException:
        raise
    except NotADirectoryError:
        raise ImageError(f"{place!r} of {image!r} is not a directory", hint="name a directory, not a link") from None
    except OSError as error:  # this machine's, not the engine's
        raise _explain(error, place, image) from error
    finally:
        os.close(directory)


def _refuse_links(get: _GetArchive, place: str, image: str) -> None:
    """Raises ImageError when a directory on the way to `place` is a link."""
    # SECURITY: the box would get its workspace where the link leads, and that may be among the toolbox's own files
    # (test_what_cannot_be_a_workspace_is_told).
    for parent in list(PurePosixPath(place).parents)[:-1]:
        if get(str(parent))[1].get("linkTarget"):
            raise ImageError(
                f"{place!r} of {image!r} is not a directory: {str(parent)!r} is a link",
                hint="name it by the directory that the link leads to",
            )


def _publish(stage: Path, kept: Path) -> None:
    try:
        stage.rename(kept)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else somebody else was faster, with the same content
            raise
