"""Has libseccomp build each profile, for both architectures: run when the sandbox image is made, with its libseccomp.

python check.py PROFILE.json...   Exits with 1, and says which rule, when one is refused.

The engine leaves out, without a word, what its libseccomp does not know. A call that ought to be allowed would then be
refused, and a condition that cannot be expressed would be missing: both are found here instead.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_MASKED_EQ = 7
_UNKNOWN = -1
_ARCHITECTURES = {"SCMP_ARCH_X86_64": 0xC000003E, "SCMP_ARCH_AARCH64": 0xC00000B7}


class Comparison(ctypes.Structure):
    """libseccomp's `struct scmp_arg_cmp`."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def open_library() -> ctypes.CDLL:
    """Raises OSError where there is none."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    library.seccomp_arch_native.restype = ctypes.c_uint32
    library.seccomp_arch_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(Comparison),
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library


def find_faults(library: ctypes.CDLL, profile: dict) -> list[str]:  # type: ignore[type-arg]  # of json
    """What this libseccomp cannot do; [] when a whole filter came of it."""
    default = _ERRNO | profile["defaultErrnoRet"]
    context = ctypes.c_void_p(library.seccomp_init(default))
    native = library.seccomp_arch_native()
    for entry in profile["archMap"]:
        architecture = _ARCHITECTURES[entry["architecture"]]
        if architecture != native and library.seccomp_arch_add(context, architecture):
            return [f"architecture {architecture:#x} is refused"]
    faults = []
    for rule in profile["syscalls"]:
        for name in rule["names"]:
            faults += _add(library, context, rule, name)
    with open(os.devnull, "wb") as sink:
        if library.seccomp_export_bpf(context, sink.fileno()):
            faults.append("the filter as a whole is refused")
    library.seccomp_release(context)
    return faults


def _add(library: ctypes.CDLL, context: ctypes.c_void_p, rule: dict, name: str) -> list[str]:  # type: ignore[type-arg]
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number == _UNKNOWN:
        # Newer than the library, or gone: refused by default anyway. Not so if it is to be allowed on a condition.
        return [f"{name}: unknown, and it has a condition"] if rule["args"] else []
    action = _ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else _ERRNO | rule["errnoRet"]
    if action == _ERRNO | 1:
        return []  # what the filter does anyway: the library takes no such rule, nor does the engine need it
    compared = [Comparison(arg["index"], _MASKED_EQ, arg["value"], arg["valueTwo"]) for arg in rule["args"]]
    array = (Comparison * max(len(compared), 1))(*compared)
    failed = library.seccomp_rule_add_array(context, action, number, len(compared), array)
    return [f"{name}: {os.strerror(-failed)}"] if failed else []


def main() -> int:
    try:
        library = open_library()
    except OSError as error:
        sys.stderr.write(f"seccomp profiles not checked: {error}\n")
        return 0
    status = 0
    for file in sys.argv[1:]:
        faults = find_faults(library, json.loads(Path(file).read_text(encoding="utf-8")))
        for fault in faults:
            sys.stderr.write(f"{file}: {fault}\n")
        status |= bool(faults)
    return status


if __name__ == "__main__":
    sys.exit(main())
