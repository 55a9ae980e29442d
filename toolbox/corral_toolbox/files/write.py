"""file.write, file.store and file.fetch: whole files in and out."""

from __future__ import annotations

import os
import stat

from corral_protocol.name import encode_name
from corral_toolbox.files.atomic import check_target, replace_file
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.digest import start_sha256
from corral_toolbox.files.error_map import make_error
from corral_toolbox.files.load import MAX_EDIT_BYTES, describe_change, load_file
from corral_toolbox.files.params import (
    Params,
    invalid,
    take_bool,
    take_bytes,
    take_count,
    take_int,
    take_mode,
    take_name,
    take_str,
)
from corral_toolbox.files.read import hash_file
from corral_toolbox.files.resolve import FileEnv, Place, open_regular, resolve

_CHUNK_BYTES = 256 << 10

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from corral_toolbox.files.stream import Reader, Writer


def write_file(params: Params, env: FileEnv) -> dict[str, object]:
    """FileWrite -> FileChanged."""
    path = take_name(params, "path")
    content = take_bytes(params, "content_b64")
    overwrite = take_bool(params, "overwrite", default=True)
    expected = take_str(params, "if_sha256", "")
    mode = take_mode(params)
    parents = take_bool(params, "make_parents", default=True)
    with resolve(env, path) as place:
        check_target(place, overwrite=overwrite)
        if expected:
            _require_hash(place, expected)
        old = _load_for_diff(place)
        if old == content:
            return describe_change(place.path, "unchanged", old, content)
        action = "created" if place.stat is None else "modified"
        notices = replace_file(place, [content], mode=mode, overwrite=overwrite, parents=parents)
        if action == "modified" and old is None:
            notices.append("the old content was binary or too large to show a diff")
        return describe_change(place.path, action, old, content, notices=notices)


def _require_hash(place: Place, expected: str) -> None:
    fresh = ""
    if place.stat is not None:
        fd, place.stat = open_regular(place)
        try:
            fresh = hash_file(fd, place.stat.st_size, place.stat.st_size)
        finally:
            os.close(fd)
    if fresh != expected.lower():
        raise make_error(
            ErrorCode.PATCH_CONFLICT,
            place.path,
            "has changed since it was read" if fresh else "does not exist any more",
            "read it again and decide what to do with the new content",
            sha256=fresh,
        )


def _load_for_diff(place: Place) -> bytes | None:
    """The old bytes where they are readable and small; place.stat becomes what was read."""
    if place.stat is None or place.stat.st_size > MAX_EDIT_BYTES:
        return None
    try:
        loaded = load_file(place)
    except PermissionError:
        return None  # writing needs no right to read
    place.stat = loaded.stat
    return loaded.raw


def store_file(params: Params, env: FileEnv, reader: Reader) -> dict[str, object]:
    """FileStore -> FileChanged: exactly `size` bytes from the stream, or the old file stays."""
    path = take_name(params, "path")
    size = take_int(params, "size")
    if size < 0:
        raise invalid(f"size {size} is negative")
    overwrite = take_bool(params, "overwrite", default=True)
    mode = take_mode(params)
    parents = take_bool(params, "make_parents", default=True)
    with resolve(env, path) as place:
        check_target(place, overwrite=overwrite)
        action = "created" if place.stat is None else "modified"
        digest = start_sha256(size)
        chunks = _receive(reader, size, digest.update)
        notices = replace_file(place, chunks, mode=mode, overwrite=overwrite, parents=parents)
        reply = describe_change(place.path, action, None, None, notices=notices)
        return reply | {"size": size, "sha256": digest.hexdigest()}


def _receive(reader: Reader, size: int, observe: Callable[[bytes], None]) -> Iterator[bytes]:
    left = size
    while left:
        chunk = reader.read(min(left, _CHUNK_BYTES))
        if not chunk:
            raise invalid(f"the stream ended {left} bytes early; {size} were announced", missing=left)
        observe(chunk)
        left -= len(chunk)
        yield chunk
    if reader.read(1):
        raise invalid(f"the stream has more than the {size} bytes announced")


def fetch_file(params: Params, env: FileEnv, writer: Writer) -> dict[str, object]:
    """FileFetch -> FetchReply: raw bytes to the stream, never more than the file had when it was opened."""
    path = take_name(params, "path")
    offset = take_count(params, "offset") or 0
    limit = take_int(params, "limit", -1)
    with resolve(env, path) as place:
        fd, found = open_regular(place)
        try:
            end = found.st_size if limit < 0 else min(found.st_size, offset + limit)
            sent = offset
            while sent < end:
                chunk = os.pread(fd, min(_CHUNK_BYTES, end - sent), sent)
                if not chunk:
                    break
                writer.write(chunk)
                sent += len(chunk)
        finally:
            os.close(fd)
        return {
            "path": encode_name(place.path),
            "size": found.st_size,
            "sent": max(0, sent - offset),
            "mode": stat.S_IMODE(found.st_mode),
        }
