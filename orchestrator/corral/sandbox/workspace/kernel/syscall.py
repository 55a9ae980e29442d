"""The few system calls that the standard library lacks, through ctypes. Each raises OSError with the kernel's errno.

The numbers of the mount calls are the same on x86-64 and arm64.
"""

from __future__ import annotations

import ctypes
import os
import signal

_OPEN_TREE = 428
_MOVE_MOUNT = 429
_FSOPEN = 430
_FSCONFIG = 431
_FSMOUNT = 432
_MOUNT_SETATTR = 442

AT_EMPTY_PATH = 0x1000
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 0x4
MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_NOEXEC = 0x8
MOUNT_ATTR_IDMAP = 0x00100000
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8
CLONE_NEWUSER = 0x10000000
CLONE_FILES = 0x400

_FSCONFIG_SET_FLAG = 0
_FSCONFIG_SET_STRING = 1
_FSCONFIG_CMD_CREATE = 6
_FSOPEN_CLOEXEC = 1
_FSMOUNT_CLOEXEC = 1
_CHILD_STACK = 64 << 10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttr(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def clone_mount(directory: int) -> int:
    """A detached copy of the mount at the open directory, its submounts left out. Returns a descriptor."""
    return _call(_OPEN_TREE, directory, b"", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)


def set_mount_attributes(mount: int, attributes: int, *, user_namespace: int | None = None) -> None:
    """Change a detached mount; with `user_namespace` its ids are mapped through that namespace. It becomes private."""
    setting = _MountAttr(attributes, 0, MS_PRIVATE, 0)
    if user_namespace is not None:
        setting.attr_set |= MOUNT_ATTR_IDMAP
        setting.userns_fd = user_namespace
    _call(_MOUNT_SETATTR, mount, b"", AT_EMPTY_PATH, ctypes.byref(setting), ctypes.sizeof(setting))


def attach_mount(mount: int, target: str) -> None:
    _call(_MOVE_MOUNT, mount, b"", -100, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH)


def unmount(target: str) -> None:
    """Take a mount out of the tree now; who still uses it keeps it."""
    if _libc.umount2(os.fsencode(target), MNT_DETACH | UMOUNT_NOFOLLOW) != 0:
        raise _last_error(target)


def try_mount(filesystem: str, options: list[tuple[str, str | None]]) -> None:
    """Make a mount that is attached nowhere and drop it again: does the kernel take these options?"""
    os.close(make_mount(filesystem, options))


def make_mount(filesystem: str, options: list[tuple[str, str | None]], attributes: int = 0) -> int:
    """A mount that is attached nowhere yet. Returns a descriptor; closing it drops the mount."""
    context = _call(_FSOPEN, filesystem.encode(), _FSOPEN_CLOEXEC)
    try:
        for key, value in options:
            if value is None:
                _call(_FSCONFIG, context, _FSCONFIG_SET_FLAG, key.encode(), None, 0)
            else:
                _call(_FSCONFIG, context, _FSCONFIG_SET_STRING, key.encode(), os.fsencode(value), 0)
        _call(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _call(_FSMOUNT, context, _FSMOUNT_CLOEXEC, attributes)
    finally:
        os.close(context)


def share_mount(target: str) -> None:
    """What is mounted below this mount from now on also appears where it is a slave."""
    if _libc.mount(None, os.fsencode(target), None, ctypes.c_ulong(MS_SHARED), None) != 0:
        raise _last_error(target)


def spawn_namespace_holder(seconds: int) -> int:
    """Start a process in a new user namespace that does nothing but sleep. Returns its pid; the caller ends it.

    The child begins in libc's sleep() and never runs Python: a copy of a process with threads must not touch the
    allocator or the interpreter's lock. It ends by itself, so that a parent killed here leaves nothing behind. It
    shares our descriptors: with copies of its own it would keep a mount busy that another thread has dropped.
    """
    stack = ctypes.create_string_buffer(_CHILD_STACK)
    top = (ctypes.addressof(stack) + _CHILD_STACK) & ~0xF
    entry = ctypes.cast(_libc.sleep, ctypes.c_void_p)
    # The child inherits handlers and the wake-up pipe of the event loop: with signals blocked a Ctrl-C counts once.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = _libc.clone(
            entry,
            ctypes.c_void_p(top),
            ctypes.c_int(CLONE_NEWUSER | CLONE_FILES | signal.SIGCHLD),
            ctypes.c_void_p(seconds),
        )
        failure = _last_error("clone") if pid < 0 else None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if failure is not None:
        raise failure
    return int(pid)


def _call(number: int, *arguments: object) -> int:
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        raise _last_error(None)
    return result


def _last_error(name: str | None) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), name) if name else OSError(number, os.strerror(number))
