"""Landlock: a second layer under permissions and mounts, which this process and all its descendants keep for ever.

One domain for the box, not one a call: between domains of one box the kernel also refuses signals, ptrace and
/proc/<pid>/fd, and a shell could not stop or look at the server that an earlier call started.

Numbers and structures: linux/landlock.h, and Documentation/userspace-api/landlock.rst for what each ABI added.
"""

import ctypes
import os

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_WRITE_FILE = 1 << 1
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = [1 << bit for bit in range(6, 13)]
_REFER = 1 << 13  # ABI 2: without it no rename or link between directories at all
_TRUNCATE = 1 << 14  # ABI 3
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2  # ABI 6

_USED = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM | _REFER
_NEVER = _MAKE_CHAR | _MAKE_BLOCK

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def find_abi() -> int:
    """The kernel's version of Landlock; 0 where it has none."""
    return max(0, int(_syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)))


def confine(trees: list[bytes], existing: list[bytes]) -> bool:
    """Making, removing and writing only below `trees`, writing alone also below `existing`.

    Signals and abstract sockets reach nobody outside. Needs no_new_privs; a place that does not exist is left out.
    False where the kernel cannot do it. Raises OSError.
    """
    abi = find_abi()
    if abi < 2:
        return False
    truncate = _TRUNCATE if abi >= 3 else 0
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if abi >= 6 else 0
    attributes = b"".join(word.to_bytes(8, "little") for word in (_USED | _NEVER | truncate, 0, scoped))
    ruleset = _call(_CREATE_RULESET, attributes[: 24 if abi >= 6 else 8], 0)
    try:
        for tree in trees:
            _allow(ruleset, tree, _USED | truncate)
        for tree in existing:
            _allow(ruleset, tree, _WRITE_FILE | truncate)
        _check(_syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _allow(ruleset: int, tree: bytes, rights: int) -> None:
    try:
        place = os.open(tree, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = rights.to_bytes(8, "little") + place.to_bytes(4, "little")  # packed: 12 bytes
        _check(_syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(place)


def _call(number: int, attributes: bytes, flags: int) -> int:
    return _check(_syscall(number, attributes, ctypes.c_size_t(len(attributes)), flags))


def _check(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"landlock: {os.strerror(error)}")
    return int(result)
