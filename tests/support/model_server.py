"""A local endpoint that speaks the OpenAI chat protocol over real HTTP and says what it is told, faults included."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Json:
    """A whole JSON body."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Any bytes under any type."""

    body: bytes
    content_type: str = "text/html"
    status: int = 200


@dataclass(frozen=True)
class Stream:
    """Chunks as server-sent events. A str is sent as it is; `cut` ends the connection in the middle of a chunk."""

    chunks: tuple[Any, ...]
    done: bool = True
    cut: bool = False
    pause_s: float = 0.0


Answer = Json | Raw | Stream | Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class ModelServer:
    """Answers in order; the last answer is given again and again. Use as a context manager."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._answers = list(answers)
        self.received: list[Received] = []
        self._lock = threading.Lock()
        server = self
        self.ended = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers.get("content-length", "0"))) or b"{}")
        with self._lock:
            answer: Any = self._answers[min(len(self.received), len(self._answers) - 1)]
            self.received.append(
                Received(handler.path, {name.lower(): value for name, value in handler.headers.items()}, body)
            )
        if callable(answer):
            answer = answer(body)
        try:
            self._send(handler, answer)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has gone, as some tests want it to

    def _send(self, handler: BaseHTTPRequestHandler, answer: Json | Raw | Stream) -> None:
        if isinstance(answer, Stream):
            self._send_stream(handler, answer)
            return
        data = json.dumps(answer.body).encode() if isinstance(answer, Json) else answer.body
        handler.send_response(answer.status)
        handler.send_header("content-type", "application/json" if isinstance(answer, Json) else answer.content_type)
        handler.send_header("content-length", str(len(data)))
        for name, value in (answer.headers if isinstance(answer, Json) else {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    def _send_stream(self, handler: BaseHTTPRequestHandler, answer: Stream) -> None:
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()

        def send(data: bytes) -> None:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            handler.wfile.flush()

        for chunk in answer.chunks:
            if isinstance(chunk, float):
                self.ended.wait(chunk)
                continue
            text = chunk if isinstance(chunk, str) else json.dumps(chunk)
            send(f"data: {text}\n\n".encode())
            if answer.pause_s:
                time.sleep(answer.pause_s)
        if answer.cut:
            handler.wfile.write(b"ff\r\ndata: {")
            handler.wfile.flush()
            return
        if answer.done:
            send(b"data: [DONE]\n\n")
        handler.wfile.write(b"0\r\n\r\n")


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "test-model",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
        **more,
    }


def call_delta(**parts: Any) -> dict[str, Any]:
    """A chunk with one piece of a call: id, index, name, arguments as given, the rest absent."""
    function = {key: parts[key] for key in ("name", "arguments") if key in parts}
    call = {key: parts[key] for key in ("id", "index") if key in parts}
    return chunk({"tool_calls": [{**call, "type": "function", **({"function": function} if function else {})}]})


def usage_chunk(sent: int = 100, got: int = 10, cached: int = 0) -> dict[str, Any]:
    usage = {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got}
    return {**chunk(), "choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": cached}}}


def say(text: str, *, finish: str = "stop") -> Stream:
    """An answer of text only, in two pieces."""
    half = len(text) // 2
    return Stream((chunk({"content": text[:half]}), chunk({"content": text[half:]}), chunk({}, finish), usage_chunk()))


def call(name: str, arguments: dict[str, Any], *, id: str = "c1", text: str = "") -> Stream:
    """An answer with one call."""
    pieces = json.dumps(arguments)
    half = len(pieces) // 2
    return Stream(
        (
            *((chunk({"content": text}),) if text else ()),
            call_delta(index=0, id=id, name=name, arguments=""),
            call_delta(index=0, arguments=pieces[:half]),
            call_delta(index=0, arguments=pieces[half:]),
            chunk({}, "tool_calls"),
            usage_chunk(),
        )
    )


def error(status: int, message: str, **more: Any) -> Json:
    headers = more.pop("headers", {})
    return Json({"error": {"message": message, **more}}, status, headers)
