"""What a box wants to reach, and who judges it. Values and a protocol, no decisions."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from corral.schema.policy import Decision
from corral.schema.tools import Frozen


class Scheme(StrEnum):
    """How a connection was asked for, and with it how much of it can be seen."""

    TUNNEL = "tunnel"  # CONNECT: bytes that nobody here reads, mostly TLS
    HTTP = "http"  # one plain request
    HTTPS = "https"  # one request, plain up to here and by TLS from here
    SOCKS = "socks"  # bytes that nobody here reads
    FORWARD = "forward"  # from the host into the box; never judged


class NetworkRequest(Frozen):
    """One connection, before its name is resolved."""

    host: str  # lower case, ASCII; an address in its usual form
    port: int
    scheme: Scheme
    method: str = ""  # of a request that can be seen
    private: bool = False  # an address that is not public, by number


class NetworkDecider(Protocol):
    """Policy as the tunnel sees it."""

    @property
    def phase(self) -> str:
        """Which part of the run this is, such as `setup` or `agent`."""
        ...

    def decide(self, request: NetworkRequest) -> Decision:
        """Judge one connection. Deterministic; never raises for anything a box can ask for."""
        ...
