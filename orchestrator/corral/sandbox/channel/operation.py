"""The operations of a box, as typed calls. The same for every box that can answer a Caller."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

from corral.errors import SandboxProtocolError, ToolError
from corral.sandbox.base import NO_VARIABLES, ExecHandle, Hold, Sink, TerminalSize
from corral.sandbox.channel.wire import Empty, parse_value
from corral_protocol.error import ErrorCode
from corral_protocol.message import (
    Capture,
    EditStep,
    Exec,
    ExecResult,
    FetchReply,
    FileChanged,
    FileContent,
    FileDelete,
    FileEdit,
    FileFetch,
    FileList,
    FileMove,
    FilePatch,
    FileRead,
    FileStore,
    FileWrite,
    FreezeReply,
    Listing,
    Method,
    PatchResult,
    Stats,
    TreeEntry,
    TreeScan,
    TreeScanReply,
)
from corral_protocol.name import encode_name

FILE_LIMIT_S = 60.0
"""Backstop for file operations on the host's side; a healthy box answers in milliseconds."""
EXEC_GRACE_S = 30.0
"""The box ends a command at its time limit by itself; after so much more the host stops waiting."""
MAX_SCAN_LINE = 64 << 10
_INLINE_BYTES = 512 << 10

T = TypeVar("T")


class Caller(Protocol):
    """Asks a toolbox. See corral.sandbox.channel.call.run_call for the contract."""

    async def __call__(
        self,
        method: Method,
        params: object,
        kind: type[T],
        *,
        sinks: Mapping[str, Sink] | None = None,
        body: tuple[str, AsyncIterator[bytes]] | None = None,
        limit_s: float | None = None,
        hold: Hold | None = None,
        handle: ExecHandle | None = None,
    ) -> T: ...


_NO_SHELL_HINT = "run a program of the image by its name and arguments (exec), or take an image that has a shell"


class BoxOperations:
    """Everything of base.Sandbox that is not lifecycle."""

    _call: Caller
    _variables: Mapping[str, str] = NO_VARIABLES
    """Given to every command, below what the command itself is given."""

    def _end_box(self, error: SandboxProtocolError) -> None:
        """What a well-formed lie costs the box. Nothing here: a box with a channel ends it."""

    @contextmanager
    def _judging(self) -> Iterator[None]:
        try:
            yield
        except SandboxProtocolError as error:
            self._end_box(error)
            raise

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
        params = Exec(
            argv=[_name(word) for word in argv],
            cwd=_name(cwd),
            env=_names({**self._variables, **(env or {})}),
            timeout_s=timeout_s,
            merge_stderr=merge_stderr or terminal is not None,
            stream_limit=stream_limit,
            kill_background=kill_background,
            rows=terminal.rows if terminal else 0,
            columns=terminal.columns if terminal else 0,
        )
        return await self._exec(params, stdin, stdout, stderr, handle=handle)

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
        params = Exec(  # noqa: S604  # a field of the wire message: the shell is the box's
            argv=[_name(command)],
            shell=True,
            cwd=_name(cwd),
            env=_names({**self._variables, **(env or {})}),
            timeout_s=timeout_s,
            stream_limit=stream_limit,
            hold=hold is not None,
        )
        try:
            return await self._exec(params, None, stdout, stderr, hold)
        except ToolError as error:
            if error.code == ErrorCode.UNSUPPORTED:
                raise ToolError(error.message, code=error.code, hint=_NO_SHELL_HINT) from None
            raise

    async def _exec(
        self,
        params: Exec,
        stdin: AsyncIterator[bytes] | None,
        stdout: Sink | None,
        stderr: Sink | None,
        hold: Hold | None = None,
        handle: ExecHandle | None = None,
    ) -> ExecResult:
        sinks = {name: sink for name, sink in (("stdout", stdout), ("stderr", stderr)) if sink is not None}
        limit_s = None if params.timeout_s is None else params.timeout_s + EXEC_GRACE_S
        body = None if stdin is None else ("stdin", stdin)
        result = await self._call(
            Method.EXEC, params, ExecResult, sinks=sinks, body=body, limit_s=limit_s, hold=hold, handle=handle
        )
        with self._judging():
            for capture in (result.stdout, result.stderr):
                _check_capture(capture, params)
            if not (0 <= result.exit_code <= 255 and 0 <= result.signal <= 64):
                raise SandboxProtocolError(f"the box sent exit code {result.exit_code} and signal {result.signal}")
        return result

    async def read_file(
        self, path: str, *, offset: int | None = None, limit: int | None = None, max_bytes: int = 32 << 10
    ) -> FileContent:
        params = FileRead(_name(path), offset=offset, limit=limit, max_bytes=max_bytes)
        return await self._call(Method.READ, params, FileContent, limit_s=FILE_LIMIT_S)

    async def write_file(
        self, path: str, content: bytes, *, overwrite: bool = True, mode: int | None = None, if_sha256: str = ""
    ) -> FileChanged:
        name = _name(path)
        if len(content) > _INLINE_BYTES and not if_sha256:
            store = FileStore(name, 0, len(content), mode=mode, overwrite=overwrite)
            body = ("stream", _once(content))
            return await self._call(Method.STORE, store, FileChanged, body=body, limit_s=FILE_LIMIT_S)
        text = base64.b64encode(content).decode("ascii")
        params = FileWrite(name, text, overwrite=overwrite, mode=mode, if_sha256=if_sha256)
        return await self._call(Method.WRITE, params, FileChanged, limit_s=FILE_LIMIT_S)

    async def edit_file(self, path: str, edits: list[EditStep]) -> FileChanged:
        return await self._call(Method.EDIT, FileEdit(_name(path), edits), FileChanged, limit_s=FILE_LIMIT_S)

    async def apply_patch(self, text: bytes, *, dry_run: bool = False, overwrite: bool = False) -> PatchResult:
        params = FilePatch(base64.b64encode(text).decode("ascii"), dry_run=dry_run, overwrite=overwrite)
        return await self._call(Method.PATCH, params, PatchResult, limit_s=FILE_LIMIT_S)

    async def move_file(self, source: str, target: str, *, overwrite: bool = False) -> FileChanged:
        params = FileMove(_name(source), _name(target), overwrite=overwrite)
        return await self._call(Method.MOVE, params, FileChanged, limit_s=FILE_LIMIT_S)

    async def delete_file(self, path: str, *, recursive: bool = False) -> FileChanged:
        params = FileDelete(_name(path), recursive=recursive)
        return await self._call(Method.DELETE, params, FileChanged, limit_s=FILE_LIMIT_S)

    async def list_files(self, path: str = "", *, depth: int = 1, limit: int = 1000) -> Listing:
        params = FileList(_name(path), depth=depth, limit=limit)
        listing = await self._call(Method.LIST, params, Listing, limit_s=FILE_LIMIT_S)
        with self._judging():
            if len(listing.entries) > limit:
                raise SandboxProtocolError(f"the box listed {len(listing.entries)} entries, {limit} were asked for")
        return listing

    async def fetch_file(self, path: str, sink: Sink, *, offset: int = 0, limit: int = -1) -> FetchReply:
        params = FileFetch(_name(path), 0, offset=offset, limit=limit)
        reply = await self._call(Method.FETCH, params, FetchReply, sinks={"stream": sink})
        with self._judging():
            if 0 <= limit < reply.sent:
                raise SandboxProtocolError(f"the box sent {reply.sent} bytes, {limit} were asked for")
        return reply

    async def store_file(
        self, path: str, body: AsyncIterator[bytes], size: int, *, mode: int | None = None
    ) -> FileChanged:
        params = FileStore(_name(path), 0, size, mode=mode)
        return await self._call(Method.STORE, params, FileChanged, body=("stream", body))

    async def scan_tree(self, path: str = "", *, hash_files: bool = True) -> AsyncIterator[TreeEntry]:
        lines = _Lines()
        params = TreeScan(0, path=_name(path), hash_files=hash_files)
        scan = asyncio.ensure_future(
            self._call(Method.TREE_SCAN, params, TreeScanReply, sinks={"stream": lines.receive})
        )
        scan.add_done_callback(lambda _: lines.wake())
        count = 0
        try:
            while True:
                ready, is_last = lines.take(), scan.done()
                for line in ready:
                    count += 1
                    with self._judging():
                        entry = parse_value(line, TreeEntry)
                    yield entry
                if is_last:
                    break
                await lines.wait()
            with self._judging():
                entries = (await scan).entries
                if count != entries or lines.has_rest:
                    raise SandboxProtocolError(f"the box scanned {entries} entries and sent {count}")
        finally:
            scan.cancel()

    async def freeze(self) -> FreezeReply:
        return await self._call(Method.FREEZE, None, FreezeReply, limit_s=FILE_LIMIT_S)

    async def thaw(self) -> None:
        await self._call(Method.THAW, None, Empty, limit_s=FILE_LIMIT_S)

    async def kill_all(self) -> None:
        await self._call(Method.KILL_ALL, None, Empty, limit_s=FILE_LIMIT_S)

    async def stats(self) -> Stats:
        return await self._call(Method.STATS, None, Stats, limit_s=FILE_LIMIT_S)


class _Lines:
    """Lines out of a stream, with the box held back while nobody takes them."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ready: list[bytes] = []
        self._fresh = asyncio.Event()
        self._taken: asyncio.Future[None] | None = None

    @property
    def has_rest(self) -> bool:
        return bool(self._buffer)

    def receive(self, piece: memoryview) -> asyncio.Future[None] | None:
        """The sink: consumed when the lines have been taken."""
        self._buffer += piece
        *lines, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > MAX_SCAN_LINE:
            raise SandboxProtocolError("the box sent a line of a scan without end")
        if not lines:
            return None
        self._ready += map(bytes, lines)
        self._fresh.set()
        self._taken = asyncio.get_running_loop().create_future()
        return self._taken

    def wake(self) -> None:
        self._fresh.set()

    async def wait(self) -> None:
        await self._fresh.wait()
        self._fresh.clear()

    def take(self) -> list[bytes]:
        ready, self._ready = self._ready, []
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
        return ready


def _name(path: bytes | str) -> str:
    """A path or word in its wire form. Raises ToolError for what no POSIX name can be."""
    try:
        raw = path if isinstance(path, bytes) else os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError(f"{path!r} holds half a surrogate pair", code=ErrorCode.INVALID_ARGUMENT) from None
    if b"\0" in raw:
        raise ToolError(f"{path!r} holds a NUL byte", code=ErrorCode.INVALID_ARGUMENT)
    return encode_name(raw)


def _names(env: dict[str, str] | None) -> dict[str, str]:
    return {_name(key): _name(value) for key, value in (env or {}).items()}


def _check_capture(capture: Capture, params: Exec) -> None:
    try:
        head = base64.b64decode(capture.head_b64, validate=True)
        tail = base64.b64decode(capture.tail_b64, validate=True)
    except ValueError:
        raise SandboxProtocolError("the box sent output that is no base64") from None
    if len(head) > params.head_bytes + params.tail_bytes or len(tail) > params.tail_bytes:
        raise SandboxProtocolError("the box sent more output in a reply than was asked for")
    if capture.total_bytes < len(head) + len(tail):
        raise SandboxProtocolError("the box sent more output than it counted")


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
