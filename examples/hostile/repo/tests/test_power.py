"""Tries to become more than it is. Where success would reach the host, opening is tried and nothing is written."""

import ctypes
import os
import resource
import shutil
import subprocess
import unittest
from pathlib import Path

from tests.report import call, each, in_child, report

CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET = 0x10000000, 0x00020000, 0x40000000
PTRACE_SEIZE = 0x4206
SYS_MOUNT, SYS_UNSHARE, SYS_BPF, SYS_PTRACE = {
    "x86_64": (165, 272, 321, 101),
    "aarch64": (40, 97, 280, 117),
}[os.uname().machine]


def open_for_writing(path):
    os.close(os.open(path, os.O_WRONLY))


def read_some(path):
    with open(path, "rb") as file:
        return file.read(1)


def set_root():
    os.setuid(0)


def run_setuid_copy():
    """A setuid program of root's is what is wanted; a copy can only ever belong to us."""
    shutil.copy("/usr/bin/id", "/tmp/id")
    os.chown("/tmp/id", 0, -1)
    os.chmod("/tmp/id", 0o4755)
    subprocess.run(["/tmp/id"], check=True)


def mount_tmpfs():
    call(SYS_MOUNT, b"none", b"/tmp", b"tmpfs", 0, None)


def bind_root():
    call(SYS_MOUNT, b"/", b"/tmp", None, 4096, None)


class Power(unittest.TestCase):
    def test_root(self):
        each(
            "root",
            setuid=lambda: in_child(set_root),
            setgid=lambda: in_child(lambda: os.setgid(0)),
            setgroups=lambda: in_child(lambda: os.setgroups([0])),
            setuid_program=run_setuid_copy,
            shadow=lambda: os.close(os.open("/etc/shadow", os.O_RDWR)),
            passwd=lambda: open_for_writing("/run/corral/passwd"),
        )

    def test_status(self):
        lines = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
        names = ("Uid", "CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
        report("status", **{name: lines[name].strip() for name in names})

    def test_ptrace(self):
        each(
            "ptrace",
            ptrace=lambda: call(SYS_PTRACE, PTRACE_SEIZE, 1, 0, 0),
            kill=lambda: os.kill(1, 9),
            limits=lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (16, 16)),
        )

    def test_namespaces(self):
        each(
            "namespaces",
            user=lambda: in_child(lambda: call(SYS_UNSHARE, CLONE_NEWUSER)),
            mounts=lambda: in_child(lambda: call(SYS_UNSHARE, CLONE_NEWNS)),
            network=lambda: in_child(lambda: call(SYS_UNSHARE, CLONE_NEWNET)),
            mount=lambda: in_child(mount_tmpfs),
            bind=lambda: in_child(bind_root),
            chroot=lambda: in_child(lambda: os.chroot("/tmp")),
            device=lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(8, 0)),
            bpf=lambda: call(SYS_BPF, 5, ctypes.byref(ctypes.create_string_buffer(128)), 128),
        )

    def test_kernel(self):
        each(
            "kernel",
            core_pattern=lambda: open_for_writing("/proc/sys/kernel/core_pattern"),
            sysrq=lambda: open_for_writing("/proc/sysrq-trigger"),
            uevent=lambda: open_for_writing("/sys/kernel/uevent_helper"),
            modules=lambda: os.listdir("/sys/module") or self.nothing(),
            memory=lambda: os.close(os.open("/dev/mem", os.O_RDWR)),
            kernel_core=lambda: read_some("/proc/kcore") or self.nothing(),
            root_file_system=lambda: open("/etc/corral-was-here", "w").close(),
        )

    @staticmethod
    def nothing():
        raise OSError(61, "masked: it is empty")

