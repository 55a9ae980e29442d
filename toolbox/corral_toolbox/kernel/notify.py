"""seccomp user notification by raw BPF and ioctls: a thread filters itself, and another answers for what it starts.

The filter only ever notifies or refuses; what may run at all is decided by the container's own profile, whose refusal
comes first. `sendmsg` is not trapped (its cost, and a descriptor hand-over would wait for itself), but for the one
flag with which it connects.
"""

import ctypes
import fcntl
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    _Resolve = Callable[[dict[str, int]], bytes]

# execve, execveat, connect, bind, sendto, socket, sendmsg, sendmmsg; then seccomp itself, and the AUDIT_ARCH
_NUMBERS = {
    "x86_64": ((59, 322, 42, 49, 44, 41, 46, 307), 317, 0xC000003E),
    "aarch64": ((221, 281, 203, 200, 206, 198, 211, 269), 277, 0xC00000B7),
}
_MACHINE = _NUMBERS.get(os.uname().machine)
EXECVE, EXECVEAT, CONNECT, BIND, SENDTO, SOCKET, SENDMSG, SENDMMSG = _MACHINE[0] if _MACHINE else (-1,) * 8

_SET_MODE_FILTER, _GET_ACTION_AVAIL, _GET_NOTIF_SIZES = 1, 2, 3
_NEW_LISTENER, _WAIT_KILLABLE_RECV = 1 << 3, 1 << 5
_RET_ALLOW, _RET_NOTIFY, _RET_ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_ENOSYS, _EINTR, _ENOENT, _EINVAL = 38, 4, 2, 22
_IOCTL_RECV, _IOCTL_SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_NOTICE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_EMPTY = bytes(_NOTICE.size)
_X32_BIT = 0x40000000
_MSG_FASTOPEN = 0x20000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NR, _ARCH, _ARGUMENTS = 0, 4, 16

libc = ctypes.CDLL(None, use_errno=True)

Notice = tuple[int, int, int, tuple[int, ...]]
"""id of the notice, thread that waits, number of the call, its arguments"""


def _build_filter(ticket: int = 0) -> bytes:
    """The program: labels first, then the jumps are made relative."""
    assert _MACHINE is not None
    lines: list[str | tuple[int, int, str, str]] = []

    def check(code: int, value: int, yes: str = "", no: str = "") -> None:
        lines.append((code, value, yes, no))

    def load(offset: int) -> None:
        lines.append((_LOAD, offset, "", ""))

    load(_ARCH)
    # SECURITY: calls by other numbers than these would pass unseen (test_notify.py).
    check(_EQUAL, _MACHINE[2], no="unknown")
    load(_NR)
    check(_AT_LEAST, _X32_BIT, "unknown")
    check(_EQUAL, EXECVE, "execve" if ticket else "notify")
    for number in (EXECVEAT, CONNECT, BIND):
        check(_EQUAL, number, "notify")
    check(_EQUAL, SENDTO, "sendto")
    check(_EQUAL, SOCKET, "socket")
    check(_EQUAL, SENDMSG, "sendmsg")
    check(_EQUAL, SENDMMSG, "sendmmsg", "allow")
    lines.append("execve")
    load(_ARGUMENTS + 8 * 3)
    # SECURITY: 64 bits that no untrusted process can read, or a program starts unseen (test_process_record.py).
    check(_EQUAL, ticket & 0xFFFFFFFF, no="notify")
    load(_ARGUMENTS + 8 * 3 + 4)
    check(_EQUAL, ticket >> 32, "allow", "notify")
    lines.append("sendto")  # with an address: either half of the pointer is set
    load(_ARGUMENTS + 8 * 4)
    check(_EQUAL, 0, no="notify")
    load(_ARGUMENTS + 8 * 4 + 4)
    check(_EQUAL, 0, "allow", "notify")
    lines.append("socket")
    load(_ARGUMENTS)
    check(_EQUAL, 2, "internet")  # AF_INET
    check(_EQUAL, 10, "internet", "allow")  # AF_INET6
    lines.append("internet")
    load(_ARGUMENTS + 8)
    check(_AND, 0xF)
    check(_EQUAL, 1, "allow", "notify")  # SOCK_STREAM does nothing before it connects
    lines.append("sendmsg")
    load(_ARGUMENTS + 8 * 2)
    check(_ANY_BIT, _MSG_FASTOPEN, "notify", "allow")
    lines.append("sendmmsg")
    load(_ARGUMENTS + 8 * 3)
    check(_ANY_BIT, _MSG_FASTOPEN, "notify", "allow")
    for label, action in (
        ("allow", _RET_ALLOW),
        ("notify", _RET_NOTIFY),
        ("unknown", _RET_ERRNO | _ENOSYS),
    ):
        lines.append(label)
        check(_RETURN, action)
    return _assemble(lines)


def _assemble(lines: "list[str | tuple[int, int, str, str]]") -> bytes:
    places: dict[str, int] = {}
    code: list[tuple[int, int, str, str]] = []
    for line in lines:
        if isinstance(line, str):
            places[line] = len(code)
        else:
            code.append(line)
    program = b""
    for here, (operation, value, yes, no) in enumerate(code):
        jumps = [places[label] - here - 1 if label else 0 for label in (yes, no)]
        program += struct.pack("=HBBI", operation, *jumps, value)
    return program


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def explain_missing() -> str:
    """Why this kernel or runtime cannot notify; "" when it says it can."""
    if _MACHINE is None:
        return f"not known on {os.uname().machine}"
    action = ctypes.c_uint32(_RET_NOTIFY)
    if libc.syscall(_MACHINE[1], _GET_ACTION_AVAIL, 0, ctypes.byref(action)) != 0:
        return "the kernel or the runtime has no seccomp user notification"
    sizes = (ctypes.c_uint16 * 3)()
    if libc.syscall(_MACHINE[1], _GET_NOTIF_SIZES, 0, sizes) != 0 or (sizes[0], sizes[1]) != (
        _NOTICE.size,
        _ANSWER.size,
    ):
        return "the kernel's notifications have another shape"
    try:
        fd = os.open("/proc/sys/kernel/yama/ptrace_scope", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        scope = os.read(fd, 16).strip()
    finally:
        os.close(fd)
    return "kernel.yama.ptrace_scope lets nobody read arguments" if scope in (b"2", b"3") else ""


def install(ticket: int = 0) -> int:
    """Filter this thread and all it starts; returns the descriptor of the listener. Needs no-new-privileges.

    An `execve` with `ticket` as its fourth argument, which it does not have, passes without a notice.
    """
    if _MACHINE is None:
        raise OSError(_ENOSYS, "no filter for this machine")
    code = _build_filter(ticket)
    program = _Program(len(code) // 8, code)
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE_RECV, _NEW_LISTENER):
        fd = int(libc.syscall(_MACHINE[1], _SET_MODE_FILTER, flags, ctypes.byref(program)))
        if fd >= 0:
            # Not told to wake up on the caller's processor (SYNC_WAKE_UP): that draws a whole parallel build onto one.
            return fd
        error = ctypes.get_errno()
        if error != _EINVAL:
            break
    raise OSError(error, f"seccomp: {os.strerror(error)}")


def receive(listener: int) -> "Notice | None":
    """The next notice; None when who waited has gone meanwhile."""
    try:
        raw = fcntl.ioctl(listener, _IOCTL_RECV, _EMPTY)
    except OSError as error:
        if error.errno in (_ENOENT, _EINTR):
            return None
        raise
    number, thread, _, call, _, _, *arguments = _NOTICE.unpack(raw)
    return number, thread, call, tuple(arguments)


def let_go_on(listener: int, number: int) -> bool:
    """The call is made as if nobody had looked. False when who waited has gone meanwhile."""
    return _answer(listener, number, 0, _CONTINUE)


def refuse(listener: int, number: int, error: int) -> bool:
    """The call fails with this errno. False when who waited has gone meanwhile."""
    return _answer(listener, number, -error, 0)


def _answer(listener: int, number: int, error: int, flags: int) -> bool:
    try:
        fcntl.ioctl(listener, _IOCTL_SEND, _ANSWER.pack(number, 0, error, flags))
    except OSError as failure:
        if failure.errno != _ENOENT:
            raise
        return False
    return True
