"""Looking for secret files in a workspace of any size, in bounded time.

Names only, breadth first, so that the usual places come first; folders that tools fill (dependencies, build output)
come last. When the bound is reached the rest stays unmasked, and that is told.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from corral.sandbox.workspace.mask.git_config import MAX_BYTES, strip_credentials
from corral.sandbox.workspace.mask.pattern import BUILT_IN, SNIFFED, MaskPatterns, is_secret_content

MAX_ENTRIES = 100_000  # about 60 ms with warm caches
MAX_S = 2.0  # for cold disks and network file systems
MIN_ENTRIES = 1000
"""So many are looked at however long it takes: on a busy machine a moment without the processor is no reason."""
MAX_MASKS = 2000
_SNIFF_BYTES = 16 << 10
_MAX_PLACES = 32
_BULK = frozenset(
    {"node_modules", "site-packages", "__pycache__", ".venv", "venv", ".tox", ".nox", "target", "dist", "build"}
    | {"vendor", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".gradle", ".cache", ".hg", ".svn"}
)
_GIT_CONFIGS = frozenset({"config", "config.worktree"})
_GIT_REASON = "credentials in .git/config"


@dataclass(frozen=True)
class Secret:
    """A place to cover. `content` is what the box sees there; None: an empty directory."""

    path: str  # workspace-relative, file system encoding with surrogates
    reason: str
    status: os.stat_result
    content: bytes | None


@dataclass(frozen=True)
class _Listing:
    """What a search needs of a directory's names."""

    stamp: tuple[int, ...]
    count: int
    picked: tuple[str, ...]
    children: tuple[str, ...]


_Patterns = tuple[str, ...] | None


@dataclass
class SearchMemo:
    """What searches have listed: names change only with their directory's change time, so one that has the same is not
    listed again. What was found is looked at anew each time.
    """

    settled_ns: int = 1_000_000_000
    """So long a directory must have been as it is: file systems tell the time in ticks, some in whole seconds, and two
    changes within one cannot be told apart."""
    _places: dict[tuple[int, int, _Patterns], dict[str, _Listing]] = field(default_factory=dict)
    """By device and inode of the root, and patterns. Replaced as a whole: searches may run side by side."""

    def get(self, root: int, patterns: _Patterns) -> dict[str, _Listing]:
        status = os.fstat(root)
        return self._places.get((status.st_dev, status.st_ino, patterns), {})

    def put(self, root: int, patterns: _Patterns, listed: dict[str, _Listing]) -> None:
        status = os.fstat(root)
        if len(self._places) >= _MAX_PLACES:
            self._places.clear()
        self._places[status.st_dev, status.st_ino, patterns] = listed


@dataclass
class SecretSearch:
    """One search below an open directory. `patterns` None means the built-in list."""

    root: int
    patterns: _Patterns
    max_entries: int = MAX_ENTRIES
    max_s: float = MAX_S
    found: dict[str, Secret] = field(default_factory=dict)
    is_complete: bool = True
    seen: int = 0
    listed: int = 0
    """Directories that were read, not remembered."""
    memo: SearchMemo | None = None

    def run(self) -> list[Secret]:
        """Every secret found, in the order of their paths."""
        own = self.patterns is not None
        firm = MaskPatterns.compile(self.patterns if self.patterns is not None else BUILT_IN)
        sniffed = MaskPatterns.compile(() if own else SNIFFED)
        for path in firm.literal_paths():
            self._look(path, firm, sniffed)
        for path in self._walk(MaskPatterns.compile(firm.lines + sniffed.lines)):
            if len(self.found) >= MAX_MASKS:
                self.is_complete = False
                break
            self._look(path, firm, sniffed)
        return sorted(self.found.values(), key=lambda secret: secret.path)

    def _walk(self, either: MaskPatterns) -> Iterator[str]:
        """Paths whose last component may be a secret's, directory by directory."""
        near, far = deque([""]), deque[str]()
        deadline = time.monotonic() + self.max_s
        known = self.memo.get(self.root, self.patterns) if self.memo else {}
        visited: dict[str, _Listing] = {}
        while near or far:
            directory = near.popleft() if near else far.popleft()
            listing = visited[directory] = self._list_known(directory, either, known)
            self.seen += listing.count
            yield from (directory + name for name in listing.picked)
            for name in listing.children:
                (far if name in _BULK else near).append(f"{directory}{name}/")
            is_late = time.monotonic() > deadline and self.seen >= MIN_ENTRIES
            if (near or far) and (self.seen >= self.max_entries or is_late):
                self.is_complete = False
                break
        if self.memo is not None:
            self.memo.put(self.root, self.patterns, visited)

    def _list_known(self, directory: str, either: MaskPatterns, known: dict[str, _Listing]) -> _Listing:
        stamp = self._stamp(directory)
        before = known.get(directory)
        if before is not None and stamp and before.stamp == stamp:
            return before
        names, children = self._list(directory)
        self.listed += 1
        picked = list(either.pick(names))
        if _is_in_git(directory):
            picked += [name for name in names if name in _GIT_CONFIGS]
            children = [name for name in children if _holds_git_config(directory, name)]
        return _Listing(stamp, len(names), tuple(picked), tuple(children))

    def _stamp(self, directory: str) -> tuple[int, ...]:
        """Of the directory before it is listed; empty for one that has changed too lately."""
        status = self._lstat(directory.rstrip("/") or ".") if self.memo is not None else None
        if self.memo is None or status is None or status.st_ctime_ns > time.time_ns() - self.memo.settled_ns:
            return ()
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns

    def _list(self, directory: str) -> tuple[list[str], list[str]]:
        """All names in a directory, and those of its subdirectories. Empty for one that may not be read."""
        try:
            descriptor = os.open(
                directory.rstrip("/") or ".",
                os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
                dir_fd=self.root,
            )
        except OSError:
            return [], []
        try:
            with os.scandir(descriptor) as entries:
                # No tuples: a hundred thousand of them would have the garbage collector walk the whole program.
                listed = list(entries)
        except OSError:
            return [], []
        finally:
            os.close(descriptor)
        return [one.name for one in listed], [one.name for one in listed if one.is_dir(follow_symlinks=False)]

    def _look(self, path: str, firm: MaskPatterns, sniffed: MaskPatterns) -> None:
        """Cover `path` if it is a secret. A link is left alone: its target inside the workspace is covered."""
        status = self._lstat(path)
        if status is None:
            return
        if self.patterns is None and _is_git_config(path):
            self._look_at_git_config(path, status)
            return
        is_directory = stat.S_ISDIR(status.st_mode)
        reason = firm.find(path, is_directory=is_directory)
        if reason is None and not is_directory:
            reason = sniffed.find(path)
            if reason is None or not is_secret_content(self._read(path, _SNIFF_BYTES)):
                return
        if reason is None or (is_directory and self.patterns is None):
            return
        self._cover(path, reason, status)

    def _cover(self, path: str, reason: str, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            target = self._resolve_inside(path)
            if target is None:
                return
            path, reason = target, f"{reason} (target of {path!r})"
            found = self._lstat(path)
            if found is None:
                return
            status = found
        if stat.S_ISDIR(status.st_mode):
            self.found.setdefault(path, Secret(path, reason, status, None))
        elif stat.S_ISREG(status.st_mode):
            self.found.setdefault(path, Secret(path, reason, status, make_placeholder(path)))

    def _look_at_git_config(self, path: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            return
        text = self._read(path, MAX_BYTES + 1)
        content = strip_credentials(text) if len(text) <= MAX_BYTES else make_placeholder(path)
        if content is not None:
            self.found.setdefault(path, Secret(path, _GIT_REASON, status, content))

    def _lstat(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path, dir_fd=self.root, follow_symlinks=False)
        except OSError:
            return None

    def _read(self, path: str, limit: int) -> bytes:
        """The first bytes of a regular file; empty for anything that is none or may not be read."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.root)
        except OSError:
            return b""
        with os.fdopen(descriptor, "rb") as file:
            return file.read(limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""

    def _resolve_inside(self, path: str) -> str | None:
        """Where a link leads, relative to the workspace; None when it leads outside or nowhere."""
        base = os.path.realpath(f"/proc/self/fd/{self.root}")
        target = os.path.realpath(os.path.join(base, path))
        if not target.startswith(base.rstrip("/") + "/"):
            return None
        return os.path.relpath(target, base)


def make_placeholder(path: str) -> bytes:
    """One line that says so, in a form that does not break the program which reads the file."""
    text = "masked by corral: the box does not see this secret file"
    if path.endswith(".json"):
        return b'{"_comment": "' + text.encode() + b'"}\n'
    return b"# " + text.encode() + b"\n"


def _is_in_git(directory: str) -> bool:
    return directory.startswith(".git/") or "/.git/" in directory


def _is_git_config(path: str) -> bool:
    return _is_in_git(path) and path.rsplit("/", 1)[-1] in _GIT_CONFIGS


def _holds_git_config(directory: str, name: str) -> bool:
    """Of git's own folders only those of submodules and worktrees; objects alone can be most of a repository."""
    inside = directory.rsplit(".git/", 1)[-1]
    if not inside:
        return name in ("modules", "worktrees")
    return name not in ("objects", "refs", "logs", "hooks", "lfs")
