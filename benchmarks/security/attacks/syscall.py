"""System calls by number, past the C library, and whether the kernel was reached by one."""

from __future__ import annotations

import ctypes
import errno
import os

from .attack import Unable

LIBC = ctypes.CDLL(None, use_errno=True)
IS_X86 = os.uname().machine == "x86_64"
NUMBERS = {  # x86_64, aarch64 (0: has none)
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435),
    "delete_module": (176, 106), "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "finit_module": (313, 273),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "get_mempolicy": (239, 236), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioctl": (16, 29), "ioperm": (173, 0),
    "iopl": (172, 0), "ioprio_set": (251, 30), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "listmount": (458, 458), "lookup_dcookie": (212, 18),
    "lsm_list_modules": (461, 461), "mbind": (237, 235), "memfd_secret": (447, 447), "migrate_pages": (256, 238),
    "modify_ldt": (154, 0), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "move_pages": (279, 239), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pivot_root": (155, 41), "process_madvise": (440, 440),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "reboot": (169, 142), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138),
    "set_mempolicy": (238, 237), "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268),
    "settimeofday": (164, 170), "statmount": (457, 457), "swapoff": (168, 225), "swapon": (167, 224),
    "sysfs": (139, 0), "syslog": (103, 116), "tgkill": (234, 131), "tkill": (200, 130), "umount2": (166, 39),
    "unshare": (272, 97), "userfaultfd": (323, 282), "ustat": (136, 0), "vhangup": (153, 58), "vmsplice": (278, 75),
}  # fmt: skip


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """The result. Raises OSError, and Unable where this processor has no such call."""
    number = NUMBERS[name][0 if IS_X86 else 1]
    if not number:
        raise Unable(f"{name} does not exist on {os.uname().machine}")
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    ctypes.set_errno(0)
    result = int(LIBC.syscall(ctypes.c_long(number), *words))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def reach(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> str:
    """How the kernel itself answered: any error but a refusal says that the call got through."""
    try:
        return f"returned {call(name, *arguments)}"
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise
        return f"the kernel answered {errno.errorcode.get(error.errno or 0, error.errno)}"
