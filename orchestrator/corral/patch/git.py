"""The one door to git: plumbing commands on an empty, throw-away repository of ours.

Git never sees the workspace's `.git`, configuration, attributes, hooks or environment: those belong to the repository
nobody trusts yet and run code. What git gets here is bytes and names; its time and memory are bounded.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from corral.errors import PatchError

TIME_LIMIT_S = 180.0
MEMORY_LIMIT = 6 << 30
"""Address space of one git process: 32 MiB of empty lines, the largest text we diff, need about 3 GiB."""

_SETTINGS: Mapping[str, str] = {
    "core.abbrev": "40",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.bigFileThreshold": "32m",  # above it git compares bytes, not lines: memory stays bounded
    "core.compression": "1",
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.fsync": "none",  # the repository lives for seconds
    "core.hooksPath": os.devnull,
    "core.ignoreCase": "false",
    "core.precomposeUnicode": "false",
    "core.quotePath": "false",
    "fastimport.unpackLimit": "0",  # one pack, and no second process
    "gc.auto": "0",
    "maintenance.auto": "false",
    "pack.threads": "1",
    "protocol.allow": "never",
}


class Repository:
    """A repository in a directory of ours, made without git: three small files. It is empty unless it is one again."""

    def __init__(self, directory: Path) -> None:
        self.git_dir = directory / "git"
        self.work_tree = directory / "tree"
        self._packs = self.git_dir / "objects" / "pack"
        for path in (self._packs, self.git_dir / "refs", self.git_dir / "info", self.work_tree):
            path.mkdir(parents=True, exist_ok=True)
        # Above every .gitattributes a patch may carry: no conversion of line ends, no filter, no whitespace rule.
        _settle(
            self.git_dir / "info" / "attributes",
            b"* -text !eol -ident !filter !working-tree-encoding -whitespace !merge !diff\n",
        )
        _settle(self.git_dir / "HEAD", b"ref: refs/heads/none\n")
        _settle(self.git_dir / "config", b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
        program = shutil.which("git")
        if program is None:
            raise PatchError("git is not installed on this machine", hint="install the package git (2.30 or newer)")
        self._program = program

    def clear(self) -> None:
        """Drop what an earlier use left. The directories stay: to remove them costs more than to make a patch."""
        for place in (self._packs, self.git_dir / "refs" / "corral"):
            with suppress(FileNotFoundError):
                for name in os.listdir(place):
                    os.unlink(place / name)

    def environment(self) -> dict[str, str]:
        """What git may know: nothing of the caller's environment but PATH and the directory for temporary files."""
        # SECURITY: GIT_* and HOME of the caller choose config, hooks, diff format (test_ignores_user_git_settings).
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "TMPDIR", "LD_LIBRARY_PATH")}
        return kept | {
            "GIT_DIR": str(self.git_dir),
            "GIT_WORK_TREE": str(self.work_tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ADVICE": "0",
            "HOME": str(self.git_dir),
            "XDG_CONFIG_HOME": str(self.git_dir),
            "LC_ALL": "C",
            "TZ": "UTC",
        }

    @contextmanager
    def start(self, *arguments: str, stdin: bool = False, timeout_s: float = TIME_LIMIT_S) -> Iterator[GitProcess]:
        """Run one git command; its streams are pipes of bytes. Raises PatchError when it fails or takes too long."""
        command = [self._program]
        for key, value in _SETTINGS.items():
            command += ["-c", f"{key}={value}"]
        with os.fdopen(os.memfd_create("stderr"), "w+b") as stderr:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self.environment(),
                cwd=self.work_tree,
                close_fds=True,
                start_new_session=True,
            )
            running = GitProcess(process, arguments[0], stderr)
            watchdog = threading.Timer(timeout_s, running.expire)
            watchdog.daemon = True
            watchdog.start()
            try:
                running.limit_memory()
                yield running
                running.finish()
            finally:
                watchdog.cancel()
                running.stop()


def _settle(path: Path, content: bytes) -> None:
    """Make a file hold this. One that does is not written again: to empty a file costs a wait for the disk."""
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        pass
    path.write_bytes(content)


class GitProcess:
    """One running git command."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, stderr: IO[bytes]) -> None:
        self._process = process
        self._name = name
        self._stderr = stderr
        self._expired = False
        self._answered = False

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def write(self, data: bytes) -> None:
        """Write to git's standard input; a git that has gone is reported as its own failure."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
        except BrokenPipeError:
            self._fail()

    def flush(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def close_input(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                self._fail()

    def limit_memory(self) -> None:
        try:
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        except (ProcessLookupError, PermissionError):
            pass  # it has ended already, or the host's own limit is lower

    def expire(self) -> None:
        self._expired = True
        self._process.kill()

    def finish(self) -> None:
        """Wait for the end. Raises PatchError on an exit code other than 0."""
        if self._answered:
            return
        self.close_input()
        self.stdout.close()
        if self._process.wait() != 0:
            self._fail()

    def wait(self) -> int:
        """Wait for the end and give the exit code, for commands where other codes than 0 are answers."""
        self.close_input()
        code = self._process.wait()
        if self._expired or code < 0:
            self._fail()
        self._answered = True
        return code

    def abandon(self) -> None:
        """Its answers have been read; how it ends does not matter."""
        self._answered = True

    def error_text(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read(4096).decode("utf-8", "replace").strip()

    def stop(self) -> None:
        """End the process if it still runs, and close every pipe. Never raises."""
        if self._process.poll() is None:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        self._process.wait()

    def _fail(self) -> None:
        self._process.wait()
        if self._expired:
            raise PatchError(f"git {self._name} did not end in time", hint="export fewer or smaller files")
        lines = self.error_text().splitlines()
        reason = lines[-1] if lines else f"exit code {self._process.returncode}"
        raise PatchError(f"git {self._name} failed: {reason!r}")
