"""Host and port as a client in the box wrote them, to one form that lists and policies can speak about. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from corral.schema.address import parse_address

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")
MAX_NAME = 253


class BadTarget(ValueError):
    """Not a host and port that we would connect to."""


@dataclass(frozen=True)
class Target:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_target(authority: str, default_port: int | None = None) -> Target:
    """`host:port`, `[v6]:port`, or without a port where there is a default. Raises BadTarget."""
    if authority.startswith("["):
        inside, closed, rest = authority[1:].partition("]")
        if not closed or ":" not in inside or (rest and not rest.startswith(":")):
            raise BadTarget("not an address in brackets")
        return Target(parse_host(inside), _parse_port(rest[1:], default_port))
    host, _, port = authority.partition(":")
    return Target(parse_host(host), _parse_port(port, default_port))


def _parse_port(text: str, default: int | None) -> int:
    if not text and default is not None:
        return default
    if not _PORT.fullmatch(text) or not 0 < int(text) < 1 << 16:
        raise BadTarget("not a port")
    return int(text)


def parse_host(text: str) -> str:
    """A name in lower case without its last dot, or an address in its usual form. Raises BadTarget."""
    host = text.lower()
    if "%" in host:  # a scope: an address of one link only
        raise BadTarget("not a host name")
    if (address := parse_address(host)) is not None:
        return str(address)
    host = host.removesuffix(".")
    labels = host.split(".")
    if not host or len(host) > MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadTarget("not a host name")
    # SECURITY: resolvers read 127.1, 0x7f000001 and 2130706433 as addresses (test_target).
    if _NUMBER.fullmatch(labels[-1]):
        raise BadTarget("an address in an unusual form")
    return host
