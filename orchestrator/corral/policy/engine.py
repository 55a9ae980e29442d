"""The policy engine: typed request in, decision out. Pure, deterministic, and a deny wherever anything is odd.

The rules are data: layers of Cedar files, all checked when loaded. Built-in hard denials come first, then the preset,
then the user's and the workspace's own. A forbid in any layer wins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import cedarpy

from corral.errors import ConfigError
from corral.policy.guard import load_guards
from corral.policy.source import PolicyLayer, PolicySchema, Rule, load_layer
from corral.resource import find_data
from corral.schema.policy import (
    Action,
    Decision,
    Effect,
    HostTarget,
    NetworkFacts,
    PathTarget,
    PolicyRequest,
    PolicySession,
    Preset,
    Target,
)
from corral.schema.tools import Permission

_LEVELS = list(Permission)  # lowest first
_STRICTNESS = list(Effect)  # free to never
_MAX_DECIDED = 1000
_MAX_SESSIONS = 100


class PolicyEngine:
    """All layers, parsed once."""

    def __init__(self, rules: Sequence[Rule], schema: PolicySchema, version: str) -> None:
        self.rules = {rule.id: rule for rule in rules}
        self.version = version
        self._schema = schema.handle
        self._decided: dict[PolicyRequest, Decision] = {}
        self._sessions: dict[PolicySession, cedarpy.Entities] = {}
        documents = {rule.id: rule.body for rule in rules}
        self._policies = cedarpy.PolicySet.from_json_str(
            json.dumps({"templates": {}, "staticPolicies": documents, "templateLinks": []})
        )

    @classmethod
    def load(cls, layers: Sequence[PolicyLayer]) -> PolicyEngine:
        """Read and check every layer. Raises ConfigError naming file, line and what is allowed there."""
        schema = PolicySchema(find_data("policies") / "corral.cedarschema")
        digest = hashlib.sha256(schema.text.encode())
        rules: list[Rule] = []
        seen: set[str] = set()
        for layer in layers:
            if layer.name in seen:
                raise ConfigError(f"two policy layers are named {layer.name!r}")
            seen.add(layer.name)
            loaded, raw = load_layer(layer, schema)
            rules += loaded
            # Lengths keep two files from being read as one.
            digest.update(f"\n{layer.name} {len(raw)}\n".encode() + raw)
        guards, raw = load_guards(rules, schema)
        digest.update(raw)
        return cls([*rules, *guards], schema, digest.hexdigest())

    @classmethod
    def load_preset(cls, preset: Preset, extra: Sequence[PolicyLayer] = ()) -> PolicyEngine:
        """The built-in denials, the tunnel's rules, a shipped preset, then `extra` (user, workspace)."""
        folder = find_data("policies")
        builtin = PolicyLayer("builtin", folder / "builtin.cedar")
        chosen = PolicyLayer(preset.value, folder / "presets" / f"{preset.value}.cedar")
        network = PolicyLayer("network", folder / "network.cedar")
        return cls.load([builtin, network, chosen, *extra])

    def decide(self, request: PolicyRequest) -> Decision:
        """The strictest decision over the request's targets. The same question has the same answer: it is kept."""
        decision = self._decided.get(request)
        if decision is None:
            if len(self._decided) >= _MAX_DECIDED:
                self._decided.clear()
            decision = self._decided[request] = self._judge(request)
        return decision

    def _judge(self, request: PolicyRequest) -> Decision:
        if not request.targets:
            return self._refuse("the call names nothing to judge")
        steps = _ladder(request)
        # Most calls are allowed as they are: that is asked first, and the rest of the ladder only where it matters.
        results = self._evaluate(request, steps[:1])
        if results is not None and all(_is_plain_allow(result) for result in results):
            steps = steps[:1]
        else:
            results = self._evaluate(request, steps)
        if results is None:
            return self._refuse("the call does not fit the policy schema")
        count = len(steps)
        decisions = [self._climb(steps, results[start : start + count]) for start in range(0, len(results), count)]
        strictest = max(decisions, key=lambda decision: _STRICTNESS.index(decision.effect))
        return strictest.model_copy(update=_describe_judged(request))

    def _evaluate(self, request: PolicyRequest, steps: list[_Step]) -> list[cedarpy.AuthzResult] | None:
        """One batch: every step of the ladder for every target. None when the engine cannot take the request."""
        session = {"type": "Session", "id": request.session.id}
        targets = [_describe_target(target) for target in request.targets]
        entities = {json.dumps(uid): {"uid": uid, "attrs": attrs, "parents": []} for uid, attrs in targets}
        context = _describe_context(request)
        batch = [
            {
                "principal": session,
                "action": {"type": "Action", "id": request.action.value},
                "resource": uid,
                "context": {**context, "approved": approved, "checkpointed": checkpointed},
            }
            for uid, _ in targets
            for _, approved, checkpointed in steps
        ]
        try:
            known = self._load_session(request.session)
            known = known.with_added_json_str(json.dumps(list(entities.values())), self._schema)
            return cedarpy.is_authorized_batch(batch, self._policies, known, self._schema)
        except ValueError:  # e.g. a lone surrogate in an argument
            return None

    def _load_session(self, session: PolicySession) -> cedarpy.Entities:
        """The session as an entity, parsed once. Raises ValueError for what does not fit the schema."""
        known = self._sessions.get(session)
        if known is None:
            if len(self._sessions) >= _MAX_SESSIONS:
                self._sessions.clear()
            uid = {"type": "Session", "id": session.id}
            document = [{"uid": uid, "attrs": _describe_session(session), "parents": []}]
            known = self._sessions[session] = cedarpy.Entities.from_json_str(json.dumps(document), self._schema)
        return known

    def _climb(self, steps: list[_Step], results: list[cedarpy.AuthzResult]) -> Decision:
        """The first step of the ladder that is allowed without an error."""
        blockers: list[str] = []
        for (effect, _, _), result in zip(steps, results, strict=True):
            reasons = list(result.diagnostics.reasons)
            # SECURITY: a policy that errors is skipped by Cedar, so an allow with errors may miss a forbid;
            # test_a_rule_that_errors_denies
            if result.diagnostics.errors or result.decision is cedarpy.Decision.NoDecision:
                return self._refuse(f"a policy rule failed: {'; '.join(sorted(result.diagnostics.errors))[:500]}")
            if result.decision is cedarpy.Decision.Allow:
                return self._explain(effect, [*blockers, *reasons])
            blockers += [rule for rule in reasons if rule not in blockers]
        if not blockers:
            return self._refuse("no rule allows this")
        return self._explain(Effect.DENY, list(results[-1].diagnostics.reasons) or blockers)

    def _explain(self, effect: Effect, ids: list[str]) -> Decision:
        # A forbid's words come first: they say what stands in the way.
        found = sorted((self.rules[rule] for rule in ids), key=lambda rule: (rule.effect != "forbid", rule.id))
        return Decision(
            effect=effect,
            rules=tuple(rule.id for rule in found),
            reason=next((rule.reason for rule in found if rule.reason), ""),
            hint=next((rule.hint for rule in found if rule.hint), ""),
            policy_version=self.version,
        )

    def _refuse(self, reason: str) -> Decision:
        return Decision(effect=Effect.DENY, reason=reason, policy_version=self.version)


_Step = tuple[Effect, bool, bool]
"""Effect when this evaluation is the first to allow; approved; checkpointed."""


def _is_plain_allow(result: cedarpy.AuthzResult) -> bool:
    return result.decision is cedarpy.Decision.Allow and not result.diagnostics.errors


def _ladder(request: PolicyRequest) -> list[_Step]:
    """Three evaluations; fewer differ once a yes or a checkpoint is there, and a yes given never asks again."""
    steps: list[_Step] = [
        (Effect.ALLOW, request.approved, request.checkpointed),
        (Effect.ALLOW_AFTER_CHECKPOINT, request.approved, True),
        (Effect.ASK, True, True),
    ]
    if request.approved:
        steps.pop()
    if request.checkpointed:
        steps.pop(1)
    return steps


def _describe_judged(request: PolicyRequest) -> dict[str, tuple[str, ...]]:
    return {
        "paths": tuple(target.path for target in request.targets if isinstance(target, PathTarget)),
        "hosts": tuple(f"{target.name}:{target.port}" for target in request.targets if isinstance(target, HostTarget)),
        "programs": request.command.programs if request.command else (),
        "unknown": request.command.unknown if request.command else (),
    }


def _describe_session(session: PolicySession) -> dict[str, Any]:
    held = _LEVELS[: _LEVELS.index(session.permission) + 1]
    return {
        "user": session.user,
        "levels": [_entity("Level", level.value) for level in held],
        "preset": _entity("Preset", session.preset.value),
        "mode": _entity("Mode", session.mode.value),
    }


def _describe_target(target: Target) -> tuple[dict[str, str], dict[str, Any]]:
    match target:
        case PathTarget():
            attrs = {"path": target.path, "zone": _entity("Zone", target.zone.value), "root": target.root}
            return {"type": "Path", "id": target.path}, attrs
        case HostTarget():
            attrs = {"name": target.name, "port": target.port, "private": target.private}
            return {"type": "Host", "id": f"{target.name}:{target.port}"}, attrs
        case _:
            return {"type": "Tool", "id": target.name}, {"name": target.name}


def _describe_context(request: PolicyRequest) -> dict[str, Any]:
    context: dict[str, Any] = {
        "tool": request.tool,
        "side_effect": _entity("SideEffect", request.side_effect.value),
        "permission": _entity("Level", request.permission.value),
    }
    if request.command is not None:
        context |= {
            "parsed": request.command.parsed,
            "programs": list(request.command.programs),
            "safe": request.command.safe,
            "dynamic": request.command.dynamic,
            "has_error": request.command.has_error,
            "writes": list(request.command.writes),
            "more_writes": request.command.more_writes,
            "hosts": list(request.command.hosts),
            "more_hosts": request.command.more_hosts,
            "scripts": list(request.command.scripts),
            "code": list(request.command.code),
            "variables": list(request.command.variables),
        }
    if request.action is Action.NETWORK:
        context |= asdict(request.network or NetworkFacts())
    return context


def _entity(kind: str, name: str) -> dict[str, dict[str, str]]:
    return {"__entity": {"type": kind, "id": name}}
