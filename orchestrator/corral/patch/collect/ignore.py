"""What the original's ignore rules cover, decided by git itself on copies of the rule files.

`git check-ignore` runs in a throw-away repository that holds nothing but the `.gitignore` files of the directories the
walk passes, and `.git/info/exclude`. It is asked while the walk goes on, so that an ignored directory is never entered.
It starts with the first rule file: most small exports never need it.
"""

from __future__ import annotations

import os
import select
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from corral.errors import PatchError
from corral.patch.git import GitProcess, Repository
from corral.patch.tree import open_file, open_parent
from corral.sandbox.scratch import make_scratch

MAX_RULES = 1 << 20  # bytes of one rule file; the rest is not read
ANSWER_LIMIT_S = 5.0
WALK_LIMIT_S = 120.0
MAX_ALL_RULES = 32 << 20  # bytes of all rule files together
_MEMORY = "/dev/shm"
_BATCH = 16 << 10  # fits the pipe whole: we never block writing while git blocks answering


class IgnoreRules:
    """Answers for one tree. Ask for directories parent first, each directory once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = ExitStack()
        self._repository: Repository | None = None
        self._git: GitProcess | None = None
        self._buffer = b""
        self._taken = 0

    def __enter__(self) -> Self:
        exclude = self._load(b".git/info/exclude")
        if exclude:
            (self._ready().git_dir / "info" / "exclude").write_bytes(exclude)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._git is not None:
            self._git.abandon()
        self._stack.close()

    def enter(self, directory: bytes) -> None:
        """Take the rule file of one directory of the original (`b""`: the root)."""
        prefix = directory + b"/" if directory else b""
        rules = self._load(prefix + b".gitignore")
        if rules:
            place = os.path.join(os.fsencode(self._ready().work_tree), directory)
            os.makedirs(place, exist_ok=True)
            with open(os.path.join(place, b".gitignore"), "wb") as stream:
                stream.write(rules)

    def covered(self, directory: bytes, names: list[tuple[bytes, bool]]) -> set[tuple[bytes, bool]]:
        """Which of these names in a directory are ignored. The flag says whether the name is a directory there."""
        if self._repository is None or not names:
            return set()
        prefix = directory + b"/" if directory else b""
        tree = os.fsencode(self._repository.work_tree)
        found = {(name, False) for name in self._ask(prefix, [name for name, is_dir in names if not is_dir])}
        folders = [name for name, is_dir in names if is_dir]
        for name in folders:  # a pattern like `build/` asks what stands there
            os.makedirs(os.path.join(tree, prefix + name), exist_ok=True)
        return found | {(name, True) for name in self._ask(prefix, folders)}

    def _ready(self) -> Repository:
        if self._repository is None:
            self._repository = Repository(Path(self._stack.enter_context(_temporary_directory())))
        return self._repository

    def _load(self, path: bytes) -> bytes:
        try:
            with open_parent(self._root, path) as (parent, name):
                descriptor = open_file(name, parent)
        except OSError:
            return b""
        with os.fdopen(descriptor, "rb") as stream:
            rules = stream.read(MAX_RULES)
        self._taken += len(rules)
        if self._taken > MAX_ALL_RULES:
            raise PatchError(
                f"the workspace's ignore rules are over {MAX_ALL_RULES:,} bytes",
                hint="export with --include-ignored",
            )
        lines = (line.strip() for line in rules.splitlines())
        return rules if any(line and not line.startswith(b"#") for line in lines) else b""

    def _ask(self, prefix: bytes, names: list[bytes]) -> list[bytes]:
        ignored = list[bytes]()
        batch, size = list[bytes](), 0
        for name in names:
            size += len(prefix) + len(name) + 1
            if batch and size > _BATCH:
                ignored += self._exchange(prefix, batch)
                batch, size = [], len(prefix) + len(name) + 1
            batch.append(name)
        return ignored + (self._exchange(prefix, batch) if batch else [])

    def _exchange(self, prefix: bytes, names: list[bytes]) -> list[bytes]:
        git = self._running()
        # `./`: a name that starts with `:` is no pathspec magic
        git.write(b"".join(b"./" + prefix + name + b"\0" for name in names))
        git.flush()
        return [name for name in names if self._answer(git)]

    def _answer(self, git: GitProcess) -> bool:
        """Read one answer: source, line, pattern, path, each ended by NUL. A pattern with `!` takes back."""
        waiting = select.poll()
        waiting.register(git.stdout, select.POLLIN)
        while self._buffer.count(b"\0") < 4:
            if not waiting.poll(ANSWER_LIMIT_S * 1000):
                raise PatchError(
                    "the workspace's ignore rules take too long to evaluate",
                    hint="look at its .gitignore files, or export with --include-ignored",
                )
            data = os.read(git.stdout.fileno(), 1 << 16)
            if not data:
                git.finish()
                raise PatchError("git check-ignore ended early")
            self._buffer += data
        source, _, pattern, _, self._buffer = self._buffer.split(b"\0", 4)
        return bool(source) and not pattern.startswith(b"!")

    def _running(self) -> GitProcess:
        if self._git is None:
            arguments = ("check-ignore", "--no-index", "--stdin", "-z", "-v", "-n")
            self._git = self._stack.enter_context(self._ready().start(*arguments, stdin=True, timeout_s=WALK_LIMIT_S))
        return self._git


def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """In memory where there is a place for it: removing ten directories from a disk costs more than all the rest."""
    memory = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else None
    return make_scratch("ignore", memory)
