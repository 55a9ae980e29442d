"""Flags about the network, as what they mean. The same for every command that starts a box."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from corral.cli.output import note, paint
from corral.errors import ConfigError

if TYPE_CHECKING:
    from corral.app.request import NetworkRequest
    from corral.schema.events import Event


class Forwards:
    """Tells people where each port of the box is, once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def event(self, event: Event) -> None:
        from corral.schema.events import NetworkChanged  # late: start-up time

        for line in event.payload.forwards if isinstance(event.payload, NetworkChanged) else ():
            if line not in self._told:
                self._told.add(line)
                note(f"{paint('port', 'cyan')} {line}")


def parse_network(
    profiles: list[str] | None, allow: list[str] | None, secrets: list[str] | None, forwards: list[str] | None
) -> NetworkRequest:
    """Raises ConfigError. Whether hosts and names are good is found when the run is prepared."""
    from corral.app.request import NetworkRequest  # late: start-up time

    return NetworkRequest(
        profiles=None if profiles is None else split_names(profiles),
        allow=tuple(allow or ()),
        secrets=split_names(secrets or ()),
        forwards=tuple(map(parse_forward, forwards or ())),
    )


def split_names(names: Iterable[str]) -> tuple[str, ...]:
    """`a,b` and `a` `b` are the same."""
    return tuple(part for name in names for part in name.split(",") if part)


def parse_forward(text: str) -> tuple[int, int]:
    """`PORT` or `PORT:HOST_PORT`. Raises ConfigError."""
    box, given, host = text.partition(":")
    ports = [int(part) if part.isascii() and part.isdigit() else -1 for part in (box, host if given else box)]
    if not 0 < ports[0] < 1 << 16 or not 0 <= ports[1] < 1 << 16:
        raise ConfigError(
            f"--forward {text!r} names no port", hint="PORT of the box, or PORT:PORT_HERE; 0 there takes a free one"
        )
    return ports[0], ports[1]
