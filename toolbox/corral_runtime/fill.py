"""Fills a volume with the toolbox and a Python that needs nothing of the image it is mounted into.

    runtime/ld.so                 the loader that this Python was linked for, under one name on every machine
    runtime/lib/*.so*             every library that is mapped when all its extension modules are loaded
    runtime/bin/python3
    runtime/lib/python3.N/**.pyc  the standard library, compiled, without sources
    runtime/licences/PACKAGE      the licences of all this
    toolbox/                      as in the sandbox image

It appears under its name when it is complete, so that a volume has all or nothing, however many fill it at once.
"""

import importlib
import os
import shutil
import sys

from corral_runtime.elf import read_interpreter, unhook_preload

_TOOLBOX = "/opt/corral/toolbox"
# What the toolbox can have no use for: tests, graphics, installers, servers, documentation, and sources of builds.
_DROPPED_PACKAGES = {
    "__pycache__", "concurrent", "curses", "dbm", "distutils", "ensurepip", "html", "http", "idlelib", "lib2to3",
    "lib-dynload", "msilib", "multiprocessing", "pydoc_data", "site-packages", "sqlite3", "test", "tests", "tkinter",
    "turtledemo", "unittest", "venv", "wsgiref", "xml", "xmlrpc",
}  # fmt: skip
_DROPPED_EXTENSIONS = (
    "_codecs_", "_crypt", "_curses", "_dbm", "_gdbm", "_multi", "_sqlite3", "_ssl", "_test", "_tkinter", "_uuid", "_xx",
    "audioop", "nis", "ossaudiodev", "readline", "xx",
)  # fmt: skip
_READ, _RUN = 0o444, 0o555
_PACKAGE_LISTS = "/var/lib/dpkg/info"


def main(volume: str) -> None:
    stage = os.path.join(volume, f".new-{os.urandom(8).hex()}")
    os.mkdir(stage)
    try:
        _make_runtime(os.path.join(stage, "runtime"))
        shutil.copytree(_TOOLBOX, os.path.join(stage, "toolbox"), ignore=shutil.ignore_patterns("corral_runtime"))
        _lock(stage)
        # The runtime last: whoever finds it finds everything.
        for name in ("toolbox", "runtime"):
            _publish(os.path.join(stage, name), os.path.join(volume, name))
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _publish(source: str, target: str) -> None:
    os.chmod(source, 0o700)  # a directory is renamed by who may write to it
    try:
        os.rename(source, target)
    except OSError:
        if not os.path.isdir(target):  # else somebody else was faster, with the same content
            raise
        return
    os.chmod(target, _RUN)


def _make_runtime(target: str) -> None:
    extensions = _choose_extensions()
    loader, libraries = find_libraries(extensions)
    standard = os.path.dirname(os.__file__)
    modules = os.path.join(target, "lib", os.path.basename(standard))
    for place in (os.path.join(target, "bin"), os.path.join(modules, "lib-dynload")):
        os.makedirs(place)
    with open(loader, "rb") as source, open(os.path.join(target, "ld.so"), "wb") as copy:
        copy.write(unhook_preload(source.read()))
    shutil.copyfile(_python(), os.path.join(target, "bin", "python3"))
    for program in ("ld.so", "bin/python3"):
        os.chmod(os.path.join(target, program), 0o700)
    for path in libraries:
        _copy_library(path, os.path.join(target, "lib"))
    copy_compiled(standard, modules)
    for path in extensions.values():
        shutil.copyfile(path, os.path.join(modules, "lib-dynload", os.path.basename(path)))
    taken = {loader, _python(), os.__file__, *libraries, *extensions.values()}
    _copy_licences(taken, os.path.join(target, "licences"))


def _python() -> str:
    return os.path.realpath(sys.executable)


def _choose_extensions() -> dict[str, str]:
    """Extension modules by name, with their files. Those left out cannot be imported in this process, either."""
    folder = os.path.join(os.path.dirname(os.__file__), "lib-dynload")
    found = {name.partition(".")[0]: os.path.join(folder, name) for name in sorted(os.listdir(folder))}
    chosen = {name: path for name, path in found.items() if not name.startswith(_DROPPED_EXTENSIONS)}
    sys.modules.update(dict.fromkeys(found.keys() - chosen.keys()))  # type: ignore[arg-type]  # None: not to be had
    return chosen


def find_libraries(extensions: dict[str, str]) -> tuple[str, list[str]]:
    """The loader's file, and those of all libraries, as this very process has them mapped."""
    for name in extensions:
        importlib.import_module(name)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = {line[line.index("/") :].rstrip("\n") for line in maps if "/" in line}
    with open(_python(), "rb") as program:
        loader = os.path.realpath(read_interpreter(program.read()))
    shared = {path for path in mapped if ".so" in os.path.basename(path)}
    return loader, sorted(shared - {loader, *extensions.values()})


def _copy_library(path: str, target: str) -> None:
    """A library is mapped from its file and asked for by a link beside it: libz.so.1 of libz.so.1.2.13."""
    folder, own = os.path.split(path)
    shutil.copyfile(path, os.path.join(target, own))
    stem = own.partition(".so")[0]
    for name in os.listdir(folder):
        if name != own and name.startswith(f"{stem}.so.") and os.path.realpath(os.path.join(folder, name)) == path:
            os.symlink(own, os.path.join(target, name))


def copy_compiled(source: str, target: str) -> None:
    """Every module below `source` as bytecode in its own place: found without a look for sources."""
    tag = sys.implementation.cache_tag
    for folder, below, files in os.walk(source):
        below[:] = [name for name in below if name not in _DROPPED_PACKAGES and not name.startswith("config-")]
        place = os.path.join(target, os.path.relpath(folder, source))
        os.makedirs(place, exist_ok=True)
        for name in files:
            module, suffix = os.path.splitext(name)
            cached = os.path.join(folder, "__pycache__", f"{module}.{tag}.pyc")
            if suffix == ".py" and os.path.exists(cached):
                shutil.copyfile(cached, os.path.join(place, f"{module}.pyc"))


def _copy_licences(files: set[str], target: str) -> None:
    os.mkdir(target)
    for package in sorted(find_packages(files, _PACKAGE_LISTS)):
        text = f"/usr/share/doc/{package}/copyright"
        if os.path.exists(text):
            shutil.copyfile(text, os.path.join(target, package))


def find_packages(files: set[str], lists: str) -> set[str]:
    """The distribution's packages that these files are from."""
    # /lib is a link to /usr/lib, and the lists have either.
    wanted = {spelling for path in files for spelling in (path, path.removeprefix("/usr"), f"/usr{path}")}
    found = set()
    for name in os.listdir(lists):
        if name.endswith(".list"):
            with open(os.path.join(lists, name), encoding="utf-8") as lines:
                if not wanted.isdisjoint(line.rstrip("\n") for line in lines):
                    found.add(name.removesuffix(".list").partition(":")[0])
    return found


def _lock(root: str) -> None:
    """For everybody to read, for nobody to write."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, _RUN if os.stat(path).st_mode & 0o100 else _READ)
        if folder != root:
            os.chmod(folder, _RUN)
