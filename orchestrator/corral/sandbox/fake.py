"""A box without an engine, for tests of what uses boxes. NOT A BOUNDARY: nothing in it is isolated from anything.

Commands are scripted and never run. File operations are the toolbox's own, on a plain directory, and their results
pass the same validation as those of a real box. tests/contract holds it to the contract of base.Sandbox.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from corral.errors import BoxLost, ToolError
from corral.sandbox.base import NO_VARIABLES, BoxInfo, ExecHandle, Hold, Sink
from corral.sandbox.channel import BoxOperations
from corral.sandbox.channel.tunnel import BoxStream, Serve
from corral.sandbox.channel.wire import Empty, parse_error, parse_result
from corral.sandbox.fake_program import FakeProgram, run_program
from corral.sandbox.spec import MAX_STREAMS, WorkspaceMode
from corral_protocol.error import RPC_ERROR, ErrorCode, WireError
from corral_protocol.message import Capture, Exec, ExecResult, ExecStatus, FreezeReply, Method, Stats
from corral_protocol.name import decode_name, encode_name
from corral_toolbox.files import FileEnv, dispatch

T = TypeVar("T")


@dataclass(frozen=True)
class FakeCall:
    """A command as the script sees it."""

    argv: tuple[bytes, ...]
    """For a shell call one element: the command line."""
    is_shell: bool
    cwd: bytes
    env: Mapping[str, str]
    stdin: bytes
    root: Path
    """The workspace; a script may change files in it."""


@dataclass(frozen=True)
class FakeOutcome:
    """How a scripted command ends."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    signal: int = 0
    takes_s: float = 0.0


Script = Callable[[FakeCall], FakeOutcome | None] | Mapping[str, FakeOutcome]
"""What commands do: a function, or outcomes by command line (argv joined by spaces). None, or a miss: not found."""


class FakeSandbox(BoxOperations):
    """corral.sandbox.base.Sandbox over a directory."""

    def __init__(
        self,
        workspace: Path,
        script: Script | None = None,
        *,
        run_id: str = "fake",
        programs: Mapping[str, FakeProgram] | None = None,
    ) -> None:
        """`programs` are those that talk while they run, by command line; they come before the script."""
        self._programs = programs or {}
        self._root = workspace.resolve(strict=True)
        self._script: Script = script if script is not None else {}
        self._run_id = run_id
        self._call = self._ask
        self._info: BoxInfo | None = None
        self._is_disposed = False
        self._running: set[asyncio.Future[Any]] = set()
        self.calls: list[FakeCall] = []
        """Every command so far, for assertions."""

    @property
    def info(self) -> BoxInfo:
        if self._info is None:
            raise RuntimeError("the box has not been started")
        return self._info

    async def start(self) -> BoxInfo:
        if self._info is not None or self._is_disposed:
            raise RuntimeError("a box is started once")
        self._info = BoxInfo(
            box_id="fake",
            run_id=self._run_id,
            image="fake",
            image_id="",
            runtime="none",
            mode=WorkspaceMode.COPY,
            mode_reason="a fake: the directory itself",
            mount_point=str(self._root),
            uid=0,
            gid=0,
            warnings=("this box is a fake and isolates nothing",),
        )
        return self._info

    async def dispose(self) -> None:
        self._is_disposed = True
        self._kill_running()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.dispose()

    async def open_tunnel(
        self, serve: Serve, *, variables: Mapping[str, str] = NO_VARIABLES, max_streams: int = MAX_STREAMS
    ) -> None:
        raise ToolError("a fake box has no network", code=ErrorCode.UNSUPPORTED)

    async def dial(self, port: int) -> BoxStream:
        raise ToolError("a fake box has no network", code=ErrorCode.UNSUPPORTED)

    async def _ask(
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
    ) -> T:
        if self._info is None:
            raise RuntimeError("the box has not been started")
        if self._is_disposed:
            raise BoxLost("the box has been disposed of")
        if method is Method.EXEC:
            assert isinstance(params, Exec)
            if hold is not None:
                await hold()
            if (program := self._find_program(params)) is not None:
                return cast(T, await self._run_program(program, params, sinks or {}, body, handle))
            return cast(T, await self._run(params, sinks or {}, await _collect(body)))
        plain = self._answer_plain(method)
        if plain is not None:
            return cast(T, plain)
        return await self._run_file(method, params, kind, sinks or {}, await _collect(body))

    def _answer_plain(self, method: Method) -> object | None:
        if method is Method.FREEZE:
            return FreezeReply(0)
        if method is Method.THAW:
            return Empty()
        if method is Method.KILL_ALL:
            self._kill_running()
            return Empty()
        return Stats(1, 0, len(self._running), 0, 0) if method is Method.STATS else None

    def _kill_running(self) -> None:
        for waiting in self._running:
            if not waiting.done():
                waiting.set_result(ExecStatus.KILLED)

    async def _run_file(self, method: Method, params: Any, kind: type[T], sinks: Mapping[str, Sink], body: bytes) -> T:
        wire = asdict(params) | ({"stream": 1} if hasattr(params, "stream") else {})
        env = FileEnv(bytes(self._root), [(bytes(self._root), True)])
        out = io.BytesIO()
        try:
            result = await asyncio.to_thread(dispatch, method.value, wire, env, io.BytesIO(body), out)
        except WireError as error:
            data = {"code": str(error.code), "details": error.data}
            raise parse_error({"code": RPC_ERROR, "message": error.message, "data": data}) from None
        for sink in sinks.values():
            await _feed(sink, out.getvalue())
        return parse_result(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode(), kind)

    async def _run(self, params: Exec, sinks: Mapping[str, Sink], stdin: bytes) -> ExecResult:
        argv = tuple(decode_name(word) for word in params.argv)
        cwd = self._root / Path(decode_name(params.cwd).decode("utf-8", "surrogateescape"))
        call = FakeCall(argv, params.shell, bytes(cwd), params.env, stdin, self._root)
        self.calls.append(call)
        outcome = self._find_outcome(call)
        if outcome is None:
            text = f"{argv[0].decode('utf-8', 'replace')}: not found"
            if params.shell:
                outcome = FakeOutcome(127, stderr=text.encode() + b"\n")
            else:
                return ExecResult(ExecStatus.NOT_STARTED, 127, notices=[text])
        ended = await self._wait(outcome.takes_s, params.timeout_s)
        if ended is not None:
            return ExecResult(ended)
        stdout, stderr = outcome.stdout, outcome.stderr
        if params.merge_stderr:
            stdout, stderr = stdout + stderr, b""
        captures = [
            await self._stream(data, sinks.get(name), params) for name, data in (("stdout", stdout), ("stderr", stderr))
        ]
        return ExecResult(
            ExecStatus.SIGNALED if outcome.signal else ExecStatus.EXITED,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            cwd=encode_name(bytes(cwd)) if params.shell else "",
            stdout=captures[0],
            stderr=captures[1],
            duration_s=outcome.takes_s,
        )

    def _find_program(self, params: Exec) -> FakeProgram | None:
        return self._programs.get(b" ".join(map(decode_name, params.argv)).decode("utf-8", "surrogateescape"))

    async def _run_program(
        self,
        program: FakeProgram,
        params: Exec,
        sinks: Mapping[str, Sink],
        body: tuple[str, AsyncIterator[bytes]] | None,
        handle: ExecHandle | None,
    ) -> ExecResult:
        killed: asyncio.Future[ExecStatus] = asyncio.get_running_loop().create_future()
        self._running.add(killed)
        try:
            result = await run_program(program, params, sinks, body, handle, killed)
        finally:
            self._running.discard(killed)
        if self._is_disposed:
            raise BoxLost("the box has been disposed of")
        return result

    def _find_outcome(self, call: FakeCall) -> FakeOutcome | None:
        if callable(self._script):
            return self._script(call)
        return self._script.get(b" ".join(call.argv).decode("utf-8", "surrogateescape"))

    async def _wait(self, takes_s: float, timeout_s: float | None) -> ExecStatus | None:
        """Let a command take its time. How it was ended, or None when it came to its own end."""
        if not takes_s:
            return None
        killed: asyncio.Future[ExecStatus] = asyncio.get_running_loop().create_future()
        self._running.add(killed)
        is_over = timeout_s is not None and timeout_s < takes_s
        try:
            await asyncio.wait((killed,), timeout=timeout_s if is_over else takes_s)
        finally:
            self._running.discard(killed)
        if killed.done():
            if self._is_disposed:
                raise BoxLost("the box has been disposed of")
            return killed.result()
        return ExecStatus.TIMEOUT if is_over else None

    async def _stream(self, data: bytes, sink: Sink | None, params: Exec) -> Capture:
        limit = len(data) if params.stream_limit < 0 else params.stream_limit
        streamed = data[:limit] if sink is not None else b""
        if sink is not None:
            await _feed(sink, streamed)
        head, tail = data[: params.head_bytes], data[params.head_bytes :][-params.tail_bytes :]
        return Capture(_base64(head), _base64(tail), len(data), len(streamed))


async def _feed(sink: Sink, data: bytes) -> None:
    view = memoryview(data)
    while view:
        pending: Awaitable[None] | None = sink(view[: 64 << 10])
        if pending is not None:
            await pending
        view = view[64 << 10 :]


async def _collect(body: tuple[str, AsyncIterator[bytes]] | None) -> bytes:
    return b"" if body is None else b"".join([data async for data in body[1]])


def _base64(data: bytes) -> str:

    return base64.b64encode(data).decode("ascii")
