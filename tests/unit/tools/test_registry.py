from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tools.conftest import the_diff
from tests.unit.tools.test_executor import make_tool, succeed

from corral.errors import ConfigError
from corral.schema.policy import Mode
from corral.schema.tools import Permission, SideEffect, ToolKind
from corral.tools import ToolRegistry, build_tools
from corral.tools.arguments import Problem, check_schema, normalise, validate


def test_names_and_aliases_are_unique() -> None:
    for second in (make_tool(succeed), make_tool(succeed, "other", aliases=("own",))):
        with pytest.raises(ConfigError, match="'own'"):
            ToolRegistry([make_tool(succeed), second])


def test_a_session_sees_only_its_own_tools() -> None:
    registry = ToolRegistry(
        [
            make_tool(succeed, "reader", side_effect=SideEffect.READ_ONLY),
            make_tool(succeed, "writer"),
            make_tool(succeed, "boss", permission="admin", side_effect=SideEffect.READ_ONLY),
        ]
    )
    assert registry.select(permission=Permission.USER).names == ("reader", "writer")
    assert registry.select(permission=Permission.ADMIN, mode=Mode.PLAN).names == ("reader", "boss")
    assert registry.select(permission=Permission.OPERATOR, names=["writer", "boss"]).names == ("writer",)


def test_the_built_in_tools_have_a_fixed_order() -> None:
    assert ToolRegistry(build_tools(the_diff)).names == (
        *("shell", "process", "read_file", "list_files", "search", "edit_file", "write_file"),
        *("apply_patch", "move_file", "delete_file", "diff", "finish"),
    )


@pytest.mark.parametrize("tool", build_tools(the_diff), ids=lambda tool: tool.spec.name)
def test_every_description_has_its_four_parts(tool: Any) -> None:
    what, when, when_not, returns = tool.spec.description.split("\n")
    assert what.endswith(".")
    assert (when.startswith("Use it "), when_not.startswith("Do not use it "), returns.startswith("Returns ")) == (
        True,
        True,
        True,
    )


@pytest.mark.parametrize("tool", build_tools(the_diff), ids=lambda tool: tool.spec.name)
def test_every_path_and_command_of_a_tool_is_known_to_policy(tool: Any) -> None:
    names = set(tool.spec.parameters["properties"]) & {"path", "source", "target", "patch", "command"}
    assert set(tool.spec.roles) - {"text"} == names
    assert tool.spec.kind is not ToolKind.CALL


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "object", "properties": {}}, "additionalProperties"),
        ({"type": "object", "additionalProperties": False, "properties": {"a": {"type": "strin"}}}, "'strin'"),
        (
            {"type": "object", "additionalProperties": False, "properties": {"a": {"type": "string", "format": "x"}}},
            "'format'",
        ),
        ({"type": "object", "additionalProperties": False, "properties": {}, "required": ["b"]}, "'b'"),
    ],
)
def test_a_schema_that_could_not_be_held_is_refused(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_schema(schema, "tool 'x'")


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "count": {"type": "integer", "minimum": 1},
        "share": {"type": "number", "maximum": 1},
        "deep": {"type": "boolean"},
        "items": {
            "type": "array",
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"name": "abc", "kind": "a", "count": 3, "share": 0.5, "deep": True, "items": [{"x": 1}]}, []),
        ({}, [Problem("name", "missing", "a string of 2 to 5 characters matching ^[a-z]+$")]),
        ({"name": "a"}, [Problem("name", "1 characters", "a string of 2 to 5 characters matching ^[a-z]+$")]),
        ({"name": "AB"}, [Problem("name", "'AB' does not fit", "a string of 2 to 5 characters matching ^[a-z]+$")]),
        ({"name": "ab", "kind": "c"}, [Problem("kind", "'c' is not allowed", "one of 'a', 'b'")]),
        ({"name": "ab", "count": True}, [Problem("count", "True is a truth value", "a whole number of at least 1")]),
        ({"name": "ab", "count": 1.5}, [Problem("count", "1.5 is a number", "a whole number of at least 1")]),
        ({"name": "ab", "share": 2}, [Problem("share", "2 is out of range", "a number of at most 1")]),
        ({"name": "ab", "share": float("nan")}, [Problem("share", "nan is out of range", "a number of at most 1")]),
        ({"name": "ab", "items": [{"x": "1"}]}, [Problem("items[0].x", "'1' is a string", "a whole number")]),
        ({"name": "ab", "items": [{}, {}, {}]}, [
            Problem("items", "3 items", "an array of at most 2 items"),
            *(Problem(f"items[{n}].x", "missing", "a whole number") for n in range(3)),
        ]),
        ({"name": "ab", "cuont": 1}, [Problem("'cuont'", "there is no such argument", "'count'")]),
    ],
)  # fmt: skip
def test_every_problem_names_its_field(value: dict[str, Any], problems: list[Problem]) -> None:
    assert list(validate(SCHEMA, value)) == problems


def test_only_what_is_beyond_doubt_is_normalised() -> None:
    sent = {"name": " 7 ", "count": " 7 ", "share": "0.5", "deep": "True", "kind": None, "other": None}
    assert normalise(SCHEMA, sent) == {"name": " 7 ", "count": 7, "share": 0.5, "deep": True, "other": None}
    assert normalise(SCHEMA, {"count": "0x7", "deep": "yes", "name": None}) == {
        "count": "0x7",
        "deep": "yes",
        "name": None,
    }
    assert normalise(SCHEMA, {"count": 3.0, "share": 3}) == {"count": 3, "share": 3}
