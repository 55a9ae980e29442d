"""The list of a run, and what rules make of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from corral.errors import ConfigError
from corral.policy import HostRule, NetworkPolicy, PolicyEngine, PolicyLayer, load_profile, parse_host_rule
from corral.resource import find_data
from corral.schema.network import NetworkRequest, Scheme
from corral.schema.policy import Effect, Mode, PolicySession, Preset


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Example.ORG", HostRule("example.org", (80, 443))),
        ("example.org.:8080", HostRule("example.org", (8080,))),
        ("*.example.org:443", HostRule("*.example.org", (443,))),
        ("bücher.example:80", HostRule("xn--bcher-kva.example", (80,))),
        ("1.1.1.1:53", HostRule("1.1.1.1", (53,))),
        ("[2606:4700:4700::1111]:443", HostRule("2606:4700:4700::1111", (443,))),
    ],
)
def test_a_line_of_the_list(text: str, rule: HostRule) -> None:
    assert parse_host_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        *("", "*", "*.", "*.org", "*.*.org", "a.*.org", "https://example.org", "example.org/path", "example.org:0"),
        *("127.0.0.1", "10.0.0.1:80", "[::1]:80", "169.254.169.254", "*.1.1.1.1", "127.1", "exa mple.org"),
    ],
)
def test_is_no_line_of_the_list(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_host_rule(text)


def test_whom_a_rule_covers() -> None:
    wild, plain = parse_host_rule("*.example.org:443"), parse_host_rule("example.org")
    assert [wild.covers(host, 443) for host in ("a.example.org", "a.b.example.org")] == [True, True]
    assert not any(wild.covers(*one) for one in (("example.org", 443), ("badexample.org", 443), ("a.example.org", 80)))
    assert plain.covers("example.org", 80) and not plain.covers("a.example.org", 80)
    assert [str(wild), str(plain), str(HostRule("2606::1", (1,)))] == [
        *("*.example.org:443", "example.org:80,443", "[2606::1]:1"),
    ]


def test_every_shipped_profile_is_good() -> None:
    names = sorted(path.stem for path in (find_data("policies") / "network").glob("*.toml"))
    assert names == ["debian", "git", "go", "node", "none", "python", "rust"]
    assert {name: bool(load_profile(name)) for name in names} == {name: name != "none" for name in names}


@pytest.mark.parametrize("name", ["", "nothing", "../presets/auto", "Python", "none.toml"])
def test_there_is_no_such_profile(name: str) -> None:
    with pytest.raises(ConfigError, match="there is no network profile"):
        load_profile(name)


def make_policy(preset: Preset, extra: list[PolicyLayer] | None = None) -> NetworkPolicy:
    mode = Mode.PLAN if preset is Preset.PLAN else Mode.BUILD
    policy = NetworkPolicy(
        PolicyEngine.load_preset(preset, extra or ()), PolicySession(id="s", preset=preset, mode=mode)
    )
    policy.use([parse_host_rule("example.org:443")], phase="agent")
    return policy


def ask(policy: NetworkPolicy, host: str, port: int = 443, **more: object) -> tuple[Effect, tuple[str, ...]]:
    request = NetworkRequest.model_validate({"host": host, "port": port, "scheme": Scheme.TUNNEL, **more})
    decision = policy.decide(request)
    return decision.effect, decision.rules


@pytest.mark.parametrize("preset", list(Preset))
def test_what_is_not_listed_is_denied_under_every_preset(preset: Preset) -> None:
    policy = make_policy(preset)
    for host, port in (("other.org", 443), ("example.org", 80), ("a.example.org", 443)):
        effect, rules = ask(policy, host, port)
        assert effect is Effect.DENY and "network/not-listed" in rules


@pytest.mark.parametrize("preset", list(Preset))
def test_what_is_listed_is_allowed_but_while_planning(preset: Preset) -> None:
    effect, rules = ask(make_policy(preset), "example.org")
    assert effect is (Effect.DENY if preset is Preset.PLAN else Effect.ALLOW)
    assert ("builtin/plan-mode" if preset is Preset.PLAN else "network/listed") in rules


@pytest.mark.parametrize("preset", list(Preset))
def test_a_private_address_is_denied_even_when_listed(preset: Preset) -> None:
    policy = make_policy(preset)
    policy.use([HostRule("10.0.0.1", (443,))])
    effect, rules = ask(policy, "10.0.0.1", private=True)
    assert effect is Effect.DENY and "builtin/private-host" in rules


def test_a_rule_of_ones_own_can_forbid_by_method_and_phase(tmp_path: Path, load: Callable[..., PolicyEngine]) -> None:
    path = tmp_path / "own.cedar"
    path.write_text(
        '@id("get") forbid (principal, action == Action::"network", resource) '
        'when { context.scheme == "http" && context.method != "GET" };\n'
        '@id("late") forbid (principal, action == Action::"network", resource) when { context.phase == "late" };'
    )
    policy = make_policy(Preset.YOLO, [PolicyLayer("own", path)])
    assert ask(policy, "example.org", scheme=Scheme.HTTP, method="GET")[0] is Effect.ALLOW
    assert ask(policy, "example.org", scheme=Scheme.HTTP, method="POST") == (Effect.DENY, ("own/get",))
    policy.use(policy.rules, phase="late")
    assert ask(policy, "example.org") == (Effect.DENY, ("own/late",))


def test_a_rule_of_ones_own_cannot_allow_more(tmp_path: Path) -> None:
    path = tmp_path / "own.cedar"
    path.write_text('@id("all") permit (principal, action == Action::"network", resource);')
    assert ask(make_policy(Preset.AUTO, [PolicyLayer("own", path)]), "other.org")[0] is Effect.DENY
