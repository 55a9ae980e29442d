"""From a path that somebody else chose to a descriptor: every file operation starts here.

The walk goes component by component over descriptors and resolves links itself, so that what was checked is what is
used, however the hostile workspace changes meanwhile. Nothing outside the roots is ever opened.
"""

from __future__ import annotations

import os
import stat

from corral_protocol.failure import WireError
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.error_map import make_error, refuse_kind
from corral_toolbox.files.suggest import explain_missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

MAX_LINKS = 40
_MAX_OPENS = 10_000  # a `..` walks again from the root; links full of them must not cost minutes
_MAX_PATH = 4096
_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileEnv:
    """Where the file operations may go."""

    __slots__ = ("roots", "workspace")

    def __init__(self, workspace: bytes, roots: list[tuple[bytes, bool]]) -> None:
        self.workspace = workspace
        self.roots = roots
        """(absolute path without trailing slash, whether it may be written). Only what lies below is reachable."""


class Place:
    """A resolved path: the directory it lies in, as an open descriptor, and its name there. Close it."""

    __slots__ = ("is_self", "missing", "name", "parent_fd", "path", "stat", "wants_dir", "writable")

    def __init__(
        self, parent_fd: int, name: bytes, path: bytes, *, found: os.stat_result | None, writable: bool
    ) -> None:
        self.parent_fd = parent_fd
        self.name = name
        self.path = path
        self.stat = found
        self.writable = writable
        self.missing: tuple[bytes, ...] = ()
        """Directories between parent_fd and name that do not exist yet."""
        self.is_self = False
        """parent_fd is the directory itself (a root, or a path that ends in `..`); name is `.`."""
        self.wants_dir = False
        """The path was written with a trailing slash."""

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        if self.parent_fd >= 0:
            os.close(self.parent_fd)
            self.parent_fd = -1


def resolve(env: FileEnv, path: bytes, *, follow: bool = True) -> Place:
    """Walk to a path. With follow, a link at its end is followed too (its target may not exist yet).

    Raises outside_workspace, not_a_directory, invalid_argument, or OSError of the kernel.
    """
    absolute = path if path.startswith(b"/") else env.workspace + b"/" + path
    if b"\0" in path or len(absolute) > _MAX_PATH:
        raise make_error(ErrorCode.INVALID_ARGUMENT, path, "is not a path the system can hold (NUL or over 4096 bytes)")
    # SECURITY: a lexical escape is refused before anything is opened (test_resolve.py).
    if find_root(env, os.path.normpath(absolute).replace(b"//", b"/")) is None:
        raise _refuse_outside(env, path)
    walk = _Walk(env, path)
    try:
        return walk.run(absolute, follow=follow)
    except BaseException:
        walk.close()
        raise


def find_root(env: FileEnv, absolute: bytes) -> tuple[bytes, bool] | None:
    """The deepest root that holds an absolute, normal path."""
    inside = [root for root in env.roots if is_below(absolute, root[0])]
    return max(inside, key=lambda root: len(root[0])) if inside else None


def is_below(path: bytes, root: bytes) -> bool:
    """Whether a path is the root or lies below it, by whole components."""
    return path == root or path.startswith(root + b"/")


class _Walk:
    """The state of one walk: a directory descriptor below a root, or a position above the roots (no descriptor)."""

    def __init__(self, env: FileEnv, asked: bytes) -> None:
        self.env = env
        self.asked = asked
        self.fd = -1
        self.root = b""
        self.names: list[bytes] = []
        self.above: list[bytes] = []
        self.missing: list[bytes] = []
        self.links = 0
        self.opens = 0

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def run(self, absolute: bytes, *, follow: bool) -> Place:
        pending = _split(absolute)[::-1]
        wants_dir = absolute.endswith((b"/", b"/."))
        leaf: tuple[bytes, os.stat_result] | None = None
        while pending:
            name = pending.pop()
            if self.missing and name != b"..":
                self.missing.append(name)
            elif name == b"..":
                self._go_up()
            elif self.fd < 0:
                self._go_down_above(name)
            else:
                found = self._look(name)
                if found is None:
                    self.missing.append(name)
                elif stat.S_ISLNK(found.st_mode) and (follow or pending or wants_dir):
                    self._follow(name, pending)
                elif pending:
                    self._go_down(name, found)
                else:
                    leaf = (name, found)
        if self.fd < 0:
            raise _refuse_outside(self.env, self.asked)
        place = self._make_place(leaf)
        place.wants_dir = wants_dir
        if wants_dir and place.stat is not None and not stat.S_ISDIR(place.stat.st_mode):
            raise make_error(ErrorCode.NOT_A_DIRECTORY, self.asked, "is not a directory", "leave the last slash out")
        return place

    def _make_place(self, leaf: tuple[bytes, os.stat_result] | None) -> Place:
        here = b"/".join([self.root, *self.names])
        if leaf is None and not self.missing:
            place = Place(self.fd, b".", here, found=os.fstat(self.fd), writable=self._is_writable(here))
            place.is_self = True
        elif leaf is not None:
            path = here + b"/" + leaf[0]
            place = Place(self.fd, leaf[0], path, found=leaf[1], writable=self._is_writable(path))
        else:
            path = b"/".join([here, *self.missing])
            place = Place(self.fd, self.missing[-1], path, found=None, writable=self._is_writable(path))
            place.missing = tuple(self.missing[:-1])
        self.fd = -1  # the place owns it now
        return place

    def _is_writable(self, path: bytes) -> bool:
        root = find_root(self.env, path)
        return root is not None and root[1]

    def _look(self, name: bytes) -> os.stat_result | None:
        self._count_open()
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _go_down(self, name: bytes, found: os.stat_result) -> None:
        if not stat.S_ISDIR(found.st_mode):
            raise make_error(ErrorCode.NOT_A_DIRECTORY, b"/".join([self.root, *self.names, name]), "is not a directory")
        # SECURITY: NOFOLLOW, or a directory swapped for a link after the look is followed (test_resolve_race.py).
        self._replace(os.open(name, _PATH_ONLY | _DIRECTORY, dir_fd=self.fd))
        self.names.append(name)

    def _go_down_above(self, name: bytes) -> None:
        self.above.append(name)
        here = b"/" + b"/".join(self.above)
        if any(root == here for root, _ in self.env.roots):
            self.root, self.names = here, []
            self._replace(os.open(here, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        elif not any(root.startswith(here + b"/") for root, _ in self.env.roots):
            raise _refuse_outside(self.env, self.asked)

    def _go_up(self) -> None:
        if self.missing:
            raise make_error(ErrorCode.NOT_FOUND, self.asked, "`..` after a directory that does not exist")
        if self.fd < 0:
            del self.above[-1:]
        elif not self.names:
            # SECURITY: never openat(fd, ".."): a directory moved elsewhere would lead out (test_resolve_race.py).
            self.above = _split(self.root)[:-1]
            self.close()
        else:
            names, self.names = self.names[:-1], []
            self._count_open()
            self._replace(os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            for name in names:
                self._count_open()
                self._replace(os.open(name, _PATH_ONLY | _DIRECTORY, dir_fd=self.fd))
                self.names.append(name)

    def _follow(self, name: bytes, pending: list[bytes]) -> None:
        self.links += 1
        if self.links > MAX_LINKS:
            raise make_error(ErrorCode.INVALID_ARGUMENT, self.asked, "too many symbolic links (a loop?)")
        target = os.readlink(name, dir_fd=self.fd)
        if target.startswith(b"/"):
            self.close()
            self.above = []
        pending.extend(_split(target)[::-1])

    def _replace(self, fd: int) -> None:
        self.close()
        self.fd = fd

    def _count_open(self) -> None:
        self.opens += 1
        if self.opens > _MAX_OPENS:
            raise make_error(ErrorCode.INVALID_ARGUMENT, self.asked, "the path is too complicated")


def _split(path: bytes) -> list[bytes]:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def _refuse_outside(env: FileEnv, path: bytes) -> WireError:
    roots = ", ".join(os.fsdecode(root) for root, _ in env.roots)
    return make_error(
        ErrorCode.OUTSIDE_WORKSPACE, path, "lies outside the workspace", f"file tools reach only below {roots}"
    )


def open_regular(place: Place) -> tuple[int, os.stat_result]:
    """Open a place for reading: a regular file or an error, never a wait. The caller closes the descriptor."""
    if place.stat is None:
        raise explain_missing(place.parent_fd, place.name, place.path, len(place.missing))
    if not stat.S_ISREG(place.stat.st_mode):
        raise refuse_kind(place.path, place.stat.st_mode)
    # SECURITY: NONBLOCK and a second look at the open descriptor: a file swapped for a FIFO must not block
    # (test_special_files.py).
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
    fd = os.open(place.name, flags, dir_fd=place.parent_fd)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise refuse_kind(place.path, found.st_mode)
    return fd, found


def open_directory(place: Place) -> int:
    """Open a place for listing. The caller closes the descriptor."""
    if place.stat is None:
        raise explain_missing(place.parent_fd, place.name, place.path, len(place.missing))
    if not stat.S_ISDIR(place.stat.st_mode):
        raise make_error(ErrorCode.NOT_A_DIRECTORY, place.path, "is not a directory", "use read_file for files")
    return os.open(place.name, os.O_RDONLY | _DIRECTORY, dir_fd=place.parent_fd)


def require_writable(place: Place) -> None:
    """Refuse a place below a read-only root."""
    if not place.writable:
        raise make_error(ErrorCode.READ_ONLY, place.path, "may only be read", "write below the workspace or /tmp")


def make_parents(place: Place, made: list[tuple[int, bytes]] | None = None) -> None:
    """Create the missing directories of a place (0755) and move its parent_fd down to the last one.

    What was created is added to `made` as (descriptor of the parent, name); the caller closes these.
    """
    for name in place.missing:
        try:
            os.mkdir(name, 0o755, dir_fd=place.parent_fd)
            if made is not None:
                made.append((os.dup(place.parent_fd), name))
        except FileExistsError:
            pass  # somebody was quicker; the open below accepts only a directory
        fd = os.open(name, _PATH_ONLY | _DIRECTORY, dir_fd=place.parent_fd)
        os.close(place.parent_fd)
        place.parent_fd = fd
    place.missing = ()
