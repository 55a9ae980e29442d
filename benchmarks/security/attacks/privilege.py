"""Becoming somebody else: ids, capabilities, set-id programs, and what they would be good for."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import resource
import shutil
import stat
import subprocess

from .attack import Table, Unable
from .syscall import LIBC, call

PRIVILEGE = Table("privilege")
_STATUS = "/proc/self/status"
_CAPABILITY_V3 = 0x20080522
_CAP_SYS_ADMIN = 21


def read_status(name: str) -> str:
    with open(_STATUS, encoding="ascii") as file:
        return next(line.split(":", 1)[1].strip() for line in file if line.startswith(f"{name}:"))


def _capabilities(kind: str) -> str | None:
    found = int(read_status(kind), 16)
    return f"{kind} is {found:#x}" if found else None


for _kind, _what in (
    ("CapEff", "use a capability"),
    ("CapPrm", "have a capability to use later"),
    ("CapInh", "pass a capability on to a program"),
    ("CapBnd", "be able to gain a capability at all"),
):
    PRIVILEGE.add(f"caps-{_kind[3:].lower()}", _what, functools.partial(_capabilities, _kind))


@PRIVILEGE("caps-ambient", "raise an ambient capability")
def _() -> str | None:
    ctypes.set_errno(0)
    for number in range(41):
        header, data = (ctypes.c_uint32 * 2)(_CAPABILITY_V3, 0), (ctypes.c_uint32 * 6)()
        LIBC.capget(header, data)
        data[2], data[5] = data[1], data[4]  # inheritable := permitted
        LIBC.capset(header, data)
        if LIBC.prctl(47, 2, number, 0, 0) == 0:
            return f"capability {number} is ambient"
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@PRIVILEGE("caps-set", "give oneself any capability")
def _() -> str | None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_V3, 0)
    for number in range(41):
        word, bit = divmod(number, 32)
        words = (ctypes.c_uint32 * 6)()
        words[word * 3] = words[word * 3 + 1] = 1 << bit
        if LIBC.capset(header, words) == 0:
            return f"capset gave {number}"
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@PRIVILEGE("new-privileges", "gain privileges by a program: is the door open")
def _() -> str | None:
    return "no_new_privs is 0" if read_status("NoNewPrivs") == "0" else None


@PRIVILEGE("unfiltered", "call the kernel without any filter")
def _() -> str | None:
    return "no filter" if read_status("Seccomp") == "0" else None


@PRIVILEGE("root", "be root")
def _() -> str | None:
    return "user 0" if 0 in os.getresuid() + os.getresgid() or 0 in os.getgroups() else None


@PRIVILEGE("uid-of-the-host", "have the number of a user of the host, and share what the kernel counts per user")
def _() -> str | None:
    return f"user {os.getuid()}" if os.getuid() < 0x70000000 else None


def _become(change: functools.partial[None]) -> str | None:
    change()
    return "changed" if 0 in os.getresuid() + os.getresgid() or 0 in os.getgroups() else None


for _name, _function, _arguments in (
    ("setuid", os.setuid, (0,)),
    ("setgid", os.setgid, (0,)),
    ("setreuid", os.setreuid, (0, 0)),
    ("setresuid", os.setresuid, (0, 0, 0)),
    ("setresgid", os.setresgid, (0, 0, 0)),
    ("setgroups", os.setgroups, ([0],)),
):
    PRIVILEGE.add(
        f"become-{_name}",
        f"become root by {_name}",
        functools.partial(_become, functools.partial(_function, *_arguments)),
    )


@PRIVILEGE("become-setfsuid", "be root for files only")
def _() -> str | None:
    LIBC.setfsuid(0)
    return "file-system user 0" if LIBC.setfsuid(-1) == 0 else None


def _run_as_nobody(program: str, *arguments: str) -> str:
    """What the program says, run by somebody who is nobody."""

    def drop() -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)

    done = subprocess.run([program, *arguments], preexec_fn=drop, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _copy_of_id(name: str) -> str:
    source = shutil.which("id")
    if source is None:
        raise Unable("no `id` here")
    folder = f"/workspace/{name}"
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o755)
    return shutil.copy(source, f"{folder}/id")


@PRIVILEGE("set-id-file", "become root by a set-user-id program of one's own")
def _() -> str | None:
    program = _copy_of_id("setuid")
    if os.getuid() == 0:
        os.chown(program, 0, 0)
    os.chmod(program, 0o6755)
    return "effective user 0" if _run_as_nobody(program, "-u") == "0" else None


@PRIVILEGE("set-id-found", "find a set-id program of root's and have it take effect")
def _() -> str | None:
    if LIBC.prctl(39, 0, 0, 0, 0) == 1:
        return None
    places = [place for place in ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec") if os.path.isdir(place)]
    for place in places:
        for folder, _, names in os.walk(place):
            for name in names:
                found = os.lstat(os.path.join(folder, name))
                if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_ISUID and found.st_uid == 0:
                    return os.path.join(folder, name)
    # None lies there: is there a way to put one there?
    with open("/usr/bin/corral-set-id", "wb") as file:
        os.fchmod(file.fileno(), 0o4755)
    os.unlink("/usr/bin/corral-set-id")
    return "a set-id program in /usr/bin, and new privileges are possible"


@PRIVILEGE("file-capability", "give a program capabilities")
def _() -> str | None:
    program = _copy_of_id("filecap")
    os.setxattr(program, "security.capability", bytes.fromhex("0000000200002000000000000000000000000000"))
    return "security.capability set"


@PRIVILEGE("securebits", "keep capabilities over a change of user")
def _() -> str | None:
    if LIBC.prctl(28, 1 << 4, 0, 0, 0) == 0:
        return "securebits set"
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@PRIVILEGE("mount-for-real", "mount a tmpfs over /tmp")
def _() -> str | None:
    call("mount", b"none", b"/tmp", b"tmpfs", 0, 0)
    call("umount2", b"/tmp", 2)
    return "mounted"


@PRIVILEGE("mount-proc", "a fresh /proc without masks")
def _() -> str | None:
    os.makedirs("/tmp/proc", exist_ok=True)
    call("mount", b"none", b"/tmp/proc", b"proc", 0, 0)
    call("umount2", b"/tmp/proc", 2)
    return "mounted"


@PRIVILEGE("mount-cgroup", "a control group hierarchy with its release_agent")
def _() -> str | None:
    os.makedirs("/tmp/cgroup", exist_ok=True)
    call("mount", b"none", b"/tmp/cgroup", b"cgroup", 0, b"memory")
    found = os.path.exists("/tmp/cgroup/release_agent") or os.path.exists("/tmp/cgroup/memory.limit_in_bytes")
    call("umount2", b"/tmp/cgroup", 2)
    return "mounted" if found else None


@PRIVILEGE("remount-root", "make the root file system writable")
def _() -> str | None:
    call("mount", b"none", b"/", 0, 32 | 4096, 0)  # MS_REMOUNT | MS_BIND
    return "remounted"


@PRIVILEGE("unmask", "unmount what covers /proc/keys")
def _() -> str | None:
    os.makedirs("/tmp/mask", exist_ok=True)
    try:
        call("umount2", b"/proc/keys", 2)
    except OSError as error:
        if error.errno != 22:
            raise
        # Nothing covers it here: whoever may mount something there and take it away again could uncover it.
        call("mount", b"/dev/null", b"/proc/keys", 0, 4096, 0)
        call("umount2", b"/proc/keys", 2)
    return "uncovered"


@PRIVILEGE("chroot-escape", "leave a root by chroot and ..")
def _() -> str | None:
    os.makedirs("/tmp/root", exist_ok=True)
    os.chroot("/tmp/root")
    return "chroot worked"


@PRIVILEGE("dac-override", "read a file that belongs to root alone")
def _() -> str | None:
    return f"{len(os.listdir('/root'))} names in /root"


@PRIVILEGE("chown", "give a file away")
def _() -> str | None:
    with open("/tmp/own", "wb"):
        os.chown("/tmp/own", 12345, 12345)
    return "given to 12345"


def _raise_limit(name: str, most: int) -> str | None:
    kind = getattr(resource, name)
    hard = resource.getrlimit(kind)[1]
    if hard == resource.RLIM_INFINITY or hard > most:
        return f"it is {'unlimited' if hard == resource.RLIM_INFINITY else hard} already"
    more = hard * 2 or 1 << 20
    try:
        resource.setrlimit(kind, (more, more))
    except ValueError as error:  # what Python makes of EPERM
        raise PermissionError(errno.EPERM, str(error)) from error
    return f"from {hard} to {more}"


for _name, _most in (
    ("NOFILE", 4096),
    ("FSIZE", 1 << 30),
    ("MEMLOCK", 64 << 10),
    ("MSGQUEUE", 0),
    ("CORE", 0),
    ("SIGPENDING", 4096),
):
    PRIVILEGE.add(
        f"raise-{_name.lower()}",
        f"have a higher RLIMIT_{_name} than the box is given",
        functools.partial(_raise_limit, f"RLIMIT_{_name}", _most),
    )
