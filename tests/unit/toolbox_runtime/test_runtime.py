"""What goes into the lent runtime: the loader of either layout, compiled modules, libraries, licences."""

from __future__ import annotations

import os
import py_compile
import struct
import sys
from pathlib import Path

import pytest

from corral_runtime.elf import NotOurs, read_interpreter, unhook_preload
from corral_runtime.fill import copy_compiled, find_libraries, find_packages

X86_64, ARM64 = 62, 183


def make_program(machine: int, loader: bytes | None) -> bytes:
    """A 64-bit little-endian program with two headers: a LOAD, and the loader's name if it has one."""
    name = (loader or b"") + b"\0"
    headers = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 64, 64, 4096)
    headers += struct.pack("<IIQQQQQQ", 3 if loader else 4, 4, 176, 176, 176, len(name), len(name), 1)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    return head + headers + name


@pytest.mark.parametrize(
    ("machine", "loader"), [(X86_64, "/lib64/ld-linux-x86-64.so.2"), (ARM64, "/lib/ld-linux-aarch64.so.1")]
)
def test_the_loader_of_either_layout_is_read_from_the_program(machine: int, loader: str) -> None:
    assert read_interpreter(make_program(machine, loader.encode())) == loader


@pytest.mark.parametrize(
    "program",
    [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01", make_program(X86_64, None)],
    ids=["empty", "script", "32", "static"],
)
def test_other_programs_are_refused(program: bytes) -> None:
    with pytest.raises(NotOurs):
        read_interpreter(program)


def test_the_loader_of_this_machine_is_made_deaf_and_keeps_its_size() -> None:
    loader = Path(read_interpreter(Path(os.path.realpath(sys.executable)).read_bytes())).read_bytes()
    deaf = unhook_preload(loader)
    assert (len(deaf), b"/etc/ld.so.preload" in deaf, deaf.count(b"/opt/corral/none/0\0")) == (len(loader), False, 1)
    with pytest.raises(NotOurs):
        unhook_preload(deaf)


def test_modules_are_copied_compiled_and_without_sources(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("a.py", "p/__init__.py", "p/b.py", "test/c.py", "config-3/d.py"):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
        py_compile.compile(str(path), doraise=True)
    (source / "never-compiled.py").write_text("")
    (source / "notes.txt").write_text("")
    copy_compiled(str(source), str(tmp_path / "target"))
    found = {path.relative_to(tmp_path / "target").as_posix() for path in (tmp_path / "target").rglob("*.*")}
    assert found == {"a.pyc", "p/__init__.pyc", "p/b.pyc"}


def test_every_mapped_library_is_found_and_the_loader_is_none_of_them() -> None:
    loader, libraries = find_libraries({})
    names = {os.path.basename(path).partition(".")[0] for path in libraries}
    assert ("libc" in names, os.path.basename(loader).startswith("ld-"), loader in libraries) == (True, True, False)


def test_licences_are_those_of_the_packages_that_own_a_file(tmp_path: Path) -> None:
    (tmp_path / "libc6:amd64.list").write_text("/.\n/lib/x86_64-linux-gnu/libc.so.6\n")
    (tmp_path / "python3.11-minimal.list").write_text("/usr/bin/python3.11\n")
    (tmp_path / "other.list").write_text("/usr/bin/other\n")
    (tmp_path / "libc6:amd64.md5sums").write_text("/usr/bin/other\n")
    files = {"/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3.11"}
    assert find_packages(files, str(tmp_path)) == {"libc6", "python3.11-minimal"}
