"""Rules that come by themselves: what a command may do beyond what is known of it is asked about where it matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from corral.policy.source import PolicyLayer, PolicySchema, Rule, load_layer
from corral.resource import find_data

LAYER = "unknown"

# Which facts of a command a rule looks at -> which guard it needs.
_GUARDED = {
    **dict.fromkeys(("programs", "scripts", "code", "variables"), "programs"),
    "writes": "writes",
    "hosts": "hosts",
}


def load_guards(rules: Sequence[Rule], schema: PolicySchema) -> tuple[list[Rule], bytes]:
    """The guards that these rules need, and the bytes they came from; nothing where no rule looks inside commands."""
    # SECURITY: a forbid of `curl` does not see `$X`, and a permit of `ls` alone would let it pass;
    # test_a_rule_about_programs_asks_where_it_cannot_see
    needed = {_GUARDED[name] for rule in rules for name in _looks_at(rule.body) if name in _GUARDED}
    if not needed:
        return [], b""
    guards, raw = load_layer(PolicyLayer(LAYER, find_data("policies") / "unknown.cedar"), schema)
    return [guard for guard in guards if guard.id.removeprefix(f"{LAYER}/") in needed], raw


def _looks_at(node: Any) -> Iterator[str]:
    """Every attribute of the context that a rule reads, in Cedar's JSON form."""
    if isinstance(node, list):
        for item in node:
            yield from _looks_at(item)
    elif isinstance(node, dict):
        access = node.get(".")
        if isinstance(access, dict) and access.get("left") == {"Var": "context"}:
            yield access["attr"]
        for value in node.values():
            yield from _looks_at(value)
