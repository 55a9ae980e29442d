"""Turns what the kernel says (errno) into the closed set of error codes, in words that say what to do next."""

from __future__ import annotations

import errno
import stat

from corral_protocol.failure import WireError
from corral_protocol.name import encode_name
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.text.visible import show_path

_CODES: dict[int, tuple[ErrorCode, str, str]] = {
    errno.ENOENT: (ErrorCode.NOT_FOUND, "does not exist", "list the directory to see the names that exist"),
    errno.EEXIST: (ErrorCode.EXISTS, "exists already", ""),
    errno.ENOTDIR: (ErrorCode.NOT_A_DIRECTORY, "a part of the path is not a directory", ""),
    errno.EISDIR: (ErrorCode.IS_A_DIRECTORY, "is a directory", ""),
    errno.ENOTEMPTY: (ErrorCode.NOT_EMPTY, "the directory is not empty", ""),
    errno.EACCES: (ErrorCode.PERMISSION_DENIED, "permission denied", "look at its mode and owner with `ls -ld`"),
    errno.EPERM: (ErrorCode.PERMISSION_DENIED, "operation not permitted", "look at its mode and owner with `ls -ld`"),
    errno.EROFS: (ErrorCode.READ_ONLY, "lies on a read-only file system", "write below the workspace or /tmp"),
    errno.ENOSPC: (ErrorCode.NO_SPACE, "no space or no inodes left", "delete files that are not needed"),
    errno.EDQUOT: (ErrorCode.NO_SPACE, "the disk quota is used up", "delete files that are not needed"),
    errno.EFBIG: (ErrorCode.NO_SPACE, "the file would be larger than the limit", "write less"),
    errno.ENAMETOOLONG: (ErrorCode.INVALID_ARGUMENT, "the name is too long", "a name may have 255 bytes, a path 4096"),
    errno.ELOOP: (ErrorCode.INVALID_ARGUMENT, "too many symbolic links, or it became one just now", ""),
    errno.EINVAL: (ErrorCode.INVALID_ARGUMENT, "the kernel refuses this operation here", ""),
    errno.ENXIO: (ErrorCode.NOT_A_REGULAR_FILE, "is not a regular file", ""),
    errno.ETXTBSY: (ErrorCode.BUSY, "is being executed", "end the program first"),
    errno.EBUSY: (ErrorCode.BUSY, "is in use (a mount point?)", ""),
    errno.EMFILE: (ErrorCode.BUSY, "too many open files", "try again"),
    errno.ENFILE: (ErrorCode.BUSY, "too many open files", "try again"),
    errno.ENOMEM: (ErrorCode.BUSY, "not enough memory", "end programs that are not needed"),
    errno.EOPNOTSUPP: (ErrorCode.UNSUPPORTED, "the file system does not support this", ""),
    errno.EXDEV: (ErrorCode.UNSUPPORTED, "source and target are on different file systems", "copy with the shell"),
}

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def name_kind(mode: int) -> str:
    """What a st_mode is, in the words of the wire: file dir symlink fifo socket device."""
    return _KINDS.get(stat.S_IFMT(mode), "device")


def make_error(code: ErrorCode, path: bytes, message: str, hint: str = "", **data: object) -> WireError:
    """An error about one path; the path is in the message (visible) and in the data (wire form)."""
    full: dict[str, object] = {"path": encode_name(path), **data}
    if hint:
        full["hint"] = hint
    return WireError(code, f"{show_path(path)}: {message}", full)


def translate_os_error(error: OSError, path: bytes) -> WireError:
    """The error code for an errno; unknown ones are io_error with the errno's name."""
    number = error.errno or 0
    known = _CODES.get(number)
    if known is None:
        return make_error(ErrorCode.IO_ERROR, path, f"input/output failed ({errno.errorcode.get(number, number)})")
    code, message, hint = known
    return make_error(code, path, message, hint)


def refuse_kind(path: bytes, mode: int) -> WireError:
    """The error for something that is not a regular file."""
    kind = name_kind(mode)
    if kind == "dir":
        return make_error(ErrorCode.IS_A_DIRECTORY, path, "is a directory", "use list_files for directories")
    return make_error(
        ErrorCode.NOT_A_REGULAR_FILE, path, f"not_a_regular_file ({kind})", "only regular files are read and written"
    )
