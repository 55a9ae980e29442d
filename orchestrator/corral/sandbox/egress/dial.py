"""From a judged name to a connected socket: resolve, refuse, connect to the very address that was checked."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from corral.sandbox.engine import run_in_thread
from corral.schema.address import explain_refusal, is_own, parse_address
from corral.schema.target import Target

CONNECT_S = 10.0
RESOLVE_S = 10.0
_TRIED = 4
_RESOLVERS = 8

Resolve = Callable[[str], Awaitable[list[str]]]


class Refused(Exception):
    """A connection that is not made: not allowed, or not possible (`has_failed`)."""

    def __init__(self, reason: str, *, has_failed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.has_failed = has_failed

    @property
    def outcome(self) -> str:
        return "failed" if self.has_failed else "refused"


def system_resolver() -> Resolve:
    """The host's own resolver, in a few daemon threads: a slow name server holds up neither other work nor our end."""
    places = asyncio.Semaphore(_RESOLVERS)

    async def resolve(name: str) -> list[str]:
        await places.acquire()
        asking = run_in_thread(lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM), name="corral-resolve")
        # The place is free when the thread is, not when nobody waits for it any more.
        asking.add_done_callback(lambda _: places.release())
        found = await asyncio.shield(asking)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    return resolve


@dataclass(frozen=True)
class Dialer:
    """How connections out of the box are made."""

    resolve: Resolve = field(default_factory=system_resolver)
    connect_s: float = CONNECT_S
    exempt: frozenset[tuple[str, int]] = frozenset()
    """Addresses with ports that are reached although they are not public. For tests with servers on loopback only: no
    setting and no option leads here."""

    async def connect(self, target: Target) -> tuple[socket.socket, str]:
        """A connected socket and the address it goes to. Raises Refused."""
        addresses = await self._look_up(target)
        failure = "no address answered"
        for address in addresses[:_TRIED]:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                async with asyncio.timeout(self.connect_s):
                    # SECURITY: by number, never by name again: a second look-up may answer otherwise
                    # (test_egress_dial).
                    await asyncio.get_running_loop().sock_connect(sock, (address, target.port))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock, address
            except TimeoutError:
                sock.close()
                failure = f"no answer within {self.connect_s:g} s"
            except OSError as error:
                sock.close()
                failure = os.strerror(error.errno) if error.errno else str(error)
            except BaseException:
                sock.close()
                raise
        raise Refused(f"cannot connect to {target}: {failure}", has_failed=True)

    async def _look_up(self, target: Target) -> list[str]:
        literal = parse_address(target.host)
        if literal is not None:
            found = [str(literal)]
        else:
            try:
                async with asyncio.timeout(RESOLVE_S):
                    found = await self.resolve(target.host)
            except (OSError, UnicodeError, TimeoutError) as error:
                raise Refused(f"{target.host} cannot be resolved: {_explain(error)}", has_failed=True) from None
        kept, refusals = [], []
        for text in found:
            why = self._refuse(text, target.port)
            if why:
                refusals.append(f"{text} is {why}" if not why.startswith("embeds") else f"{text} {why}")
            else:
                kept.append(text)
        if not kept:
            raise Refused("; ".join(refusals[:3]) or f"{target.host} has no address")
        return kept

    def _refuse(self, text: str, port: int) -> str:
        address = parse_address(text)
        if address is None:
            return "not an address"
        if (text, port) in self.exempt:
            return ""
        return explain_refusal(address) or (_OWN if is_own(address) else "")


_OWN = "an address of this machine"


def _explain(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or "no answer in time").lower()


def is_private(host: str) -> bool:
    """Whether a host, if it is an address at all, is one that is not public."""
    address = parse_address(host)
    return address is not None and bool(explain_refusal(address))
