"""The contract of a box: lifecycle and operations, the same for every engine, the fake included.

Everything an operation returns was sent by the box: bounded and validated, but a claim. Operations raise ToolError for
failures the caller (a model, a user's command) can act on, BoxLost when the box is gone, SandboxProtocolError when it
broke the rules of the channel. tests/contract/ holds every implementation to this text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from corral.sandbox.spec import MAX_STREAMS, Limits, WorkspaceMode
from corral_protocol.message import (
    MAX_TERMINAL_SIDE,
    EditStep,
    ExecResult,
    FetchReply,
    FileChanged,
    FileContent,
    FreezeReply,
    Listing,
    Method,
    PatchResult,
    ProcessEvents,
    Resize,
    Signal,
    Stats,
    TreeEntry,
)

if TYPE_CHECKING:
    from corral.sandbox.channel.tunnel import BoxStream, Serve

CALL: ContextVar[str] = ContextVar("corral_call", default="")
"""The record's name of the call that asks the box: what the box tells about its processes, also much later, carries it.
"""

Observe = Callable[[str, ProcessEvents], None]
"""Receives what a call's processes did, with the call's name, on the event loop: must neither block nor raise."""

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

Sink = Callable[[memoryview], Awaitable[None] | None]
"""Receives output bytes in order as they arrive, on the event loop: must not block.

Returns None when the bytes are consumed, or an awaitable that ends when they are: only then is the sender given credit
for more and the sink called again. The memoryview is valid until then.
"""

Hold = Callable[[], Awaitable[None]]
"""What a command waits for before it starts."""


Notify = Callable[[Method, object], None]
"""Tells the box something about one command, without an answer."""


@dataclass(frozen=True)
class TerminalSize:
    """Of a pseudo-terminal. Raises ValueError for what is none."""

    rows: int = 24
    columns: int = 80

    def __post_init__(self) -> None:
        if not (0 < self.rows <= MAX_TERMINAL_SIDE and 0 < self.columns <= MAX_TERMINAL_SIDE):
            raise ValueError(f"no terminal has {self.rows} rows and {self.columns} columns")


class ExecHandle:
    """What can be done to a command while it runs. Given to one exec(); before and after it, nothing happens."""

    def __init__(self) -> None:
        self._notify: Notify | None = None
        self._number = 0

    def bind(self, number: int, notify: Notify | None) -> None:
        """For the box: the command is on its way as `number`, or, with None, over."""
        self._number, self._notify = number, notify

    def signal(self, number: int) -> None:
        """To the process group in the foreground of its terminal; without one, to the command's own."""
        if not 0 < number < 32:
            raise ValueError(f"no signal: {number}")
        if self._notify is not None:
            self._notify(Method.SIGNAL, Signal(self._number, number))

    def resize(self, size: TerminalSize) -> None:
        if self._notify is not None:
            self._notify(Method.RESIZE, Resize(self._number, size.rows, size.columns))


@dataclass(frozen=True)
class MaskedFile:
    """A secret file of the workspace that the box sees only as a placeholder."""

    path: bytes  # workspace-relative
    reason: str  # the pattern that matched, or "credentials in .git/config"


MAPPED = "mapped_root"
"""The fact of a box on an engine that maps user ids: who its root is on the engine's machine."""


@dataclass(frozen=True)
class BoxInfo:
    """What start() made, for people and the record."""

    box_id: str  # engine's id of the container
    run_id: str
    image: str
    image_id: str
    runtime: str
    mode: WorkspaceMode  # never AUTO
    mode_reason: str  # why not overlay, in words; "" when it is overlay
    mount_point: str
    uid: int
    gid: int
    network: str = "none"
    masked: tuple[MaskedFile, ...] = ()
    warnings: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()  # what the toolbox can do on this kernel: sandbox.ability has the names
    start_s: float = 0.0
    limits: Limits = field(default_factory=Limits)  # as this machine could give them
    facts: dict[str, str] = field(default_factory=dict)  # toolbox version, python, cgroup layout, shell; MAPPED
    lacks: tuple[str, ...] = ()  # of shell, git, rg: what the image does not have


class Sandbox(Protocol):
    """One disposable box. Use as `async with`; never reused after dispose()."""

    @property
    def info(self) -> BoxInfo:
        """What was started. Raises RuntimeError before start()."""
        ...

    async def start(self) -> BoxInfo:
        """Make the box and wait for its handshake. Raises ConfigError, SandboxError."""
        ...

    async def dispose(self) -> None:
        """End everything in the box and remove container and volume. Idempotent; never raises for a gone box."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def exec(
        self,
        argv: list[bytes | str],
        *,
        cwd: str = "",
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        stdin: AsyncIterator[bytes] | None = None,
        stdout: Sink | None = None,
        stderr: Sink | None = None,
        merge_stderr: bool = False,
        stream_limit: int = 64 << 20,
        kill_background: bool = False,
        terminal: TerminalSize | None = None,
        handle: ExecHandle | None = None,
    ) -> ExecResult:
        """Run a program, no shell. Cancelling the awaiting task kills the command's whole tree.

        With `terminal` all its streams are one pseudo-terminal, which only its end closes: what it writes goes to
        `stdout`, and `stdin` is what is typed. `handle` can do things to it meanwhile.

        `stdout` and `stderr` get the full output as it comes, up to `stream_limit` bytes each (-1: none); the result
        holds head and tail. A slow sink slows the command, nothing else.
        """
        ...

    async def shell(
        self,
        command: str,
        *,
        cwd: str = "",
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        stdout: Sink | None = None,
        stderr: Sink | None = None,
        stream_limit: int = 64 << 20,
        hold: Hold | None = None,
    ) -> ExecResult:
        """Run a command line in the box's shell. The caller keeps the reported `cwd` for the next call.

        The command starts when `hold` has ended, and never when that raises; meanwhile the box makes ready.
        """
        ...

    async def read_file(
        self, path: str, *, offset: int | None = None, limit: int | None = None, max_bytes: int = 32 << 10
    ) -> FileContent: ...

    async def write_file(
        self, path: str, content: bytes, *, overwrite: bool = True, mode: int | None = None, if_sha256: str = ""
    ) -> FileChanged: ...

    async def edit_file(self, path: str, edits: list[EditStep]) -> FileChanged: ...

    async def apply_patch(self, text: bytes, *, dry_run: bool = False, overwrite: bool = False) -> PatchResult: ...

    async def move_file(self, source: str, target: str, *, overwrite: bool = False) -> FileChanged: ...

    async def delete_file(self, path: str, *, recursive: bool = False) -> FileChanged: ...

    async def list_files(self, path: str = "", *, depth: int = 1, limit: int = 1000) -> Listing: ...

    async def fetch_file(self, path: str, sink: Sink, *, offset: int = 0, limit: int = -1) -> FetchReply:
        """The raw bytes of a file, streamed to `sink`."""
        ...

    async def store_file(
        self, path: str, body: AsyncIterator[bytes], size: int, *, mode: int | None = None
    ) -> FileChanged:
        """Stream `size` raw bytes into a file; a failure leaves the old bytes."""
        ...

    def scan_tree(self, path: str = "", *, hash_files: bool = True) -> AsyncIterator[TreeEntry]:
        """Every entry below a directory, in no promised order, never following links."""
        ...

    async def freeze(self) -> FreezeReply:
        """Stop every untrusted process, for reading the workspace from outside. Always thaw() or dispose() after."""
        ...

    async def thaw(self) -> None: ...

    async def kill_all(self) -> None:
        """End every untrusted process."""
        ...

    async def stats(self) -> Stats: ...

    async def open_tunnel(
        self, serve: Serve, *, variables: Mapping[str, str] = NO_VARIABLES, max_streams: int = MAX_STREAMS
    ) -> None:
        """Open the ports of an HTTP proxy and of SOCKS on the box's loopback. Commands find the variables that name
        them, and `variables`. `serve` gets every connection as a stream. Once in a box's life.

        Raises ToolError `unsupported` where a box cannot have it."""
        ...

    async def dial(self, port: int) -> BoxStream:
        """A connection to a port of the box's loopback, after open_tunnel(). Raises ToolError when nobody listens."""
        ...
