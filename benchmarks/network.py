"""The tunnel: how fast a stream is beside a file read, what a call waits for beside one, a hundred at once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

from benchmarks.run import Contender, Options, alternate, main, timed
from benchmarks.table import Group, compare, state
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.egress import Dialer, Egress
from corral.schema.events import Event, Payload, Source
from corral.schema.network import NetworkRequest
from corral.schema.policy import Decision, Effect

SIZE = 50 << 20
STREAMS = 100
NOTE = """\
A program in the box opens CONNECT tunnels to a server in another process of the host, on loopback, and times itself
from the proxy's answer to the last byte: 50 MiB in, 50 MiB out, a hundred streams of 1 MiB at once. Beside it the same
50 MiB read as a file over the channel, and without a box between: a program of the host that reads from that server. A
call under load is `shell true` while a stream runs at full speed."""

_SERVER = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0), backlog=200)
print(server.getsockname()[1], flush=True)
def serve(sock):
    with sock:
        try:
            want = int(sock.recv(32))
            block = bytes(1 << 18)
            if want < 0:
                while want < 0: want += len(sock.recv(1 << 18))
                sock.sendall(b"k")
            while want > 0: want -= sock.send(block[:want])
        except OSError: pass
while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
_PROGRAM = """
import os, socket, sys, threading, time
port, count, size = map(int, sys.argv[1:])
proxy = os.environ.get("HTTP_PROXY", "").rpartition("/")[2].partition(":")
def connect():
    if not proxy[0]: return socket.create_connection(("127.0.0.1", port))
    sock = socket.create_connection((proxy[0], int(proxy[2])))
    sock.sendall(b"CONNECT server.test:%d HTTP/1.1\\r\\n\\r\\n" % port)
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"): head += sock.recv(1)
    return sock
def move(sock):
    sock.sendall(b"%-32d" % size)
    left = size
    block = bytes(1 << 18)
    while left < 0: left += sock.send(block[:-left])
    if size < 0: sock.recv(1)
    while left > 0: left -= len(sock.recv(1 << 18))
socks = [connect() for _ in range(count)]
began = time.perf_counter()
threads = [threading.Thread(target=move, args=(sock,)) for sock in socks]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(time.perf_counter() - began)
"""


class _Everything:
    """A decider."""

    phase = ""

    def decide(self, request: NetworkRequest) -> Decision:
        return Decision(effect=Effect.ALLOW, policy_version="")


class _Nowhere:
    """A record."""

    async def append_async(
        self, *payloads: Payload, source: Source | None = None, durable: bool = True
    ) -> tuple[Event, ...]:
        return ()


@contextlib.contextmanager
def run_server() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def measure(options: Options) -> Group:
    place = options.place
    workspace = place.make_tree("small")
    with run_server() as port:
        async with place.box(workspace) as (box, _):
            egress = await _open(box, port)
            await box.write_file("/tmp/move.py", _PROGRAM.encode())
            await box.shell(f"head -c {SIZE} /dev/zero > /tmp/large")
            found = await alternate(
                options.rounds(15, 4),
                {
                    "in": _move(box, port, 1, SIZE),
                    "file": timed(lambda: box.fetch_file("/tmp/large", lambda piece: None)),
                    "out": _move(box, port, 1, -SIZE),
                    "hundred": _move(box, port, STREAMS, 1 << 20),
                    "host": _move_on_host(port),
                    "idle": timed(lambda: box.shell("true")),
                    "busy": _call_beside(box, port, lambda: box.shell("true"), SIZE * 40),
                    "busy out": _call_beside(box, port, lambda: box.shell("true"), -SIZE * 40),
                },
                pause_s=0.05,
            )
            await egress.close()
    rows = [
        compare(
            "a stream into the box, 50 MiB", found["in"], "file of 50 MiB over the channel", found["file"], limit=2
        ),
        compare(
            "a stream out of the box, 50 MiB", found["out"], "file of 50 MiB over the channel", found["file"], limit=2
        ),
        compare("a hundred streams of 1 MiB at once", found["hundred"], "one stream of 50 MiB", found["in"], limit=4),
        compare("`shell true` beside a stream in", found["busy"], "`shell true`", found["idle"], limit=10),
        compare("`shell true` beside a stream out", found["busy out"], "`shell true`", found["idle"], limit=10),
        state("of these: 50 MiB on the host's loopback, without a box", found["host"]),
    ]
    return Group("network", "Network by tunnel", NOTE, rows)


async def _open(box: DockerSandbox, port: int) -> Egress:
    async def resolve(name: str) -> list[str]:
        return ["127.0.0.1"]

    egress = Egress(_Everything(), _Nowhere(), dialer=Dialer(resolve=resolve, exempt=frozenset({("127.0.0.1", port)})))
    await egress.open(box)
    return egress


def _move(box: DockerSandbox, port: int, count: int, size: int) -> Contender:
    async def contender() -> float:
        result = await box.exec(["python3", "/tmp/move.py", str(port), str(count), str(size)])
        assert result.exit_code == 0, base64.b64decode(result.stderr.tail_b64 or result.stderr.head_b64)
        return float(base64.b64decode(result.stdout.head_b64))

    return contender


def _move_on_host(port: int) -> Contender:
    async def contender() -> float:
        left, began = SIZE, time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"%-32d" % SIZE)
            while left > 0:
                left -= len(sock.recv(1 << 18))
        return time.perf_counter() - began

    return contender


def _call_beside(box: DockerSandbox, port: int, call: Callable[[], Awaitable[object]], size: int) -> Contender:
    async def contender() -> float:
        stream = asyncio.ensure_future(box.exec(["python3", "/tmp/move.py", str(port), "1", str(size)]))
        await asyncio.sleep(0.3)
        assert not stream.done()
        began = time.perf_counter()
        await call()
        seconds = time.perf_counter() - began
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        return seconds

    return contender


if __name__ == "__main__":
    main(measure)
