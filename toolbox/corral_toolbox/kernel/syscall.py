"""prctl, capset and the file-system ids, through ctypes: the calls that Python's os module does not have.

Every function either did what it says or raises OSError; nothing here is best effort.
"""

import ctypes
import os

_PR_SET_DUMPABLE = 4
_PR_GET_SECCOMP, _FILTERED = 21, 2
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_EPERM, _EINVAL, _ENOSYS = 1, 22, 38
# setresuid, setresgid: by number, because the C library's change all threads
_SET_IDS = {"x86_64": (117, 119), "aarch64": (147, 149)}.get(os.uname().machine)

_RT_SIGACTION = {"x86_64": 13, "aarch64": 134}.get(os.uname().machine)
_HANDLER, _MASK_BYTES = 8, 8
_IGNORED = 1
_OF_THE_LIBRARY = (32, 33)

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_setfsuid = _libc.setfsuid
_setfsgid = _libc.setfsgid
_setfsuid.argtypes = _setfsgid.argtypes = (ctypes.c_uint,)
_malloc_trim = getattr(_libc, "malloc_trim", None)
_CapabilityHeader = ctypes.c_uint32 * 2
_CapabilityData = ctypes.c_uint32 * 6
_NOBODY = 0xFFFFFFFF  # an id that cannot be set: the call only returns the current one
_KEEP = ctypes.c_long(-1)


def _call_prctl(option: int, argument: int = 0, second: int = 0) -> int:
    result = int(_prctl(option, argument, second, 0, 0))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl {option}: {os.strerror(error)}")
    return result


def set_nondumpable() -> None:
    """No core file, no ptrace, no /proc/<pid>/{mem,fd,environ} for others; forks inherit it, exec ends it."""
    _call_prctl(_PR_SET_DUMPABLE, 0)


def trim_heap() -> None:
    """Give unused memory of the C heap back to the kernel, where the C library can (glibc)."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def set_subreaper() -> None:
    """Orphans below this process become its children: the tree of a call stays whole, setsid or not."""
    _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def has_subreapers() -> bool:
    """Whether this kernel lets a process keep the orphans below it: a gVisor of before 2024 does not."""
    answer = ctypes.c_int()  # by name: it must outlive the call
    return int(_prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer), 0, 0, 0)) == 0


def has_file_ids() -> bool:
    """Whether this kernel is Linux: gVisor's, which a container runtime can put in its place, has no such ids."""
    return int(_setfsuid(_NOBODY)) != -1


def is_filtered() -> bool:
    """Whether a seccomp filter holds this process."""
    return int(_prctl(_PR_GET_SECCOMP, 0, 0, 0, 0)) == _FILTERED


def set_no_new_privs() -> None:
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_bounding_set() -> None:
    """No program run from here can gain a capability, set-id or file capabilities included."""
    for capability in range(64):
        try:
            if _call_prctl(_PR_CAPBSET_READ, capability):
                _call_prctl(_PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == _EINVAL:  # past the kernel's last capability
                break
            raise
    try:
        _call_prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        if error.errno != _EINVAL:
            raise


def read_capabilities() -> int:
    """Effective, permitted and inheritable sets of this process, or-ed together: 0 means none at all."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    data = _CapabilityData()
    if _libc.capget(header, data) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"capget: {os.strerror(error)}")
    low = data[0] | data[1] | data[2]
    return low | (data[3] | data[4] | data[5]) << 32


def lend_ids(uid: int, gid: int) -> None:
    """Do file-system work under these ids. Raises PermissionError when the kernel did not change them."""
    _setfsgid(gid)
    _setfsuid(uid)
    if (_setfsuid(_NOBODY) & _NOBODY, _setfsgid(_NOBODY) & _NOBODY) != (uid, gid):
        _lend_effective(uid, gid)


def _lend_effective(uid: int, gid: int) -> None:
    """The same where the kernel has no file-system ids (gVisor): this thread's effective ones.

    SECURITY: real and saved ids stay root's, and by those the kernel judges who may signal, trace or limit this process
    (tests/security/test_gvisor.py).
    """
    if _setfsuid(_NOBODY) != -1 or ctypes.get_errno() != _ENOSYS or _SET_IDS is None:
        raise PermissionError(_EPERM, f"file-system ids are not {uid}:{gid}")
    # Groups are changed while the user is root: another one lacks the right.
    for number, new in ((_SET_IDS[0], 0), (_SET_IDS[1], gid), (_SET_IDS[0], uid)):
        if _libc.syscall(number, _KEEP, new, _KEEP) != 0:
            error = ctypes.get_errno()
            raise PermissionError(error, f"effective ids are not {uid}:{gid}: {os.strerror(error)}")


def reset_library_signals() -> None:
    """Stop ignoring the two signals that glibc keeps for itself and lets nobody change by name.

    Its posix_spawn leaves them ignored in what it starts, and that is inherited by all below.
    """
    if _RT_SIGACTION is None:
        return
    for number in _OF_THE_LIBRARY:
        action = ctypes.create_string_buffer(32)
        if _libc.syscall(_RT_SIGACTION, number, None, action, _MASK_BYTES) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"rt_sigaction: {os.strerror(error)}")
        if int.from_bytes(action.raw[:_HANDLER], "little") == _IGNORED:
            _libc.syscall(_RT_SIGACTION, number, bytes(32), None, _MASK_BYTES)


def clear_inheritable() -> None:
    """Empty the inheritable set; permitted and effective stay, the ids still have to be dropped with them."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    data = _CapabilityData()
    if _libc.capget(header, data) != 0 or (data[2] or data[5]):
        data[2] = data[5] = 0
        if _libc.capset(header, data) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"capset: {os.strerror(error)}")
