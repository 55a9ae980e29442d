"""file.move and file.delete: names change or go; links are never followed."""

from __future__ import annotations

import errno
import os
import stat

from corral_protocol.name import encode_name
from corral_toolbox.files.atomic import (
    lookup,
    open_parents,
    rename_exclusive,
    replace_file,
)
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.error_map import make_error, name_kind
from corral_toolbox.files.params import Params, take_bool, take_name
from corral_toolbox.files.resolve import FileEnv, Place, is_below, open_regular, require_writable, resolve
from corral_toolbox.files.suggest import explain_missing

MAX_DEPTH = 256
"""One descriptor is open per level while a tree is walked."""
_CHUNK_BYTES = 256 << 10


def move_file(params: Params, env: FileEnv) -> dict[str, object]:
    """FileMove -> FileChanged."""
    overwrite = take_bool(params, "overwrite", default=False)
    with (
        resolve(env, take_name(params, "source"), follow=False) as source,
        resolve(env, take_name(params, "target"), follow=False) as target,
    ):
        found = _check_move(source, target, overwrite=overwrite)
        open_parents(target, create=take_bool(params, "make_parents", default=True))
        _rename(source, target, found, overwrite=overwrite)
        return _changed(target.path, "moved", [f"moved from {encode_name(source.path)!r}"], found)


def _check_move(source: Place, target: Place, *, overwrite: bool) -> os.stat_result:
    _refuse_self(source)
    require_writable(source)
    require_writable(target)
    if source.stat is None:
        raise explain_missing(source.parent_fd, source.name, source.path, len(source.missing))
    if target.path == source.path:
        raise make_error(ErrorCode.NO_CHANGE, source.path, "source and target are the same")
    if stat.S_ISDIR(source.stat.st_mode) and is_below(target.path, source.path):
        raise make_error(ErrorCode.INVALID_ARGUMENT, source.path, "a directory cannot be moved into itself")
    if target.stat is None or _is_case_rename(source, target):
        return source.stat
    if stat.S_ISDIR(target.stat.st_mode):
        if not (overwrite and stat.S_ISDIR(source.stat.st_mode)):
            inside = encode_name(target.path + b"/" + source.name)
            raise make_error(
                ErrorCode.EXISTS,
                target.path,
                "is an existing directory",
                f"to move into it, name the target {inside!r}",
            )
    elif not overwrite:
        raise make_error(ErrorCode.EXISTS, target.path, "exists already", "set overwrite, or choose another name")
    return source.stat


def _is_case_rename(source: Place, target: Place) -> bool:
    """On a file system that ignores case, README and readme are one file that may be renamed to the other form."""
    if source.stat is None or target.stat is None or source.stat.st_nlink != 1:
        return False
    same = (source.stat.st_dev, source.stat.st_ino) == (target.stat.st_dev, target.stat.st_ino)
    return same and source.path.lower() == target.path.lower()


def _rename(source: Place, target: Place, found: os.stat_result, *, overwrite: bool) -> None:
    try:
        if target.stat is None:
            rename_exclusive(source.parent_fd, source.name, target.parent_fd, target.name)
            return
        os.rename(source.name, target.name, src_dir_fd=source.parent_fd, dst_dir_fd=target.parent_fd)
    except FileExistsError:
        raise make_error(ErrorCode.EXISTS, target.path, "exists already", "set overwrite") from None
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise make_target_error(error, target) from error
        _copy_across(source, target, found, overwrite=overwrite)
        return
    # Two names of one inode: rename(2) does nothing and says that it worked.
    left = lookup(source.parent_fd, source.name)
    if left is not None and left.st_ino == found.st_ino and not _is_case_rename(source, target):
        os.unlink(source.name, dir_fd=source.parent_fd)


def make_target_error(error: OSError, target: Place) -> Exception:
    """A directory in the way is the target's fault, not the source's."""
    if error.errno in (errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR):
        return make_error(
            ErrorCode.NOT_EMPTY if error.errno == errno.ENOTEMPTY else ErrorCode.EXISTS,
            target.path,
            "the target is in the way",
            "delete it first",
        )
    return error


def _copy_across(source: Place, target: Place, found: os.stat_result, *, overwrite: bool) -> None:
    """Between file systems (/workspace and /tmp): copy a file or link, then remove the source."""
    if stat.S_ISLNK(found.st_mode):
        if target.stat is not None:
            os.unlink(target.name, dir_fd=target.parent_fd)
        os.symlink(os.readlink(source.name, dir_fd=source.parent_fd), target.name, dir_fd=target.parent_fd)
    elif stat.S_ISREG(found.st_mode):
        fd, found = open_regular(source)
        try:
            chunks = iter(lambda: os.read(fd, _CHUNK_BYTES), b"")
            target.stat = None if target.stat is None or not stat.S_ISREG(target.stat.st_mode) else target.stat
            replace_file(target, chunks, mode=stat.S_IMODE(found.st_mode), overwrite=overwrite)
        finally:
            os.close(fd)
    else:
        raise OSError(errno.EXDEV, "different file systems")
    os.unlink(source.name, dir_fd=source.parent_fd)


def delete_file(params: Params, env: FileEnv) -> dict[str, object]:
    """FileDelete -> FileChanged. A link is deleted itself, what it points to stays."""
    recursive = take_bool(params, "recursive", default=False)
    with resolve(env, take_name(params, "path"), follow=False) as place:
        _refuse_self(place)
        require_writable(place)
        if place.stat is None:
            raise explain_missing(place.parent_fd, place.name, place.path, len(place.missing))
        notices: list[str] = []
        if not stat.S_ISDIR(place.stat.st_mode):
            os.unlink(place.name, dir_fd=place.parent_fd)
        elif not recursive:
            _remove_empty(place)
        else:
            count = _remove_tree(place.parent_fd, place.name, place.path, 0)
            notices.append(f"deleted a directory with {count} entries")
        return _changed(place.path, "deleted", notices, place.stat)


def _remove_empty(place: Place) -> None:
    try:
        os.rmdir(place.name, dir_fd=place.parent_fd)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        raise make_error(
            ErrorCode.NOT_EMPTY, place.path, "the directory is not empty", "set recursive to delete all of it"
        ) from None


def _remove_tree(parent_fd: int, name: bytes, path: bytes, depth: int) -> int:
    """Remove a directory and all below it; gives the number of entries that were in it."""
    if depth >= MAX_DEPTH:
        raise make_error(ErrorCode.TOO_LARGE, path, f"is deeper than {MAX_DEPTH} levels", "use rm -r in the shell")
    # SECURITY: NOFOLLOW on every level, or a directory swapped for a link empties its target (test_resolve_race.py).
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    count = 0
    try:
        with os.scandir(fd) as entries:
            names = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
        for child, is_dir in names:
            count += 1
            if is_dir:
                count += _remove_tree(fd, child, path + b"/" + child, depth + 1)
            else:
                os.unlink(child, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent_fd)
    return count


def _refuse_self(place: Place) -> None:
    if place.is_self:
        raise make_error(
            ErrorCode.INVALID_ARGUMENT, place.path, "names a root, or ends in `..`", "name the entry itself"
        )


def _changed(path: bytes, action: str, notices: list[str], found: os.stat_result) -> dict[str, object]:
    kind = name_kind(found.st_mode)
    if kind not in ("file", "dir"):
        notices.append(f"it was a {kind}; what it points to is untouched" if kind == "symlink" else f"it was a {kind}")
    size = found.st_size if kind == "file" and action != "deleted" else 0
    return {
        "path": encode_name(path),
        "action": action,
        "size": size,
        "sha256": "",
        "replaced": 0,
        "diff": "",
        "notices": notices,
    }
