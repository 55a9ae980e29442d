"""The SOCKS5 port that programs in the box find on their loopback: CONNECT only, without a password."""

from __future__ import annotations

import asyncio
import ipaddress

from corral.sandbox.channel.tunnel import BoxStream
from corral.sandbox.egress.dial import Refused
from corral.sandbox.egress.gate import Gate
from corral.sandbox.egress.http.head import HEAD_S, BadMessage, Buffered
from corral.sandbox.egress.outside import open_outside
from corral.sandbox.egress.relay import IDLE_S, relay
from corral.schema.network import Scheme
from corral.schema.target import BadTarget, Target, parse_host

_VERSION, _CONNECT = 5, 1
_NAME, _V4, _V6 = 3, 1, 4
_OK, _NOT_ALLOWED, _UNREACHABLE, _NO_COMMAND, _NO_ADDRESS = 0, 2, 4, 7, 8


class _Rejected(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


async def serve_socks(box: BoxStream, gate: Gate, *, idle_s: float = IDLE_S) -> None:
    """One connection to the SOCKS port. Raises OSError when the box gives it up, RecordError."""
    source = Buffered(box.read)
    try:
        async with asyncio.timeout(HEAD_S):
            target = await _shake_hands(box, source)
        admitted = await gate.admit(target, Scheme.SOCKS)
    except (BadMessage, TimeoutError):
        box.abort()
        return
    except (_Rejected, Refused, BadTarget) as error:
        code = error.code if isinstance(error, _Rejected) else _NOT_ALLOWED
        if isinstance(error, Refused) and error.has_failed:
            code = _UNREACHABLE
        await box.write(_reply(code))
        box.close()
        return
    try:
        async with open_outside(admitted) as outside:
            await box.write(_reply(_OK))
            if early := source.take_rest():
                await outside.write(early)
            await relay(box, outside, idle_s=idle_s)
    finally:
        await gate.finish(admitted)


async def _shake_hands(box: BoxStream, source: Buffered) -> Target:
    version, count = await source.take(2)
    if version != _VERSION:
        raise BadMessage("not SOCKS5")
    if 0 not in await source.take(count):
        await box.write(b"\5\xff")
        raise BadMessage("no way without a password offered")
    await box.write(b"\5\0")
    version, command, zero, kind = await source.take(4)
    if version != _VERSION or zero:
        raise BadMessage("not SOCKS5")
    if kind == _NAME:
        (size,) = await source.take(1)
        name = (await source.take(size)).decode("latin-1")
    elif kind in (_V4, _V6):
        name = str(ipaddress.ip_address(await source.take(4 if kind == _V4 else 16)))
    else:
        raise _Rejected(_NO_ADDRESS)
    port = int.from_bytes(await source.take(2), "big")
    if command != _CONNECT:
        raise _Rejected(_NO_COMMAND)
    if not port:
        raise BadTarget("not a port")
    return Target(parse_host(name), port)


def _reply(code: int) -> bytes:
    return bytes((_VERSION, code, 0, _V4)) + bytes(6)
