"""Makes `Node`s out of what stands in the upper directory or in the original, opened once and without following."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corral.patch.tree import (
    MAX_LINK,
    Kind,
    Node,
    bytes_reader,
    file_reader,
    kind_of,
    nothing_reader,
    open_directory,
    open_file,
    special_name,
)

_OVERLAY = "user.overlay."
_ESCAPED = "user.overlay.overlay."  # what the box itself set under that prefix lands here
OPAQUE = "user.overlay.opaque"
ORIGIN = "user.overlay.origin"
INDEXED = "user.overlay.nlink"  # only on files whose hard links the overlay keeps together (index=on)


@dataclass(frozen=True)
class Opened:
    """One entry and what the overlay noted on it."""

    node: Node
    origin: bytes | None = None  # handle of the lower file it was copied up from
    indexed: bool = False


@contextmanager
def open_entry(root: Path, path: bytes, parent: int, info: os.stat_result) -> Iterator[Opened]:
    """The node at a path whose lstat is `info`. Raises PermissionError where the mode forbids reading."""
    name = path.rsplit(b"/", 1)[-1]
    kind = kind_of(info.st_mode)
    mode = stat.S_IMODE(info.st_mode)
    if kind is Kind.FILE:
        descriptor = open_file(name, parent)
        try:
            attributes = _attributes(descriptor)
            read = file_reader(root, path, info)
            node = Node(kind, mode, info.st_size, info.st_ctime_ns, read, xattrs=_own(attributes))
            yield Opened(node, _origin(attributes.get(ORIGIN)), INDEXED in attributes)
        finally:
            os.close(descriptor)
    elif kind is Kind.SYMLINK:
        target = os.readlink(name, dir_fd=parent)
        yield Opened(Node(kind, mode, len(target), info.st_ctime_ns, bytes_reader(target[:MAX_LINK])))
    else:
        detail = special_name(info.st_mode) if kind is Kind.SPECIAL else ""
        yield Opened(Node(kind, mode, 0, info.st_ctime_ns, nothing_reader, detail))


def directory_node(descriptor: int) -> Node:
    info = os.fstat(descriptor)
    attributes = _own(_attributes(descriptor))
    return Node(Kind.DIRECTORY, stat.S_IMODE(info.st_mode), 0, info.st_ctime_ns, nothing_reader, xattrs=attributes)


def is_opaque(descriptor: int) -> bool:
    """Whether this upper directory hides the original's directory of the same name."""
    return _attributes(descriptor).get(OPAQUE) == b"y"


def is_whiteout(info: os.stat_result) -> bool:
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


@contextmanager
def opened_directory(name: bytes, parent: int | None) -> Iterator[int | None]:
    """Descriptor of a directory below another, or None where there is none."""
    descriptor = None if parent is None else open_directory(name, parent)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _attributes(descriptor: int) -> dict[str, bytes]:
    try:
        names = os.listxattr(descriptor)
        return {name: os.getxattr(descriptor, name) for name in names if not name.startswith("trusted.")}
    except OSError:
        return {}  # a file system without attributes


def _own(attributes: dict[str, bytes]) -> frozenset[tuple[str, bytes]]:
    """The attributes that belong to the file: not the overlay's marks, not labels the system sets."""
    return frozenset(
        (name, value)
        for name, value in attributes.items()
        if (name.startswith("user.") and (not name.startswith(_OVERLAY) or name.startswith(_ESCAPED)))
        or name in ("system.posix_acl_access", "system.posix_acl_default", "security.capability")
    )


def _origin(value: bytes | None) -> bytes | None:
    """The file handle in the overlay's origin mark, after a header of 21 bytes (version, magic 0xfb, ..., uuid)."""
    return value[21:] if value is not None and len(value) > 21 and value[1] == 0xFB else None


_AT_LIMIT = 128  # MAX_HANDLE_SZ


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def file_handle(name: bytes, parent: int) -> bytes | None:
    """The kernel's handle of a file, as the overlay keeps it in its origin mark; None where there are none."""
    buffer = ctypes.create_string_buffer(struct.pack("=Ii", _AT_LIMIT, 0), 8 + _AT_LIMIT)
    mount = ctypes.c_int()
    call = getattr(_libc(), "name_to_handle_at", None)
    if call is None or call(parent, name, buffer, ctypes.byref(mount), 0) != 0:
        return None
    size = int(struct.unpack_from("=I", buffer)[0])
    return buffer.raw[8 : 8 + size]
