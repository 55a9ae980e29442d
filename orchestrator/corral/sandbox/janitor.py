"""Who cleans up after kill -9: a tiny process that waits for the orchestrator's end on a pipe.

The orchestrator writes `+NAME` before it makes a container, `=NAME` when it is made and `-NAME` when it is gone; and
`#NAME` around the whole life of a box, for what else it makes. At end of file, whatever is still open is removed; with
nothing open the janitor just ends. It imports nothing heavy before that, so it costs the start of a box little.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import cache

from corral.sandbox.labels import BOOT, OWNER_PID, OWNER_START, labels, owner_is_alive
from corral.sandbox.reach.address import fix_paths

_RETRY_S = (0.0, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0)
"""A container that was being made when its orchestrator died appears late."""
_OWNER_POLL_S = 0.02


class Janitor:
    """The orchestrator's end. Telling it something never fails: it may have been killed, and that is no error here."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe  # a bare descriptor, open until this process ends: its end is the message

    def hold(self, name: str) -> None:
        """Mounts and directories are about to be made, until forget()."""
        self._tell(f"#{name}\n")

    def hold_directory(self, path: str) -> None:
        """This directory goes with all that is in it, until forget_directory()."""
        self._tell(f"#{_quote(path)}\n")

    def forget_directory(self, path: str) -> None:
        self._tell(f"-{_quote(path)}\n")

    def expect(self, name: str) -> None:
        """This container is about to be made."""
        self._tell(f"+{name}\n")

    def confirm(self, name: str) -> None:
        """It is made: from now on, not being there means gone."""
        self._tell(f"={name}\n")

    def forget(self, name: str) -> None:
        """It is gone, or was never made."""
        self._tell(f"-{name}\n")

    def _tell(self, line: str) -> None:
        try:
            os.write(self._pipe, line.encode("ascii", "backslashreplace"))
        except OSError:
            return


def start_janitor() -> Janitor:
    """The janitor of this process; started at the first call."""
    return _start_for(os.getpid())


@cache
def _start_for(pid: int) -> Janitor:
    marks = labels("", "janitor")
    # SECURITY: -P and cwd "/": with the working directory on the path, a workspace could bring its own `corral`
    # (test_janitor_never_imports_from_the_workspace).
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "corral.sandbox.janitor", str(pid), marks[OWNER_START], marks[BOOT]],
        stdin=reader,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=fix_paths(os.environ),
        start_new_session=True,
    )
    os.close(reader)
    process.returncode = 0  # it outlives us by design: no warning about a child that still runs
    return Janitor(writer)


def main(arguments: list[str]) -> int:
    """The janitor's own process."""
    pid, start, boot = arguments
    os.nice(5)
    open_names = _read_until_end(sys.stdin.fileno())
    if open_names:
        while owner_is_alive({OWNER_PID: pid, OWNER_START: start, BOOT: boot}):
            time.sleep(_OWNER_POLL_S)
        _clean(open_names)
    return 0


def _read_until_end(descriptor: int) -> dict[str, bool]:
    """Names that are still open at end of file, and whether each may yet appear."""
    names: dict[str, bool] = {}
    rest = b""
    while data := os.read(descriptor, 4096):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            sign, name = line[:1], line[1:].decode("ascii")
            if sign == b"-":
                names.pop(name, None)
            else:
                names[name] = sign == b"+"
    return names


def _quote(path: str) -> str:
    """Told from the names by its slash; a line is one write, which a pipe takes whole up to 4096 bytes."""
    from urllib.parse import quote_from_bytes  # late: only pools get here

    return quote_from_bytes(os.fsencode(path))


def _remove_directories(names: dict[str, bool]) -> None:
    import shutil  # late: most janitors never get here
    from urllib.parse import unquote_to_bytes

    for name in [name for name in names if name.startswith("/")]:
        shutil.rmtree(os.fsdecode(unquote_to_bytes(name)), ignore_errors=True)
        del names[name]


def _clean(names: dict[str, bool]) -> None:
    from corral.errors import SandboxError  # late: most janitors never get here
    from corral.sandbox.engine import Engine, ObjectGone, remove_container
    from corral.sandbox.gc import collect_garbage

    engine = Engine()
    directories = {name: False for name in names if name.startswith("/")}
    for name in directories:
        del names[name]
    for delay_s in _RETRY_S:
        time.sleep(delay_s)
        for name, may_appear in list(names.items()):
            try:
                engine.ask("remove the container", lambda client, name=name: remove_container(client, name))  # type: ignore[misc]
                del names[name]
            except ObjectGone:
                if not may_appear:
                    del names[name]
            except SandboxError:
                continue
        try:
            collect_garbage(engine)
        except SandboxError:
            continue
        if not names:
            break
    _remove_directories(directories)  # last: a box that still runs has its changes in there


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
