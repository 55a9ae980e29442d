"""Names of networks as a program gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corral.app.request import NetworkRequest


def build_network(
    profiles: str | Sequence[str] | None,
    allow: Sequence[str],
    secrets: Sequence[str],
    forward: Mapping[int, int] | Sequence[int],
) -> NetworkRequest:
    """What was asked for; whether it can be had is found when the box is prepared."""
    names = (profiles,) if isinstance(profiles, str) else profiles
    ports = forward.items() if isinstance(forward, Mapping) else [(port, port) for port in forward]
    return NetworkRequest(
        profiles=None if names is None else tuple(names),
        allow=tuple(allow),
        secrets=tuple(secrets),
        forwards=tuple(ports),
    )
