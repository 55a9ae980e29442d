from __future__ import annotations

from pathlib import Path

import pytest

from corral.errors import ConfigError
from corral.policy import PolicyEngine, PolicyLayer
from corral.policy.diagnosis import parse_vocabulary
from corral.resource import find_data
from corral.schema.policy import Action, Mode, Preset, Zone
from corral.schema.tools import Permission, SideEffect

HEAD = '// a comment; with "marks"\n@id("first")\npermit (principal, action, resource);\n\n@id("x")\n'


def refuse(tmp_path: Path, text: str, *, forbids_only: bool = False) -> tuple[int, str, str]:
    """Line, problem and hint of the error that loading `text` gives."""
    path = tmp_path / "my rules.cedar"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        PolicyEngine.load([PolicyLayer("user", path, forbids_only=forbids_only)])
    place, problem = caught.value.message.split(": ", 1)
    assert place.startswith(f"policy file {str(path)!r}, line ")
    assert "\n" not in caught.value.message
    return int(place.rsplit(" ", 1)[1]), problem, caught.value.hint or ""


@pytest.mark.parametrize(
    ("text", "line", "problem", "allowed"),
    [
        ("permt (principal, action, resource);", 6, "permt", "permit, forbid"),
        ("permit (principal action, resource);", 6, "'action'", ","),
        ("permit (principle, action, resource);", 6, "principle", "principal, action, resource"),
        ("permit (principal, action, resource)\nwhn { true };", 7, "whn", "when, unless"),
        ("permit (principal, action, resource)\nwhen {\n  true ==\n};", 9, "'}'", "principal"),
        ('permit (principal, action, resource)\nwhen { context.tool lke "x" };', 7, "'lke'", "like"),
        ("permit (principal, action, resource)\nwhen { context.approved = true };", 7, "'='", "=="),
        ("permit (principal, action, resource)\nwhen {\n context.aproved };", 8, "aproved", "approved, "),
        ('permit (principal, action, resource)\nwhen { principal.mod == Mode::"plan" };', 7, "mod", "mode, "),
        ('permit (principal, action, resource)\nwhen { principal.mode == Mode::"pln" };', 7, "pln", "plan, build"),
        (
            'permit (principal,\n action == Action::"wriet", resource);',
            7,
            "wriet",
            'Action::"write", ',
        ),
        ("permit (principal, action,\n resource is Pth);", 7, "Pth", "Path, "),
        ("permit (principal, action, resource)\nwhen { context has aproved };", 7, "aproved", "approved"),
        (
            "permit (principal, action, resource)\nwhen { context.tool };",
            5,
            "expected Bool but saw String (the policy ends in line 7)",
            "",
        ),
        ('@reson("x")\npermit (principal, action, resource);', 6, "@reson", "@id, @reason, @hint"),
        ("permit (principal == ?principal, action, resource);", 5, "templates", "?slots"),
        ("permit (principal, action, resource)", 6, "no end", ";"),
        ('permit (principal, action, resource) when { context.tool == "abc };', 6, "'\"'", '"'),
    ],
)
def test_a_typo_names_line_and_what_is_allowed(
    tmp_path: Path, text: str, line: int, problem: str, allowed: str
) -> None:
    found_line, found_problem, hint = refuse(tmp_path, HEAD + text)
    assert (found_line, problem in found_problem) == (line, True), found_problem
    if allowed and allowed != '"':
        assert allowed in hint


def test_a_missing_semicolon_is_found_where_the_next_policy_begins(tmp_path: Path) -> None:
    text = 'permit (principal, action, resource)\n\n@id("y")\nforbid (principal, action, resource);'
    line, problem, hint = refuse(tmp_path, HEAD + text)
    assert (line, problem) == (8, "unexpected '@'")
    assert ";" in hint


def test_a_policy_without_an_id_is_refused(tmp_path: Path) -> None:
    assert refuse(tmp_path, "\npermit (principal, action, resource);") == (
        2,
        "the policy has no name",
        'allowed there: @id("...")',
    )


def test_an_id_used_twice_is_refused(tmp_path: Path) -> None:
    text = '@id("a") permit (principal, action, resource);\n@id("a") forbid (principal, action, resource);'
    assert refuse(tmp_path, text)[:2] == (2, "the id 'user/a' is used twice, first in line 1")


def test_workspace_layer_may_only_forbid(tmp_path: Path) -> None:
    text = '@id("a") forbid (principal, action, resource);\n@id("b") permit (principal, action, resource);'
    assert refuse(tmp_path, text, forbids_only=True) == (
        2,
        "a workspace's own policy may not permit",
        "allowed there: forbid",
    )


def test_text_of_a_hostile_file_is_shown_escaped(tmp_path: Path) -> None:
    _, problem, hint = refuse(tmp_path, '@id("a") \u202e\x1b[31m (principal, action, resource);')
    assert "\x1b" not in problem + hint
    assert "\u202e" not in problem + hint


def test_unreadable_files_are_told(tmp_path: Path) -> None:
    for name, content, words in [("none", None, "No such file"), ("bytes", b"// \xff\n", "line 1: not UTF-8")]:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=words):
            PolicyEngine.load([PolicyLayer("user", path)])


def test_two_layers_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.cedar"
    path.write_text("")
    with pytest.raises(ConfigError, match="'user'"):
        PolicyEngine.load([PolicyLayer("user", path), PolicyLayer("user", path)])


def test_a_policy_in_a_comment_or_a_string_is_none(tmp_path: Path) -> None:
    path = tmp_path / "p.cedar"
    path.write_text(
        "// permit (principal, action, resource);\n"
        '@id("a;b") @reason("// no; comment") forbid (principal, action, resource);'
    )
    engine = PolicyEngine.load([PolicyLayer("user", path)])
    assert [(rule.id, rule.effect, rule.reason, rule.line) for rule in engine.rules.values()] == [
        ("user/a;b", "forbid", "// no; comment", 2)
    ]


def test_the_schema_knows_the_names_of_the_code() -> None:
    vocabulary = parse_vocabulary((find_data("policies") / "corral.cedarschema").read_text())
    assert set(vocabulary.actions) == {action.value for action in Action}
    assert vocabulary.values == {
        "Level": tuple(level.value for level in Permission),
        "Preset": tuple(preset.value for preset in Preset),
        "Mode": tuple(mode.value for mode in Mode),
        "SideEffect": tuple(effect.value for effect in SideEffect),
        "Zone": tuple(zone.value for zone in Zone),
    }
    assert vocabulary.context == (
        "approved",
        "checkpointed",
        "code",
        "dynamic",
        "granted",
        "has_error",
        "hosts",
        "method",
        "more_hosts",
        "more_writes",
        "parsed",
        "permission",
        "phase",
        "programs",
        "safe",
        "scheme",
        "scripts",
        "side_effect",
        "tool",
        "variables",
        "writes",
    )
