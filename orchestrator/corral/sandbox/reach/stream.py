"""An attached container over TLS, as an asyncio transport.

A TLS connection that blocking code has opened cannot be handed to asyncio, so this one is opened there, and the one
request that turns it into a raw stream is written by hand.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import cast
from urllib.parse import urlsplit

from corral.errors import EngineUnavailable, SandboxError
from corral.sandbox.reach.address import Address
from corral.schema.visible import visible

_HEAD_BYTES = 64 << 10
_PORT = 2376


class TlsStream(asyncio.Protocol):
    """A connection that speaks HTTP until the answer, and is somebody else's from hand_over() on."""

    def __init__(self, request: bytes) -> None:
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """The head of the answer."""
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if self.answered.done():
            return
        if end >= 0:
            head = bytes(self._received[:end])
            del self._received[: end + 4]
            assert self._transport is not None
            self._transport.pause_reading()
            self.answered.set_result(head)
        elif len(self._received) > _HEAD_BYTES:
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        if not self.answered.done():
            self.answered.set_exception(error or ConnectionResetError("the engine closed the connection"))

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """From now on everything is `protocol`'s, what has come already first."""
        assert self._transport is not None
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._received:
            protocol.data_received(bytes(self._received))
        if self._is_lost:
            protocol.connection_lost(None)
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def open_tls_stream(address: Address, path: str) -> TlsStream:
    """POST `path`, and what follows the answer. Raises OSError, EngineUnavailable, SandboxError."""
    parts = urlsplit(address.url)
    host, port = parts.hostname or "", parts.port or _PORT
    request = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
    )
    context = await asyncio.to_thread(_make_context, address)
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(
        lambda: TlsStream(request.encode("ascii")), host, port, ssl=context, server_hostname=host
    )
    try:
        head = await stream.answered
    except BaseException:
        stream.close()
        raise
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or status[1] not in (b"101", b"200"):
        stream.close()
        shown = visible(head.split(b"\r\n", 1)[0], limit=200)
        raise SandboxError(f"the engine refused to attach to the container: {shown}")
    return stream


def _make_context(address: Address) -> ssl.SSLContext:
    if address.certificates is None:
        raise EngineUnavailable("this engine is not reached by TLS")
    address.check_files()
    # SECURITY: verifies chain and name by itself: who answers gets what the box is told (test_tls_refusals).
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(address.certificates / "ca.pem"))
    context.load_cert_chain(address.certificates / "cert.pem", address.certificates / "key.pem")
    return context
