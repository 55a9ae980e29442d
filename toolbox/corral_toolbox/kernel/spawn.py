"""Starts a program under other ids without changing those of any thread here, not even for a moment.

By vfork, and what the child does before it is the program is a list of system calls that a few instructions walk
through: it runs in this process's memory, so neither Python nor the C library may run there, and posix_spawn can only
make the caller's own real ids the effective ones. On machines these instructions are not for, a fork does the same.
"""

import ctypes
import fcntl
import os

from corral_toolbox.kernel.syscall import set_nondumpable
from corral_toolbox.kernel.terminal import SCTTY

_PR_SET_DUMPABLE, _F_SETFD = 4, 2
_READ, _WRITE, _EXECUTE, _PRIVATE_ANONYMOUS, _PAGE = 1, 2, 4, 0x22, 4096
_DUP3, _SETSID, _SETRESUID, _SETRESGID, _PRCTL, _FCNTL, _IOCTL, _EXECVE = 292, 112, 117, 119, 157, 72, 16, 59
_WALK = bytes.fromhex(
    "f30f1efa"  # endbr64
    "4989f9 4989f0"  # r9 = list of calls, r8 = where the child leaves its error
    "4989d2"  # r10 = the ticket: fourth argument of every call, which those made here have no use for
    "b83a000000 0f05 85c0 7529"  # vfork; in the parent, or without a child: go to the end
    "498b01 498b7908 498b7110 498b5118 0f05"  # next: rax, rdi, rsi, rdx = number and arguments; do it
    "4983c120 4885c0 79e6"  # r9 += 32; not an error: go to next
    "498900 bf7f000000 b83c000000 0f05"  # leave the error; exit 127
    "c3"  # end: return
)
"""x86_64. The child pushes nothing: the stack is its parent's, which waits until the program or the exit."""

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_mprotect = _libc.mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_Walk = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulong)


class Starter:
    """Starts programs; made once in a process."""

    def __init__(self, *, by_vfork: bool = os.uname().machine == "x86_64") -> None:
        place = _map_code(_WALK) if by_vfork else None
        self._walk = None if place is None else _Walk(place)
        self._env: dict[bytes, bytes] = {}
        """Of the latest start, and as the kernel reads it: the next one has mostly the same."""
        self._pairs: ctypes.Array[ctypes.c_char_p] = (ctypes.c_char_p * 1)()
        self.ticket = 0 if place is None else int.from_bytes(os.urandom(8), "little")
        """Goes along with the start of a program as an argument that the call does not have: a filter knows by it what
        was started here. 0: there is none."""

    def start(
        self,
        path: bytes,
        argv: list[bytes],
        env: dict[bytes, bytes],
        copies: list[tuple[int, int]],
        uid: int,
        gid: int,
        *,
        terminal: bool = False,
    ) -> int:
        """The pid of the program, in a session of its own, all its ids those given. Raises OSError.

        `copies` are the descriptors it gets: (ours, its own number). With `terminal` its 0 is the session's terminal.
        """
        if self._walk is None:
            return _start_by_fork(path, argv, env, copies, uid, gid, terminal=terminal)
        name = ctypes.c_char_p(path)
        words = (ctypes.c_char_p * (len(argv) + 1))(*argv)
        if env != self._env:
            self._env = dict(env)
            self._pairs = (ctypes.c_char_p * (len(env) + 1))(*[name + b"=" + value for name, value in env.items()])
        calls = [_SETSID, 0, 0, 0]
        for ours, its in copies:
            calls += (_DUP3, ours, its, 0) if ours != its else (_FCNTL, ours, _F_SETFD, 0)
        if terminal:
            calls += (_IOCTL, 0, SCTTY, 0)
        # SECURITY: every one must succeed, or the program never starts: it would run as root (test_spawn.py). The ids
        # are the child's alone. It still shares this memory, which changed ids must not open (suid_dumpable 1).
        calls += (_SETRESGID, gid, gid, gid, _SETRESUID, uid, uid, uid, _PRCTL, _PR_SET_DUMPABLE, 0, 0)
        calls += (_EXECVE, _find(name), ctypes.addressof(words), ctypes.addressof(self._pairs))
        error, table = ctypes.c_long(), (ctypes.c_long * len(calls))(*calls)
        pid = self._walk(table, ctypes.byref(error), self.ticket)
        if pid > 0 and error.value:
            os.waitpid(pid, 0)
        _check(-int(error.value or min(pid, 0)))
        return int(pid)


def _map_code(code: bytes) -> "int | None":
    """None where the machine's policy forbids to run what was written."""
    place = _mmap(None, _PAGE, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    if place in (None, ctypes.c_void_p(-1).value):
        return None
    ctypes.memmove(place, code, len(code))
    return int(place) if _mprotect(place, _PAGE, _READ | _EXECUTE) == 0 else None


def _find(text: ctypes.c_char_p) -> int:
    return ctypes.cast(text, ctypes.c_void_p).value or 0


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))


def _start_by_fork(
    path: bytes,
    argv: list[bytes],
    env: dict[bytes, bytes],
    copies: list[tuple[int, int]],
    uid: int,
    gid: int,
    *,
    terminal: bool,
) -> int:
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
        if not pid:
            _become(theirs, path, argv, env, copies, uid, gid, terminal=terminal)
        os.close(theirs)
        theirs = -1
        told = os.read(ours, 4)
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    if told:
        os.waitpid(pid, 0)
    _check(int.from_bytes(told, "little"))
    return pid


def _become(
    teller: int,
    path: bytes,
    argv: list[bytes],
    env: dict[bytes, bytes],
    copies: list[tuple[int, int]],
    uid: int,
    gid: int,
    *,
    terminal: bool,
) -> None:
    """In the fork: be the program, or tell why not. Never returns."""
    try:
        os.setsid()
        for ours, its in copies:
            os.dup2(ours, its)
            os.set_inheritable(its, True)  # also when both are one
        if terminal:
            fcntl.ioctl(0, SCTTY, 0)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        set_nondumpable()
        os.execve(path, argv, env)  # noqa: S606  # what this module is for
    except OSError as error:
        os.write(teller, (error.errno or 1).to_bytes(4, "little"))
    finally:
        os._exit(127)
