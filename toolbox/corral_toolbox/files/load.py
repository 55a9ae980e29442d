"""Reading a whole file that is going to be changed, and describing the change for the wire."""

from __future__ import annotations

import os

from corral_protocol.name import encode_name
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.digest import hash_bytes
from corral_toolbox.files.error_map import make_error
from corral_toolbox.files.resolve import Place, open_regular
from corral_toolbox.files.text.diff import MAX_DIFF_BYTES, make_diff
from corral_toolbox.files.text.document import Document, parse_document

MAX_EDIT_BYTES = 32 << 20
"""Files are changed in memory, at a few times their size."""


class Loaded:
    """A file's bytes together with what the kernel said about them when they were read."""

    __slots__ = ("raw", "stat")

    def __init__(self, raw: bytes, found: os.stat_result) -> None:
        self.raw = raw
        self.stat = found


def load_file(place: Place, max_bytes: int = MAX_EDIT_BYTES) -> Loaded:
    """All bytes of a regular file."""
    fd, found = open_regular(place)
    try:
        parts: list[bytes] = []
        room = max_bytes + 1
        while room > 0 and (chunk := os.read(fd, min(room, 1 << 20))):
            parts.append(chunk)
            room -= len(chunk)
    finally:
        os.close(fd)
    if room <= 0:
        raise make_error(
            ErrorCode.TOO_LARGE, place.path, f"has more than {max_bytes} bytes", "change it with a program in the shell"
        )
    return Loaded(b"".join(parts), found)


def load_document(place: Place, raw: bytes) -> Document:
    """The bytes of a text file as a document; binary files are refused."""
    document = parse_document(raw)
    if document is None:
        raise make_error(ErrorCode.BINARY_FILE, place.path, "is a binary file", "change it with a program in the shell")
    return document


def describe_change(
    path: bytes,
    action: str,
    old: bytes | None,
    new: bytes | None,
    *,
    replaced: int = 0,
    notices: list[str] | None = None,
    diff_limit: int = MAX_DIFF_BYTES,
) -> dict[str, object]:
    """The FileChanged for content that went from old to new (None: there is no file)."""
    return {
        "path": encode_name(path),
        "action": action,
        "size": len(new) if new is not None else 0,
        "sha256": hash_bytes(new) if new is not None else "",
        "replaced": replaced,
        "diff": _diff_text(path, old or b"", new or b"", diff_limit),
        "notices": notices or [],
    }


def _diff_text(path: bytes, old: bytes, new: bytes, limit: int) -> str:
    """Line ends are left out of the diff unless they are what changed."""
    if max(len(old), len(new)) > MAX_EDIT_BYTES:
        return ""
    before, after = parse_document(old), parse_document(new)
    if before is None or after is None:
        return ""
    if before.body == after.body:
        return make_diff(path, old, new, limit)
    return make_diff(path, before.body, after.body, limit)
