"""Whatever the rules: a forbid never allows more, without a permit nothing is allowed, a yes never beats a forbid."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.policy import PolicyEngine, PolicyLayer
from corral.schema.policy import (
    Action,
    CommandFacts,
    Effect,
    Mode,
    PathTarget,
    PolicyRequest,
    PolicySession,
    ToolTarget,
    Zone,
)
from corral.schema.tools import Permission, SideEffect

ORDER = list(Effect)  # free to never

atoms = st.sampled_from(
    [
        "true",
        "context.approved",
        "context.checkpointed",
        'context.side_effect == SideEffect::"read_only"',
        'context.side_effect == SideEffect::"external_write"',
        'principal.mode == Mode::"plan"',
        'principal.levels.contains(Level::"operator")',
        'context.tool == "t"',
        'resource is Path && resource.path like "/workspace/a*"',
        "context has safe && context.safe",
        "resource is Host && resource.port + 9223372036854775807 > 0",
    ]
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}) && ({pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}) || ({pair[1]})"),
        inner.map(lambda text: f"!({text})"),
    ),
    max_leaves=4,
)
permits = st.lists(conditions, max_size=3)
forbids = st.lists(conditions, max_size=2)
requests = st.builds(
    lambda shell, path, side_effect, mode, level, approved, checkpointed: PolicyRequest(
        session=PolicySession(id="s", mode=mode, permission=level),
        action=Action.SHELL if shell else Action.WRITE,
        targets=(ToolTarget(name="t"),) if shell else tuple(PathTarget(path=p, zone=Zone.WORKSPACE) for p in path),
        tool="t",
        side_effect=side_effect,
        command=CommandFacts(parsed=True, programs=("ls",), safe=True) if shell else None,
        approved=approved,
        checkpointed=checkpointed,
    ),
    st.booleans(),
    st.lists(st.sampled_from(["/workspace/a", "/workspace/b", "/workspace/ab"]), min_size=1, max_size=3),
    st.sampled_from(list(SideEffect)),
    st.sampled_from(list(Mode)),
    st.sampled_from(list(Permission)),
    st.booleans(),
    st.booleans(),
)


def load(permitted: list[str], forbidden: list[str]) -> PolicyEngine:
    rules = [("permit", text) for text in permitted] + [("forbid", text) for text in forbidden]
    text = "\n".join(
        f'@id("r{number}") {effect} (principal, action, resource) when {{ {condition} }};'
        for number, (effect, condition) in enumerate(rules)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.cedar"
        path.write_text(text)
        return PolicyEngine.load([PolicyLayer("p", path)])


@settings(deadline=None, max_examples=150)
@given(permits, forbids, conditions, requests)
def test_adding_a_forbid_never_allows_more(
    permitted: list[str], forbidden: list[str], added: str, request: PolicyRequest
) -> None:
    before = load(permitted, forbidden).decide(request).effect
    after = load(permitted, [*forbidden, added]).decide(request).effect
    assert ORDER.index(after) >= ORDER.index(before)


@settings(deadline=None, max_examples=60)
@given(forbids, requests)
def test_without_a_permit_nothing_is_allowed(forbidden: list[str], request: PolicyRequest) -> None:
    assert load([], forbidden).decide(request).effect is Effect.DENY


@settings(deadline=None, max_examples=100)
@given(permits, forbids, requests)
def test_a_yes_never_beats_a_forbid(permitted: list[str], forbidden: list[str], request: PolicyRequest) -> None:
    blocked = [*forbidden, 'context.tool == "t"']
    answered = replace(request, approved=True, checkpointed=True)
    assert load(permitted, blocked).decide(answered).effect is Effect.DENY


@settings(deadline=None, max_examples=60)
@given(permits, forbids, requests)
def test_the_same_question_has_the_same_answer(
    permitted: list[str], forbidden: list[str], request: PolicyRequest
) -> None:
    assert load(permitted, forbidden).decide(request) == load(permitted, forbidden).decide(request)
