"""Every entry below an open directory, by descriptor: no link is followed, no path is resolved twice."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_DEPTH = 128  # one open descriptor per level
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Found:
    """An entry. `directory` is open only until the walk goes on."""

    path: bytes  # relative to the root of the walk
    name: bytes
    directory: int
    status: os.stat_result


@dataclass
class TreeWalk:
    """Parents before children, names sorted. What could not be looked at is in `problems` afterwards."""

    root: int
    problems: list[tuple[bytes, str]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Found]:
        stack: list[tuple[int, bytes, Iterator[bytes]]] = []
        try:
            # Not a dup(): that would share the reading position with every other walk from the same descriptor.
            self._push(stack, os.open(".", _DIRECTORY, dir_fd=self.root), b"")
            while stack:
                directory, prefix, names = stack[-1]
                name = next(names, None)
                if name is None:
                    os.close(stack.pop()[0])
                    continue
                found = self._look(directory, prefix + name, name)
                if found is None:
                    continue
                yield found
                if stat.S_ISDIR(found.status.st_mode):
                    self._enter(stack, found)
        finally:
            for directory, _, _ in stack:
                os.close(directory)

    def _look(self, directory: int, path: bytes, name: bytes) -> Found | None:
        try:
            return Found(path, name, directory, os.stat(name, dir_fd=directory, follow_symlinks=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            self.problems.append((path, error.strerror or "unreadable"))
            return None

    def _enter(self, stack: list[tuple[int, bytes, Iterator[bytes]]], found: Found) -> None:
        if len(stack) >= MAX_DEPTH:
            self.problems.append((found.path, f"more than {MAX_DEPTH} directories deep"))
            return
        try:
            descriptor = os.open(found.name, _DIRECTORY, dir_fd=found.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            self.problems.append((found.path, error.strerror or "unreadable"))
            return
        self._push(stack, descriptor, found.path + b"/")

    def _push(self, stack: list[tuple[int, bytes, Iterator[bytes]]], directory: int, prefix: bytes) -> None:
        try:
            names = sorted(os.fsencode(name) for name in os.listdir(directory))
        except OSError as error:
            os.close(directory)
            self.problems.append((prefix, error.strerror or "unreadable"))
            return
        stack.append((directory, prefix, iter(names)))
