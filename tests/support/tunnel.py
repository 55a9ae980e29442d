"""A tunnel without a box: programs that connect, judged and connected by the real orchestrator's side."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.security.hostile_box import HostileBox, open_hostile_box

from corral.sandbox.egress import Dialer, Egress, Secret
from corral.schema.events import ConnectionAttempted, ConnectionEnded, Event, Payload, Source
from corral.schema.network import NetworkRequest
from corral.schema.policy import Decision, Effect
from corral_protocol import MAX_CHUNK_BYTES
from corral_protocol.message import FIRST_OPENED_STREAM, INITIAL_CREDIT

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Listed:
    """A decider: these hosts, whichever port."""

    hosts: set[str]
    phase: str = "agent"
    asked: list[NetworkRequest] = field(default_factory=list)

    def decide(self, request: NetworkRequest) -> Decision:
        self.asked.append(request)
        if request.host in self.hosts:
            return Decision(effect=Effect.ALLOW, rules=("test/listed",), policy_version="1")
        return Decision(effect=Effect.DENY, reason="not listed", policy_version="1")


class Notes:
    """A record in memory."""

    def __init__(self) -> None:
        self.payloads: list[Payload] = []
        self.durable: list[bool] = []

    async def append_async(
        self, *payloads: Payload, source: Source | None = None, durable: bool = True
    ) -> tuple[Event, ...]:
        assert source is Source.ORCHESTRATOR or all(one.source is Source.ORCHESTRATOR for one in payloads)
        self.payloads += payloads
        self.durable += [durable] * len(payloads)
        return ()

    @property
    def attempts(self) -> list[ConnectionAttempted]:
        return [one for one in self.payloads if isinstance(one, ConnectionAttempted)]

    @property
    def ends(self) -> list[ConnectionEnded]:
        return [one for one in self.payloads if isinstance(one, ConnectionEnded)]


def point_to(port: int, *names: str, address: str = "127.0.0.1") -> Dialer:
    """A name server that knows these names only, and the exception for servers on loopback."""

    async def resolve(name: str) -> list[str]:
        if name not in names:
            raise OSError("no such name")
        return [address]

    return Dialer(resolve=resolve, exempt=frozenset({(address, port)}), connect_s=2.0)


@asynccontextmanager
async def serve(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on loopback; its port."""

    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
            writer.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(run, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # the transports close in the loop's own time


class Program:
    """A connection as a program in the box has it, with the toolbox's part of the work done honestly."""

    def __init__(self, net: Net, number: int) -> None:
        self._net = net
        self.number = number
        self.got = bytearray()
        self.sent = 0
        self.ended = asyncio.Event()
        self.was_reset = False
        self.moved = asyncio.Event()
        self.is_reading = True
        self.has_finished = False
        self.credit = INITIAL_CREDIT

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            while not self.credit and not self.was_reset:
                self.moved.clear()
                await self.moved.wait()
            if self.was_reset:
                return
            piece = view[: min(MAX_CHUNK_BYTES, self.credit)]
            view = view[len(piece) :]
            self.credit -= len(piece)
            self.sent += len(piece)
            await self._net.box.chunk(self.number, bytes(piece))

    async def finish(self) -> None:
        if self.has_finished:
            return
        self.has_finished = True
        await self._net.box.say(method="stream.close", params={"stream": self.number, "total": self.sent, "error": ""})

    async def read_all(self, within_s: float = 10.0) -> bytes:
        await asyncio.wait_for(self.ended.wait(), within_s)
        return bytes(self.got)

    async def read_until(self, mark: bytes, within_s: float = 10.0) -> bytes:
        async with asyncio.timeout(within_s):
            while mark not in self.got:
                self.moved.clear()
                await self.moved.wait()
        return bytes(self.got)

    async def ask(self, data: bytes, *, finish: bool = False) -> bytes:
        """Send a request, and take everything that comes back."""
        await self.send(data)
        if finish:
            await self.finish()
        answer = await self.read_all()
        if not finish and not self.was_reset:
            await self.finish()
        return answer


class Net:
    """An open tunnel, and programs on its other side."""

    def __init__(self, box: HostileBox, egress: Egress, notes: Notes) -> None:
        self.box = box
        self.egress = egress
        self.notes = notes
        self._programs: dict[int, Program] = {}
        self._next = FIRST_OPENED_STREAM

    async def connect(self, listener: int = 0) -> Program:
        program = self._programs[self._next] = Program(self, self._next)
        self._next += 1
        await self.box.say(method="stream.open", params={"stream": program.number, "listener": listener})
        return program

    async def hear(self) -> None:
        """What the toolbox does with what the host says."""
        while True:
            payload = await self.box.hear_frame()
            if payload[0] == 1:
                program = self._programs[int.from_bytes(payload[1:5], "big")]
                program.got += payload[5:]
                program.moved.set()
                if program.is_reading:
                    credit = {"stream": program.number, "bytes": len(payload) - 5}
                    await self.box.say(method="stream.credit", params=credit)
                continue
            await self._hear_message(payload)

    async def _hear_message(self, payload: bytes) -> None:
        message = self.box.parse(payload)
        params: dict[str, Any] = message.get("params", {})
        if message["method"] == "tunnel.listen":
            await self.box.say(id=message["id"], result={"ports": [3128, 1080]})
        elif message["method"] == "stream.credit":
            program = self._programs[params["stream"]]
            program.credit += params["bytes"]
            program.moved.set()
        elif message["method"] in ("stream.close", "stream.reset"):
            program = self._programs[params["stream"]]
            program.was_reset |= message["method"] == "stream.reset" or bool(params["error"])
            program.ended.set()
            program.moved.set()
            if message["method"] == "stream.reset" and not program.has_finished:
                program.has_finished = True
                closing = {"stream": program.number, "total": program.sent, "error": "cancelled"}
                await self.box.say(method="stream.close", params=closing)


class ChannelBox:
    """corral.sandbox.egress.TunnelBox over a bare channel."""

    def __init__(self, box: HostileBox) -> None:
        self._box = box

    async def open_tunnel(self, serve: Any, *, variables: Any = None, max_streams: int = 128) -> None:
        from corral.sandbox.channel.port import open_tunnel

        await open_tunnel(self._box.channel, serve, max_streams)

    async def dial(self, port: int) -> Any:
        from corral.sandbox.channel.port import dial

        return await dial(self._box.channel, port)


@asynccontextmanager
async def open_net(
    hosts: Iterable[str] | Listed,
    dialer: Dialer,
    *,
    secrets: Sequence[Secret] = (),
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    idle_s: float = 300.0,
) -> AsyncIterator[Net]:
    decider = hosts if isinstance(hosts, Listed) else Listed(set(hosts))
    notes = Notes()
    async with open_hostile_box() as box:
        egress = Egress(decider, notes, secrets=secrets, dialer=dialer, tls=tls, idle_s=idle_s)
        net = Net(box, egress, notes)
        hearing = asyncio.ensure_future(net.hear())
        try:
            await egress.open(ChannelBox(box))
            yield net
            assert not box.channel.ended.done(), box.channel.ended.result()
        finally:
            await egress.close()
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
