"""The kernel's surface: every call that the filter is there to close, with arguments that do no harm if it does not."""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import pty
import stat
import struct

from .attack import Table, Unable
from .syscall import IS_X86, LIBC, call, reach

KERNEL = Table("kernel surface")
_HERE = -100  # AT_FDCWD

_CALLS: tuple[tuple[str, str, tuple[int | bytes | None, ...]], ...] = (
    ("io_uring_setup", "input and output past the filter", (1, 0)),
    ("io_uring_enter", "the same, submit", (-1, 0, 0, 0, 0, 0)),
    ("io_uring_register", "the same, register", (-1, 0, 0, 0)),
    ("userfaultfd", "stop the kernel in the middle of a copy", (0,)),
    ("bpf", "load a program into the kernel", (0, 0, 0)),
    ("perf_event_open", "watch the whole machine's counters", (0, 0, 0, 0, 0)),
    ("add_key", "put a key into a ring that other boxes share", (0, 0, 0, 0, -3)),
    ("request_key", "have the kernel start its key helper", (0, 0, 0, -3)),
    ("keyctl", "read key rings", (0, -3, 0)),
    ("memfd_secret", "memory that nobody else can see", (0,)),
    ("process_madvise", "advise on another process's memory", (-1, 0, 0, 0, 0)),
    ("ptrace", "trace a process", (16, 0, 0, 0)),
    ("pidfd_getfd", "take a descriptor out of a process", (-1, 0, 0)),
    ("kcmp", "compare kernel pointers", (0, 0, 0, 0, 0)),
    ("name_to_handle_at", "a number for a file", (_HERE, b"/", 0, 0, 0)),
    ("open_by_handle_at", "open a file of the host by its number", (-1, 0, 0)),
    ("mount", "mount", (0, 0, 0, 0, 0)),
    ("umount2", "unmount what covers something", (b"/nowhere", 0)),
    ("pivot_root", "change the root", (0, 0)),
    ("chroot", "change the root, the old way", (0,)),
    ("open_tree", "copy a mount", (_HERE, b"/", 0)),
    ("move_mount", "attach a mount", (-1, b"", -1, b"", 0)),
    ("fsopen", "a new file system", (b"tmpfs", 0)),
    ("fsconfig", "configure a file system", (-1, 0, 0, 0, 0)),
    ("fsmount", "mount it", (-1, 0, 0)),
    ("fspick", "reconfigure a mounted file system", (_HERE, b"/", 0)),
    ("mount_setattr", "make a mount writable", (-1, b"", 0, 0, 0)),
    ("statmount", "read the mount table of others", (0, 0, 0, 0)),
    ("listmount", "list the mount table", (0, 0, 0, 0)),
    ("setns", "enter another namespace", (-1, 0)),
    ("clone3", "start a process with flags no filter can see", (0, 0)),
    ("init_module", "load a module", (0, 0, 0)),
    ("finit_module", "load a module from a file", (-1, 0, 0)),
    ("delete_module", "unload a module", (0, 0)),
    ("kexec_load", "start another kernel", (0, 1 << 20, 0, 0)),
    ("kexec_file_load", "start another kernel from a file", (-1, -1, 0, 0, 0)),
    ("reboot", "reboot", (0, 0, 0, 0)),
    ("quotactl", "change quotas", (0, 0, 0, 0)),
    ("quotactl_fd", "change quotas by descriptor", (-1, 0, 0, 0)),
    ("swapon", "add swap", (0, 0)),
    ("swapoff", "take swap away", (0,)),
    ("settimeofday", "set the clock", (0, 0)),
    ("clock_settime", "set the clock, the newer way", (0, 0)),
    ("clock_adjtime", "slew the clock", (0, 0)),
    ("adjtimex", "slew the clock, the older way", (0,)),
    ("vmsplice", "lend pages to a pipe", (-1, 0, 0, 0)),
    ("fanotify_init", "watch whole file systems", (0, 0)),
    ("fanotify_mark", "the same, mark", (-1, 0, 0, 0, 0)),
    ("acct", "switch process accounting off", (0,)),
    ("syslog", "read the host's kernel log", (10, 0, 0)),
    ("iopl", "input and output ports", (0,)),
    ("ioperm", "single ports", (0, 1, 0)),
    ("lookup_dcookie", "a relic: profiler's file names", (0, 0, 0)),
    ("ustat", "a relic: file system by device number", (0, 0)),
    ("sysfs", "a relic: list file system types", (3, 0, 0)),
    ("vhangup", "hang up the terminal", ()),
    ("sethostname", "rename the machine", (0, 1)),
    ("setdomainname", "rename its domain", (0, 1)),
    ("mbind", "place memory on the host's nodes", (0, 0, 0, 0, 0, 0)),
    ("set_mempolicy", "the same for the whole process", (0, 0, 0)),
    ("get_mempolicy", "where memory lies on the host", (0, 0, 0, 0, 0)),
    ("migrate_pages", "move another process's memory", (0, 0, 0, 0)),
    ("move_pages", "move single pages", (0, 0, 0, 0, 0, 0)),
    ("lsm_list_modules", "list the host's security modules", (0, 0, 0)),
)
_NAMESPACES = {
    "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000,
    "net": 0x40000000, "time": 0x80,
}  # fmt: skip
_PERSONALITIES = {
    "read-implies-exec": 0x400000, "no-randomisation": 0x40000, "map-page-zero": 0x100000, "linux32": 0x8,
    "svr4": 0x4100001,
}  # fmt: skip


def _clone(flags: int) -> str:
    """A raw clone: a fork with these flags."""
    pid = call("clone", flags | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return f"process {pid} in a namespace of its own"


def _fill() -> None:
    for name, what, arguments in _CALLS:
        KERNEL.add(f"sys-{name}", what, functools.partial(reach, name, *arguments))
    for name, flag in _NAMESPACES.items():
        KERNEL.add(f"unshare-{name}", f"a {name} namespace by unshare", functools.partial(reach, "unshare", flag))
        if name != "time":  # clone knows none
            KERNEL.add(f"clone-{name}", f"a {name} namespace by clone", functools.partial(_clone, flag))
    for name, value in _PERSONALITIES.items():
        KERNEL.add(f"personality-{name}", "a weaker or older ABI", functools.partial(reach, "personality", value))


_fill()


@KERNEL("unshare-user-map", "become root of a user namespace of one's own, with every capability in it")
def _() -> str | None:
    call("unshare", _NAMESPACES["user"])
    with open("/proc/self/status", encoding="ascii") as file:
        bits = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff"))
    return f"capabilities {bits:#x}" if bits else None


@KERNEL("vm-read", "read another process's memory")
def _() -> str | None:
    return reach("process_vm_readv", os.getpid(), 0, 0, 0, 0, 0)


@KERNEL("vm-write", "write another process's memory")
def _() -> str | None:
    return reach("process_vm_writev", os.getpid(), 0, 0, 0, 0, 0)


@KERNEL("modify-ldt", "16-bit segments")
def _() -> str | None:
    return reach("modify_ldt", 0, ctypes.create_string_buffer(64), 8)


def _terminal(request: int) -> str | None:
    """One ioctl on a terminal of our own, our controlling one: ENOTTY would mean that the kernel looked at it."""
    _, terminal = pty.openpty()
    call("ioctl", terminal, 0x540E, 0)  # TIOCSCTTY
    return reach("ioctl", terminal, request, ctypes.create_string_buffer(b"\x02" + bytes(63)))


@KERNEL("tiocsti", "type into a terminal")
def _() -> str | None:
    return _terminal(0x5412)


@KERNEL("tiocsti-high-bits", "the same with bits above the low 32, which the kernel drops")
def _() -> str | None:
    return _terminal(1 << 32 | 0x5412)


@KERNEL("tioclinux", "paste into a console")
def _() -> str | None:
    return _terminal(0x541C)


@KERNEL("tiocsetd", "change the terminal's line discipline: old drivers, loaded on demand")
def _() -> str | None:
    return _terminal(0x5423)


def _make_node(kind: int, device: int) -> str | None:
    path = "/dev/shm/node"  # of a memory file system: an overlay takes no mark of its own
    os.mknod(path, kind | 0o600, device)
    os.unlink(path)
    return "made"


@KERNEL("mknod-block", "a device node of the host's disk")
def _() -> str | None:
    return _make_node(stat.S_IFBLK, os.makedev(254, 0))


@KERNEL("mknod-char", "a device node of the host's memory")
def _() -> str | None:
    return _make_node(stat.S_IFCHR, os.makedev(1, 1))


@KERNEL("mknod-whiteout", "an overlay's mark of a deleted file, forged")
def _() -> str | None:
    return _make_node(stat.S_IFCHR, os.makedev(0, 0))


def _int80(number: int, *arguments: int) -> int:
    """A 32-bit system call out of a 64-bit process, by machine code of our own."""
    if not IS_X86:
        raise Unable("32-bit entry exists on x86_64 only")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    b, c, d = (*arguments, 0, 0, 0)[:3]
    text = b"\x53\xb8" + struct.pack("<I", number) + b"\xbb" + struct.pack("<I", b & 0xFFFFFFFF)
    text += b"\xb9" + struct.pack("<I", c & 0xFFFFFFFF) + b"\xba" + struct.pack("<I", d & 0xFFFFFFFF)
    code.write(text + b"\xcd\x80\x5b\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


@KERNEL("int80", "32-bit system calls, whose numbers mean other things", can_kill=True)
def _() -> str | None:
    answer = _int80(20)
    return f"getpid answered {answer}" if answer > 0 else None


@KERNEL("int80-keyctl", "a denied call by its 32-bit number", can_kill=True)
def _() -> str | None:
    answer = _int80(288, 0, -3, 0)
    return f"keyctl answered {answer}" if -answer not in (errno.EPERM, errno.ENOSYS) else None


@KERNEL("x32", "the third ABI of x86: numbers with bit 30 set", can_kill=True)
def _() -> str | None:
    if not IS_X86:
        raise Unable("x32 exists on x86_64 only")
    ctypes.set_errno(0)
    if LIBC.syscall(ctypes.c_long(0x40000000 | 39)) > 0:
        return "getpid answered"
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
