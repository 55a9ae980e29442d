"""Every preset answers as policies/tests says; the cases are data so that users can read and extend them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from corral.policy import PolicyEngine, SessionPolicy
from corral.resource import find_data
from corral.schema.policy import Mode, PolicySession, Preset
from corral.schema.tools import Permission, ToolCall, ToolSpec

FILES = sorted((find_data("policies") / "tests").glob("*.toml"))
CASES = [
    pytest.param(document["preset"], case, id=f"{document['preset']}: {case['name']}")
    for document in (tomllib.loads(file.read_text()) for file in FILES)
    for case in document["case"]
]


@pytest.mark.parametrize(("preset", "case"), CASES)
def test_preset_answers_as_its_cases_say(preset: str, case: dict[str, Any], specs: dict[str, ToolSpec]) -> None:
    session = PolicySession(
        id="s1",
        permission=Permission(case.get("permission", "user")),
        preset=Preset(preset),
        mode=Mode(case.get("mode", "build")),
    )
    policy = SessionPolicy(PolicyEngine.load_preset(Preset(preset)), session)
    call = ToolCall(id="c1", name=case["tool"], arguments=case["arguments"])

    decision = policy.decide(specs[case["tool"]], call, approved=case.get("approved", False))

    assert (decision.effect.value, list(decision.rules)) == (case["effect"], case["rules"])


def test_every_preset_has_a_file_and_cases() -> None:
    folder = find_data("policies")
    assert {file.stem for file in (folder / "presets").glob("*.cedar")} == {preset.value for preset in Preset}
    assert {file.stem for file in FILES} == {preset.value for preset in Preset}


@pytest.mark.parametrize("preset", list(Preset))
def test_every_shipped_rule_gives_its_reason(preset: Preset) -> None:
    rules = PolicyEngine.load_preset(preset).rules.values()
    assert [rule.id for rule in rules if not rule.reason] == []


@pytest.mark.parametrize("preset", list(Preset))
def test_every_shipped_forbid_says_what_to_do_instead(preset: Preset) -> None:
    rules = PolicyEngine.load_preset(preset).rules.values()
    assert [rule.id for rule in rules if rule.effect == "forbid" and not rule.hint] == []
