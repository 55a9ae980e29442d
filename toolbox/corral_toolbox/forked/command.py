"""Starts a command from its supervisor, by vfork.

A fork would copy the interpreter's page tables, and exec would tear them down again: together as much time as the rest
of a call. A vforked child borrows the supervisor's memory until it is the command; what it inherits the supervisor
makes of itself for that moment, but for the ids, which are the child's own from the start (kernel/spawn.py).
"""

import os

from corral_toolbox.kernel import syscall
from corral_toolbox.kernel.spawn import Starter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_ENOENT, _EAGAIN, _ENOMEM, _ENOTDIR = 2, 11, 12, 20

CallFacts = tuple[
    bytes,  # path of the program, b"" to look argv[0] up
    list[bytes],  # argv
    dict[bytes, bytes],  # environment
    bytes,  # directory
    bytes,  # workspace: where to go when the directory's parents are gone, too
    int,  # umask
    int,  # uid
    int,  # gid
]
Instruction = tuple[
    bytes, list[bytes], dict[bytes, bytes], bytes, bytes, int, int, int, tuple[tuple[int, ...], ...], bool
]
"""CallFacts, then for each descriptor sent along the numbers the program finds it at, then whether it is held."""


class NotStarted(Exception):
    """The program cannot be run: what a shell would say, and its exit code for it."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Launch:
    """How one command is to be started, apart from its program."""

    def __init__(
        self,
        argv: list[bytes],
        env: dict[bytes, bytes],
        ids: tuple[int, int],
        files: list[int],
        places: tuple[tuple[int, ...], ...],
    ) -> None:
        self._argv = argv
        self._env = env
        self._uid, self._gid = ids
        # What is 2 in a supervisor is the box's crash log.
        self._has_terminal = any(0 in numbers and 1 in numbers for numbers in places)
        self._copies = [(0, 2)]
        for fd, numbers in zip(files, places, strict=True):
            self._copies += [(fd, number) for number in numbers]

    def spawn(self, path: bytes, starter: Starter) -> int:
        """The pid. Raises OSError."""
        uid, gid = self._uid, self._gid
        if not uid or not gid:
            raise PermissionError("a command never runs as root")
        # SECURITY: with the last id that was 0 goes every capability (test_exec_isolation.py).
        return starter.start(path, self._argv, self._env, self._copies, uid, gid, terminal=self._has_terminal)


def start_command(
    instruction: "Instruction",
    files: list[int],
    starter: Starter,
    tell_notice: "Callable[[str], None]",
    attempt: "Callable[[Callable[[], int]], int]",
    wait: "Callable[[], None]",
) -> int:
    """Returns the command's pid; each try is made by `attempt`, the first after `wait`.

    Raises NotStarted, or another OSError when no process can be had.
    """
    path, argv, env, cwd, workspace, umask, uid, gid, places, _ = instruction
    os.umask(umask)
    syscall.lend_ids(uid, gid)
    try:
        env[b"PWD"] = _enter(cwd, workspace, tell_notice)
        name = path or argv[0]
        candidates = [name] if b"/" in name else _look_up(name, env.get(b"PATH", b""))
    finally:
        syscall.lend_ids(0, 0)
    try:
        wait()
        return _spawn_first(name, candidates, Launch(argv, env, (uid, gid), files, places), starter, attempt)
    finally:
        os.chdir("/")


def _enter(cwd: bytes, workspace: bytes, tell_notice: "Callable[[str], None]") -> bytes:
    """Change directory as the untrusted user; when that fails, to the nearest parent that lets it in."""
    place = cwd
    while True:
        try:
            os.chdir(place)
        except OSError as error:
            reason = "was removed" if error.errno in (_ENOENT, _ENOTDIR) else f"cannot be entered ({error.strerror})"
        else:
            break
        if place == b"/":
            raise NotStarted(126, "no directory can be entered")
        place = os.path.dirname(place)
        if place == b"/" and workspace != cwd:
            place = workspace
            workspace = cwd
    if place != cwd:
        tell_notice(f"cwd {reason}, now in {place.decode('utf-8', 'backslashreplace')}")
    return place


def _look_up(name: bytes, search: bytes) -> list[bytes]:
    """Where PATH has it, as the untrusted user sees it."""
    candidates = [os.path.join(place, name) for place in search.split(b":") if place]
    return [candidate for candidate in candidates if os.path.exists(candidate)]


def _spawn_first(
    name: bytes,
    candidates: list[bytes],
    launch: Launch,
    starter: Starter,
    attempt: "Callable[[Callable[[], int]], int]",
) -> int:
    failure = OSError(_ENOENT, "not found")
    for candidate in candidates:
        try:
            return attempt(lambda path=candidate: launch.spawn(path, starter))  # type: ignore[misc]  # a default binds it
        except OSError as error:
            if error.errno in (_EAGAIN, _ENOMEM):
                raise
            if error.errno not in (_ENOENT, _ENOTDIR) and failure.errno == _ENOENT:
                failure = error
    shown = name.decode("utf-8", "backslashreplace")
    if failure.errno == _ENOENT:
        why = "or its interpreter is missing" if b"/" in name else "in PATH"
        raise NotStarted(127, f"no such program: {shown!r} ({why})")
    raise NotStarted(126, f"cannot run {shown!r}: {failure.strerror}")
