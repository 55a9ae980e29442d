"""What a run may reach: the list of hosts that its person gave, and the rules of policy on top of it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from corral.errors import ConfigError
from corral.policy.engine import PolicyEngine
from corral.resource import find_data
from corral.schema.address import explain_refusal, parse_address
from corral.schema.network import NetworkRequest
from corral.schema.policy import Action, Decision, HostTarget, NetworkFacts, PolicyRequest, PolicySession
from corral.schema.target import BadTarget, parse_target
from corral.schema.tools import SideEffect

_USUAL_PORTS = (80, 443)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_TOOL = "network"


@dataclass(frozen=True)
class HostRule:
    """One line of the list. `name` may begin with `*.`: every name below, not the name itself."""

    name: str
    ports: tuple[int, ...]

    def __str__(self) -> str:
        host = f"[{self.name}]" if ":" in self.name else self.name
        return f"{host}:{','.join(map(str, self.ports))}"

    def covers(self, host: str, port: int) -> bool:
        if port not in self.ports:
            return False
        return host.endswith(self.name[1:]) if self.name.startswith("*.") else host == self.name


def parse_host_rule(text: str) -> HostRule:
    """`host`, `host:port`, `*.host:port`, `[v6]:port`; without a port 80 and 443. Raises ConfigError."""
    wild, rest = (True, text[2:]) if text.startswith("*.") else (False, text)
    try:
        ascii_text = rest if rest.isascii() else rest.encode("idna").decode("ascii")
        target = parse_target(ascii_text, default_port=0)
    except (BadTarget, UnicodeError) as error:
        raise ConfigError(
            f"{text!r} is no host to allow: {error}", hint="HOST, HOST:PORT or *.HOST:PORT, such as example.org:443"
        ) from None
    address = parse_address(target.host)
    if wild and address is not None:
        raise ConfigError(f"{text!r} is no host to allow: an address has no names below", hint="name the address alone")
    if address is not None and (why := explain_refusal(address)):
        raise ConfigError(
            f"{text!r} cannot be allowed: it is {why}", hint="private addresses are never reached from a box"
        )
    if wild and "." not in target.host:
        raise ConfigError(f"{text!r} is too wide", hint="at least two labels below the star, such as *.example.org")
    ports = (target.port,) if target.port else _USUAL_PORTS
    return HostRule(f"*.{target.host}" if wild else target.host, ports)


def load_profile(name: str) -> tuple[HostRule, ...]:
    """A shipped list, by its name. Raises ConfigError."""
    folder = find_data("policies") / "network"
    path = folder / f"{name}.toml"
    if not _NAME.fullmatch(name) or not path.is_file():
        known = ", ".join(sorted(one.stem for one in folder.glob("*.toml")))
        raise ConfigError(f"there is no network profile {name!r}", hint=f"one of: {known}")
    return tuple(map(parse_host_rule, _read_hosts(path)))


def _read_hosts(path: Path) -> list[str]:
    hosts = tomllib.loads(path.read_text(encoding="utf-8"))["hosts"]
    assert isinstance(hosts, list)
    return [str(host) for host in hosts]


class NetworkPolicy:
    """corral.schema.network.NetworkDecider of one run. `use` may be called at any time."""

    def __init__(self, engine: PolicyEngine, session: PolicySession) -> None:
        self._engine = engine
        self._session = session
        self.rules: tuple[HostRule, ...] = ()
        self._phase = ""

    @property
    def phase(self) -> str:
        return self._phase

    def use(self, rules: Iterable[HostRule], *, phase: str | None = None) -> None:
        """From here on this is the list."""
        self.rules = tuple(dict.fromkeys(rules))
        self._phase = self._phase if phase is None else phase

    def decide(self, request: NetworkRequest) -> Decision:
        granted = any(rule.covers(request.host, request.port) for rule in self.rules)
        facts = NetworkFacts(granted=granted, scheme=request.scheme.value, method=request.method, phase=self._phase)
        return self._engine.decide(
            PolicyRequest(
                session=self._session,
                action=Action.NETWORK,
                targets=(HostTarget(name=request.host, port=request.port, private=request.private),),
                tool=_TOOL,
                side_effect=SideEffect.EXTERNAL_WRITE,
                network=facts,
            )
        )
