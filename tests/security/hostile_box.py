"""The far end of a channel in the hands of an attacker: says whatever a test wants, byte by byte."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from corral.errors import BoxLost, SandboxError, SandboxProtocolError
from corral.sandbox.channel import BoxOperations, Channel, open_channel, run_call
from corral_protocol import FrameDecoder, encode_chunk, encode_control
from corral_protocol.message import ProcessEvents

STDOUT, STDERR = 1, 2


class HostileBox(BoxOperations):
    """Both ends: the host's as operations and `channel`, the box's as `say`, `send`, `hear`."""

    def __init__(self, channel: Channel, peer: socket.socket, told: list[tuple[str, ProcessEvents]]) -> None:
        self.channel = channel
        self.told = told
        self._peer = peer
        self._decoder = FrameDecoder()
        self._heard: list[bytes] = []
        self._call = self._ask
        self._turn = asyncio.Lock()

    async def _ask(self, method: Any, params: Any, kind: Any, **more: Any) -> Any:
        return await run_call(self.channel, method, params, kind, **more)

    def _end_box(self, error: SandboxProtocolError) -> None:
        self.channel.end(error)

    async def send(self, frames: bytes, kind: int = STDOUT) -> None:
        """Bytes on the container's stdout, as the engine would pass them on."""
        async with self._turn:  # two tasks on a full socket would mix their bytes
            await asyncio.get_running_loop().sock_sendall(self._peer, struct.pack(">BxxxI", kind, len(frames)) + frames)

    async def send_payload(self, payload: bytes) -> None:
        await self.send(len(payload).to_bytes(4, "big") + payload)

    async def say(self, **message: Any) -> None:
        await self.send(encode_control({"jsonrpc": "2.0", **message}))

    async def chunk(self, stream: int, data: bytes) -> None:
        await self.send(encode_chunk(stream, data))

    async def hear(self) -> dict[str, Any]:
        """The next message of the host; data chunks come as {"chunk": bytes}."""
        payload = await asyncio.wait_for(self.hear_frame(), 5)
        return {"chunk": payload[5:]} if payload[0] == 1 else self.parse(payload)

    async def hear_frame(self) -> bytes:
        """The next frame of the host, without its length."""
        while not self._heard:
            data = await asyncio.get_running_loop().sock_recv(self._peer, 1 << 16)
            assert data, "the host has closed the channel"
            self._heard += self._decoder.feed(data)
        return self._heard.pop(0)

    @staticmethod
    def parse(payload: bytes) -> dict[str, Any]:
        return dict(json.loads(payload))

    async def end(self) -> SandboxError:
        """Why the channel ended."""
        return await asyncio.wait_for(asyncio.shield(self.channel.ended), 5)

    def hang_up(self) -> None:
        self._peer.close()


@asynccontextmanager
async def open_hostile_box() -> AsyncIterator[HostileBox]:
    host, peer = socket.socketpair()
    peer.setblocking(False)

    async def diagnose() -> SandboxError:
        return BoxLost("the box hung up")

    told: list[tuple[str, ProcessEvents]] = []
    channel = await open_channel(host, diagnose, lambda call, batch: told.append((call, batch)))
    box = HostileBox(channel, peer, told)
    try:
        yield box
    finally:
        box.channel.end(BoxLost("the test is over"))
        await box.channel.ended
        peer.close()
