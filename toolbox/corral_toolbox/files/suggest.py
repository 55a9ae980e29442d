"""After a name was not found: the names beside it that were probably meant."""

from __future__ import annotations

import os
from itertools import islice

from corral_protocol.failure import WireError
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.error_map import make_error
from corral_toolbox.files.text.visible import show_path

_MAX_NAMES = 2000


def explain_missing(parent_fd: int, name: bytes, path: bytes, missing: int) -> WireError:
    """not_found, with names that are close; `missing` counts directories of the path that do not exist either."""
    hint = "list the directory to see the names that exist"
    if missing:
        return make_error(ErrorCode.NOT_FOUND, path, "does not exist, nor does its directory", hint)
    close = _find_close(parent_fd, name)
    if close:
        hint = f"names there that are close: {', '.join(repr(show_path(other)) for other in close)}"
    return make_error(ErrorCode.NOT_FOUND, path, "does not exist", hint)


def _find_close(parent_fd: int, name: bytes) -> list[bytes]:
    from difflib import get_close_matches  # late: only a miss needs it

    try:
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent_fd)
    except OSError:
        return []
    try:
        with os.scandir(fd) as entries:
            names = {entry.name.lower(): os.fsencode(entry.name) for entry in islice(entries, _MAX_NAMES)}
    except OSError:
        return []
    finally:
        os.close(fd)
    return [names[found] for found in get_close_matches(os.fsdecode(name).lower(), names, n=3, cutoff=0.7)]
