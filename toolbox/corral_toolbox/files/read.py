"""file.read: the model's view of a file, with line numbers, whatever the file is and however large."""

from __future__ import annotations

import os
import stat

from corral_protocol.name import encode_name
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.digest import hash_bytes, start_sha256
from corral_toolbox.files.error_map import make_error
from corral_toolbox.files.params import Params, invalid, take_count, take_int, take_name
from corral_toolbox.files.resolve import FileEnv, Place, open_regular, resolve
from corral_toolbox.files.text.document import BINARY, Encoding, detect_encoding
from corral_toolbox.files.text.window import LineWindow, NotTextError

HEAD_BYTES = 64 << 10
CHUNK_BYTES = 1 << 20
MAX_EXTRA_BYTES = 64 << 20
"""Read beyond what was asked for, to count lines, hash and look for NULs: about 0.1 s."""
MAX_REPLY_BYTES = 256 << 10  # a control frame holds 1 MiB, and JSON escapes may treble a text
_DUMP_BYTES = 512


def read_file(params: Params, env: FileEnv) -> dict[str, object]:
    """FileRead -> FileContent."""
    path = take_name(params, "path")
    with resolve(env, path) as place:
        fd, found = open_regular(place)
        try:
            head = os.pread(fd, HEAD_BYTES, 0)
            reply = _describe(place, found)
            if not head:
                return reply | {"kind": "empty", "size": 0, "total_lines": 0, "sha256": hash_bytes(b"")}
            encoding = detect_encoding(head)
            if encoding is not BINARY:
                window = _make_window(params, encoding, head)
                try:
                    return reply | _read_text(fd, place, window, found.st_size)
                except NotTextError:
                    pass
            return reply | _read_binary(fd, place, params, found.st_size)
        finally:
            os.close(fd)


def _describe(place: Place, found: os.stat_result) -> dict[str, object]:
    return {
        "path": encode_name(place.path),
        "size": found.st_size,
        "text": "",
        "first_line": 0,
        "last_line": 0,
        "total_lines": None,
        "encoding": "",
        "bom": False,
        "newline": "",
        "final_newline": True,
        "truncated": False,
        "sha256": "",
        "mode": stat.S_IMODE(found.st_mode),
    }


def _make_window(params: Params, encoding: Encoding, head: bytes) -> LineWindow:
    return LineWindow(
        encoding,
        head,
        first=max(1, take_count(params, "offset") or 1),
        limit=take_count(params, "limit"),
        max_bytes=min(max(take_int(params, "max_bytes", 32 << 10), 256), MAX_REPLY_BYTES),
        max_line=min(max(take_int(params, "max_line", 2000), 20), 20_000),
    )


def _read_text(fd: int, place: Place, window: LineWindow, size: int) -> dict[str, object]:
    digest = start_sha256(size) if size <= MAX_EXTRA_BYTES else None
    at_end, extra = False, 0
    while extra <= MAX_EXTRA_BYTES:
        chunk = os.read(fd, CHUNK_BYTES)
        at_end = not chunk
        window.feed(chunk, at_end=at_end)
        if at_end:
            break
        if digest is not None:
            digest.update(chunk)
        if window.is_full or window.open_bytes > MAX_EXTRA_BYTES:
            extra += len(chunk)
    text = window.render()
    if at_end and window.first > max(1, window.total_lines):
        raise make_error(
            ErrorCode.INVALID_ARGUMENT,
            place.path,
            f"offset {window.first} is past the end: the file has {window.total_lines} lines",
            total_lines=window.total_lines,
        )
    return {
        "kind": "text",
        "text": text,
        "first_line": window.first if window.starts else 0,
        "last_line": window.first + len(window.starts) - 1 if window.starts else 0,
        "total_lines": window.total_lines if at_end else None,
        "encoding": window.encoding.name if window.is_utf8 else "latin-1?",
        "bom": bool(window.encoding.bom),
        "newline": window.newline,
        "final_newline": window.has_final_newline,
        "truncated": window.cut_short,
        "sha256": digest.hexdigest() if digest is not None and at_end else "",
    }


def _read_binary(fd: int, place: Place, params: Params, size: int) -> dict[str, object]:
    offset = take_count(params, "offset")
    reply: dict[str, object] = {"kind": "binary", "encoding": "binary", "sha256": hash_file(fd, size)}
    if offset is None:
        return reply
    limit = take_count(params, "limit")
    wanted = _DUMP_BYTES if limit is None else limit
    if offset >= size:
        raise invalid(f"offset {offset} is past the end: the file has {size} bytes", size=size)
    room = min(max(take_int(params, "max_bytes", 32 << 10), 256), MAX_REPLY_BYTES) // 80 * 16
    data = os.pread(fd, min(wanted, room), offset)
    cut_short = len(data) < min(wanted, size - offset)
    return reply | {"text": dump_hex(data, offset), "truncated": cut_short}


def hash_file(fd: int, size: int, max_bytes: int = MAX_EXTRA_BYTES) -> str:
    """SHA-256 of an open file, empty when it is larger than max_bytes or grows beyond it meanwhile."""
    if size > max_bytes:
        return ""
    digest = start_sha256(size)
    offset = 0
    while offset <= max_bytes:
        chunk = os.pread(fd, CHUNK_BYTES, offset)
        if not chunk:
            return digest.hexdigest()
        digest.update(chunk)
        offset += len(chunk)
    return ""


def dump_hex(data: bytes, offset: int) -> str:
    """A classic hex dump: offset, sixteen bytes, printable ASCII."""
    rows: list[str] = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{offset + start:08x}  {row.hex(' '):<47}  |{shown}|\n")
    return "".join(rows)
