from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from corral.policy import PolicyEngine, PolicyLayer, SessionPolicy
from corral.schema.policy import (
    Action,
    Decision,
    Effect,
    HostTarget,
    PathTarget,
    PolicyRequest,
    PolicySession,
    Preset,
    ToolTarget,
    Zone,
)
from corral.schema.tools import SideEffect, ToolCall, ToolSpec

Load = Callable[..., PolicyEngine]
SESSION = PolicySession(id="s1", user="ada")
PERMIT = '@id("all") @reason("fine") permit (principal, action, resource);'


def ask_about(*targets: PathTarget, approved: bool = False, checkpointed: bool = False) -> PolicyRequest:
    return PolicyRequest(
        session=SESSION,
        action=Action.WRITE,
        targets=targets or (PathTarget(path="/workspace/a", zone=Zone.WORKSPACE),),
        tool="write_file",
        side_effect=SideEffect.WORKSPACE_WRITE,
        approved=approved,
        checkpointed=checkpointed,
    )


def test_without_a_permit_there_is_no_allow(load: Load) -> None:
    engine = load("")
    assert engine.decide(ask_about()) == Decision(
        effect=Effect.DENY, reason="no rule allows this", policy_version=engine.version, paths=("/workspace/a",)
    )


def test_a_permit_allows_and_is_named(load: Load) -> None:
    engine = load(PERMIT)
    assert engine.decide(ask_about()) == Decision(
        effect=Effect.ALLOW, rules=("l0/all",), reason="fine", policy_version=engine.version, paths=("/workspace/a",)
    )


@pytest.mark.parametrize(
    ("condition", "effect"),
    [
        ("true", Effect.ALLOW),
        ("context.checkpointed", Effect.ALLOW_AFTER_CHECKPOINT),
        ("context.approved", Effect.ASK),
        ("context.approved && context.checkpointed", Effect.ASK),
        ('context.tool == "other"', Effect.DENY),
    ],
)
def test_the_ladder(load: Load, condition: str, effect: Effect) -> None:
    engine = load(f'@id("r") permit (principal, action, resource) when {{ {condition} }};')
    assert engine.decide(ask_about()).effect is effect


def test_after_a_yes_the_checkpoint_is_still_due(load: Load) -> None:
    engine = load('@id("r") permit (principal, action, resource) when { context.approved && context.checkpointed };')
    assert engine.decide(ask_about(approved=True)).effect is Effect.ALLOW_AFTER_CHECKPOINT
    assert engine.decide(ask_about(approved=True, checkpointed=True)).effect is Effect.ALLOW
    assert engine.decide(ask_about(checkpointed=True)).effect is Effect.ASK


def test_a_request_with_a_yes_is_never_asked_about_again(load: Load) -> None:
    engine = load('@id("r") permit (principal, action, resource) when { context.approved && !context.approved };')
    assert engine.decide(ask_about(approved=True)).effect is Effect.DENY


def test_a_forbid_that_a_yes_lifts_tells_why_it_asks(load: Load) -> None:
    engine = load(
        PERMIT,
        '@id("care") @reason("writes to src need a look") @hint("ask") forbid (principal, action, resource)'
        " unless { context.approved };",
    )
    decision = engine.decide(ask_about())
    assert (decision.effect, decision.rules, decision.reason, decision.hint) == (
        Effect.ASK,
        ("l1/care", "l0/all"),
        "writes to src need a look",
        "ask",
    )


def test_the_strictest_target_decides(load: Load) -> None:
    engine = load(
        PERMIT,
        '@id("lock") @reason("locked") forbid (principal, action == Action::"write", resource)'
        ' when { resource.path like "/workspace/*.lock" };',
    )
    good = PathTarget(path="/workspace/a", zone=Zone.WORKSPACE)
    bad = PathTarget(path="/workspace/b.lock", zone=Zone.WORKSPACE)
    decision = engine.decide(ask_about(good, bad, good))
    assert (decision.effect, decision.rules, decision.reason) == (Effect.DENY, ("l1/lock",), "locked")
    assert decision.paths == ("/workspace/a", "/workspace/b.lock", "/workspace/a")


def test_a_rule_that_errors_denies(load: Load) -> None:
    # Cedar skips a policy that errors: here the forbid would be lost, and the permit alone would allow.
    engine = load(
        PERMIT,
        '@id("f") forbid (principal, action == Action::"network", resource)'
        " when { resource.port + 9223372036854775807 > 0 };",
    )
    request = PolicyRequest(
        session=SESSION,
        action=Action.NETWORK,
        targets=(HostTarget(name="example.org", port=443, private=False),),
        tool="proxy",
        side_effect=SideEffect.EXTERNAL_WRITE,
    )
    decision = engine.decide(request)
    assert decision.effect is Effect.DENY
    assert "overflow" in decision.reason


@pytest.mark.parametrize(
    "target",
    [ToolTarget(name="not a path"), HostTarget(name="h", port=1, private=False)],
)
def test_a_request_outside_the_schema_is_denied(load: Load, target: ToolTarget | HostTarget) -> None:
    request = replace(ask_about(), targets=(target,))
    decision = load(PERMIT).decide(request)
    assert (decision.effect, decision.rules) == (Effect.DENY, ())


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "x" * 100_000, '"}]', "\u202e"])
def test_no_text_makes_it_raise(load: Load, text: str) -> None:
    engine = load(PERMIT)
    assert engine.decide(ask_about(PathTarget(path=text, zone=Zone.WORKSPACE))).policy_version == engine.version
    named = replace(ask_about(), tool=text)
    assert engine.decide(named).policy_version == engine.version


def test_a_text_that_is_no_unicode_is_denied(load: Load) -> None:
    assert load(PERMIT).decide(ask_about(PathTarget(path="\ud800", zone=Zone.WORKSPACE))).effect is Effect.DENY


def test_a_call_without_targets_is_denied(load: Load) -> None:
    assert load(PERMIT).decide(replace(ask_about(), targets=())).effect is Effect.DENY


def test_private_hosts_are_denied_by_every_preset() -> None:
    for preset in Preset:
        request = PolicyRequest(
            session=SESSION,
            action=Action.NETWORK,
            targets=(HostTarget(name="169.254.169.254", port=80, private=True),),
            tool="proxy",
            side_effect=SideEffect.EXTERNAL_WRITE,
            approved=True,
        )
        assert "builtin/private-host" in PolicyEngine.load_preset(preset).decide(request).rules


def test_the_version_names_the_rules_and_nothing_else(load: Load) -> None:
    same, other = load(PERMIT).version, load(PERMIT + "\n").version
    assert load(PERMIT).version == same != other
    assert len(same) == 64


def test_layers_of_the_same_text_in_another_cut_are_another_version(load: Load) -> None:
    one, two = PERMIT, PERMIT.replace('"all"', '"more"')
    assert load(one + two).version != load(one, two).version


def test_a_decision_takes_under_a_millisecond(specs: dict[str, ToolSpec]) -> None:
    policy = SessionPolicy(PolicyEngine.load_preset(Preset.AUTO), SESSION)
    call = ToolCall(id="c", name="write_file", arguments={"path": "src/a.py", "content": "x"})
    spent = []
    for _ in range(200):
        began = time.process_time()
        policy.decide(specs["write_file"], call)
        spent.append(time.process_time() - began)
    assert statistics.median(spent) < 0.001


def test_extra_layers_tighten_a_preset(tmp_path, specs: dict[str, ToolSpec]) -> None:
    path = tmp_path / "user.cedar"
    path.write_text(
        '@id("no-ci") @reason("CI is not for agents") forbid (principal, action == Action::"write", resource)\n'
        'when { resource.path like "/workspace/.github/*" };'
    )
    engine = PolicyEngine.load_preset(Preset.YOLO, [PolicyLayer("user", path)])
    policy = SessionPolicy(engine, SESSION)
    patch = "--- a/.github/x.yml\n+++ b/.github/x.yml\n@@ -1 +1 @@\n-a\n+b\n"
    denied = policy.decide(specs["apply_patch"], ToolCall(id="c", name="apply_patch", arguments={"patch": patch}))
    assert (denied.effect, denied.rules, denied.reason) == (Effect.DENY, ("user/no-ci",), "CI is not for agents")
