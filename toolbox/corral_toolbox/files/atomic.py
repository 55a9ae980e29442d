"""Replacing a file without a moment in which it is half written: a temporary file beside it, then one rename."""

from __future__ import annotations

import binascii
import ctypes
import errno
import os
import stat

from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.error_map import make_error, refuse_kind
from corral_toolbox.files.resolve import Place, make_parents, require_writable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TEMP_PREFIX = b".corral-tmp-"
_RENAME_NOREPLACE = 1


def create_temp(parent_fd: int) -> tuple[int, bytes]:
    """A new, empty, private file in a directory: (descriptor, name)."""
    name = TEMP_PREFIX + binascii.hexlify(os.urandom(8))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=parent_fd), name


def stage_bytes(
    parent_fd: int, chunks: Iterable[bytes | memoryview], mode: int, like: os.stat_result | None = None
) -> bytes:
    """Write chunks to a new temporary file and give its name; on failure nothing is left.

    With `like`, its owner and group are kept where the kernel allows it.
    """
    fd, name = create_temp(parent_fd)
    try:
        try:
            for chunk in chunks:
                write_all(fd, chunk)
            if like is not None:
                _keep_owner(fd, like)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
    except BaseException:
        remove_quietly(parent_fd, name)
        raise
    return name


def _keep_owner(fd: int, like: os.stat_result) -> None:
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
        try:
            os.fchown(fd, like.st_uid, like.st_gid)
        except OSError:
            pass  # told by describe_loss


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte, or raise OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def remove_quietly(parent_fd: int, name: bytes) -> None:
    """Remove a temporary file; it may be gone already."""
    try:
        os.unlink(name, dir_fd=parent_fd)
    except OSError:
        pass


def rename_exclusive(source_fd: int, source: bytes, target_fd: int, target: bytes) -> None:
    """Rename, never onto something that exists (FileExistsError), without a window between look and rename."""
    code = errno.ENOSYS
    if _renameat2 is not None:
        if _renameat2(source_fd, source, target_fd, target, _RENAME_NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
    if code not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(code, os.strerror(code))
    # Old kernels and some file systems do not know the flag; EINVAL also means "into itself", which rename repeats.
    if lookup(target_fd, target) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)


def _load_renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return call


_renameat2 = _load_renameat2()


def lookup(parent_fd: int, name: bytes) -> os.stat_result | None:
    """What a name is right now, links not followed; None when there is nothing."""
    try:
        return os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def is_unchanged(before: os.stat_result, now: os.stat_result | None) -> bool:
    """Whether a name still holds the very file, with the content, that was read before."""
    if now is None:
        return False
    old = (before.st_dev, before.st_ino, before.st_size, before.st_mtime_ns, before.st_ctime_ns)
    return old == (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)


def check_target(place: Place, *, overwrite: bool) -> None:
    """Refuse to write to a place that is read-only, a directory, special, or taken."""
    require_writable(place)
    if place.wants_dir or place.is_self:
        raise make_error(ErrorCode.IS_A_DIRECTORY, place.path, "names a directory", "name a file")
    if place.stat is None:
        return
    if not stat.S_ISREG(place.stat.st_mode):
        raise refuse_kind(place.path, place.stat.st_mode)
    if not overwrite:
        raise make_error(ErrorCode.EXISTS, place.path, "exists already", "set overwrite, or edit the file instead")
    if not place.stat.st_mode & 0o222:
        # A rename needs only the directory's permission, so the file's own wish not to be written is asked here.
        mode = stat.S_IMODE(place.stat.st_mode)
        raise make_error(ErrorCode.PERMISSION_DENIED, place.path, f"is read-only (mode {mode:04o})", "chmod it first")


def open_parents(place: Place, *, create: bool, made: list[tuple[int, bytes]] | None = None) -> None:
    """Make sure that the directory of a place exists; `made` as in make_parents."""
    if not place.missing:
        return
    if not create:
        raise make_error(ErrorCode.NOT_FOUND, place.path, "its directory does not exist", "set make_parents")
    make_parents(place, made)


def replace_file(
    place: Place, chunks: Iterable[bytes | memoryview], *, mode: int | None, overwrite: bool, parents: bool = True
) -> list[str]:
    """Put new content at a place, all or nothing; gives notices. The place's stat is what the caller has seen."""
    made: list[tuple[int, bytes]] = []
    try:
        open_parents(place, create=parents, made=made)
        return _replace(place, chunks, mode, overwrite=overwrite)
    except BaseException:
        remove_made(made)
        raise
    finally:
        for fd, _ in made:
            os.close(fd)


def remove_made(made: list[tuple[int, bytes]]) -> None:
    """After a failure: directories that were created for nothing go again, unless somebody uses them."""
    for fd, name in reversed(made):
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError:
            pass


def _replace(place: Place, chunks: Iterable[bytes | memoryview], mode: int | None, *, overwrite: bool) -> list[str]:
    before = place.stat
    keep = stat.S_IMODE(before.st_mode) if before is not None else 0o644
    temp = stage_bytes(place.parent_fd, chunks, keep if mode is None or before is not None else mode, before)
    try:
        if before is None and not overwrite:
            rename_exclusive(place.parent_fd, temp, place.parent_fd, place.name)
        else:
            if before is not None:
                require_unchanged(place, before)
            os.rename(temp, place.name, src_dir_fd=place.parent_fd, dst_dir_fd=place.parent_fd)
    except BaseException:
        remove_quietly(place.parent_fd, temp)
        raise
    return [] if before is None else describe_loss(before, lookup(place.parent_fd, place.name))


def require_unchanged(place: Place, before: os.stat_result) -> None:
    """Refuse when the place no longer holds the file that was read."""
    if not is_unchanged(before, lookup(place.parent_fd, place.name)):
        raise make_error(ErrorCode.PATCH_CONFLICT, place.path, "was changed by somebody else just now", "read it again")


def describe_loss(before: os.stat_result, now: os.stat_result | None) -> list[str]:
    """What a replaced file could not keep, in words."""
    notices: list[str] = []
    if now is not None and (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        notices.append(f"the owner changed from {before.st_uid}:{before.st_gid} to {now.st_uid}:{now.st_gid}")
    if before.st_nlink > 1:
        notices.append(f"the file had {before.st_nlink} hard links; only this name has the new content")
    return notices
