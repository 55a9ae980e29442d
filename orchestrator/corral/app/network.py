"""The network of one run: asked for, opened when the box is there, changed while it runs, closed at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.agent.run import Body, Ending, RunRecord
from corral.app.request import NetworkRequest
from corral.app.secret import load_secrets, name_variables
from corral.config import Settings
from corral.errors import ConfigError
from corral.policy import HostRule, NetworkPolicy, PolicyEngine, load_profile, parse_host_rule
from corral.sandbox.base import Sandbox
from corral.sandbox.egress import Dialer, Egress, NetworkReport, Secret
from corral.schema.events import NetworkChanged
from corral.schema.policy import PolicySession

_NONE = "none"


@dataclass(frozen=True)
class NetworkPlan:
    """A run's network before there is a run: everything that can be wrong has been found."""

    profiles: tuple[str, ...]
    rules: tuple[HostRule, ...]
    secrets: tuple[Secret, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    forwards: tuple[tuple[int, int], ...] = ()
    phase: str = ""
    setup_rules: tuple[HostRule, ...] = ()
    """On the list beside the others until end_setup()."""


def plan_network(
    settings: Settings, request: NetworkRequest, *, phase: str = "", setup: tuple[str, ...] = ()
) -> NetworkPlan:
    """Raises ConfigError."""
    profiles = settings.network.profiles if request.profiles is None else request.profiles
    allow = (*(settings.network.allow if request.profiles is None else ()), *request.allow)
    secrets = load_secrets(settings, request.secrets)
    return NetworkPlan(
        tuple(profiles),
        read_rules(profiles, allow, secrets),
        tuple(secrets),
        name_variables(settings, secrets),
        request.forwards,
        phase,
        read_rules(setup),
    )


def read_rules(
    profiles: Iterable[str] = (), allow: Iterable[str] = (), secrets: Iterable[Secret] = ()
) -> tuple[HostRule, ...]:
    """Names as a list. The hosts of a secret are on it: what else would it be for. Raises ConfigError."""
    rules = [rule for name in profiles for rule in load_profile(name)]
    rules += map(parse_host_rule, allow)
    rules += [HostRule(parse_host_rule(host).name, (443,)) for secret in secrets for host in sorted(secret.hosts)]
    return tuple(dict.fromkeys(rules))


class BoxNetwork:
    """One run's tunnel and its list."""

    def __init__(
        self,
        plan: NetworkPlan,
        engine: PolicyEngine,
        session: PolicySession,
        record: RunRecord,
        dialer: Dialer | None = None,
    ) -> None:
        self._plan = plan
        self._record = record
        self._policy = NetworkPolicy(engine, session)
        if plan.setup_rules:
            self._policy.use((*plan.setup_rules, *plan.rules), phase="setup")
        else:
            self._policy.use(plan.rules, phase=plan.phase)
        self._egress = Egress(self._policy, record, secrets=plan.secrets, dialer=dialer)
        self._profiles = plan.profiles
        self._is_open = False
        self.forwarded: dict[int, int] = {}
        """Ports of the box, and where they are on the host's loopback."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """What the box may reach now."""
        return tuple(map(str, self._policy.rules))

    @property
    def report(self) -> NetworkReport:
        """What was reached and what was refused, so far."""
        return self._egress.gate.report()

    def count_bytes(self) -> tuple[int, int]:
        """Into the box and out of it, so far."""
        return self._egress.gate.count_bytes()

    async def open(self, box: Sandbox) -> None:
        """Raises SandboxError, ConfigError when a port of the host cannot be had."""
        await self._egress.open(box, variables=self._plan.variables)
        self._is_open = True
        for port, host_port in self._plan.forwards:
            self.forwarded[port] = await self._egress.forward(port, host_port)
        self._tell()

    async def close(self) -> None:
        """End every connection, for good."""
        self._is_open = False
        await self._egress.close()

    async def forward(self, port: int, host_port: int = 0) -> int:
        """Bring a port of the box to the host's loopback; returns the port there. Raises ConfigError."""
        self._require_open()
        self.forwarded[port] = await self._egress.forward(port, host_port)
        self._tell()
        return self.forwarded[port]

    def allow(self, *hosts: str) -> None:
        """Add to the list: `host`, `host:port`, `*.host:port`. Raises ConfigError."""
        self._change((*self._policy.rules, *map(parse_host_rule, hosts)))

    def revoke(self, *hosts: str) -> None:
        """Take from the list, for connections that are open, too. Raises ConfigError."""
        gone = {(rule.name, port) for rule in map(parse_host_rule, hosts) for port in rule.ports}
        left = []
        for rule in self._policy.rules:
            ports = tuple(port for port in rule.ports if (rule.name, port) not in gone)
            left += [HostRule(rule.name, ports)] if ports else []
        self._change(left)

    def use(self, *profiles: str, allow: Sequence[str] = (), phase: str | None = None) -> None:
        """Put another list in place of this one, for connections that are open, too. Raises ConfigError."""
        rules = read_rules(profiles, allow, self._plan.secrets)
        self._profiles = profiles
        self._change(rules, phase)

    def end_setup(self) -> None:
        """From here on only what the agent may reach."""
        self._change(self._plan.rules, self._plan.phase)

    @property
    def agent_hosts(self) -> tuple[str, ...]:
        """What is reached when the set-up is over."""
        return tuple(map(str, self._plan.rules))

    def _change(self, rules: Iterable[HostRule], phase: str | None = None) -> None:
        self._require_open()
        self._policy.use(rules, phase=phase)
        self._tell(cut=self._egress.gate.judge_again())

    def _tell(self, *, cut: int = 0) -> None:
        changed = NetworkChanged(
            phase=self._policy.phase,
            profiles=tuple(name for name in self._profiles if name != _NONE),
            hosts=self.hosts,
            secrets=tuple(secret.name for secret in self._plan.secrets),
            forwards=tuple(f"{port} at 127.0.0.1:{here}" for port, here in self.forwarded.items()),
            cut=cut,
        )
        self._record.append(changed)

    def _require_open(self) -> None:
        if not self._is_open:
            raise ConfigError("the box is not running", hint="change its network inside `async with`")


def surround(network: BoxNetwork, body: Body) -> Body:
    """The body with its network around it."""

    async def run(box: Sandbox) -> Ending:
        try:
            await network.open(box)
            return await body(box)
        finally:
            await network.close()

    return run
