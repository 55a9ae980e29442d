"""Cases C112, C113, C115, C116: what servers make of tool calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.errors import ModelError
from corral.llm.parsing.native import MAX_CALLS, CallAssembler, parse_message_calls
from corral.schema.tools import ToolCall


def piece(arguments: Any = None, *, id: Any = None, index: Any = None, name: Any = None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if id is not None:
        out["id"] = id
    if index is not None:
        out["index"] = index
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**out, "function": function} if function else out


def assemble(*pieces: Any) -> tuple[ToolCall, ...]:
    assembler = CallAssembler()
    for one in pieces:
        assembler.feed(one)
    return assembler.finish()


def facts(calls: tuple[ToolCall, ...]) -> list[tuple[str, dict[str, Any]]]:
    assert [call.problem for call in calls] == [None] * len(calls)
    assert len({call.id for call in calls}) == len(calls)
    return [(call.name, call.arguments) for call in calls]


READ_X = ("read", {"path": "x"})
LS = ("ls", {})

STREAMS: dict[str, tuple[list[Any], list[tuple[str, dict[str, Any]]]]] = {
    "as documented": (
        [piece("", id="a", index=0, name="read"), piece('{"path":', index=0), piece('"x"}', index=0)],
        [READ_X],
    ),
    "no index at all": (
        [piece("", id="a", name="read"), piece('{"path":'), piece('"x"}'), piece("{}", id="b", name="ls")],
        [READ_X, LS],
    ),
    "index on some": (
        [piece("", id="a", index=0, name="read"), piece('{"path":'), piece('"x"}'), piece("{}", index=1, name="ls")],
        [READ_X, LS],
    ),
    "index jumps inside a call": (
        [
            piece('{"path":"x"}', id="a", index=0, name="read"),
            piece('{"path":', id="b", index=0, name="read"),
            piece('"x"}', index=1),
            piece("", index=5),
        ],
        [READ_X, READ_X],
    ),
    "gaps": ([piece("{}", id="a", index=0, name="ls"), piece("{}", id="b", index=2, name="ls")], [LS, LS]),
    "all at index 0 with ids": (
        [piece("{}", id="a", index=0, name="ls"), piece('{"path":"x"}', id="b", index=0, name="read")],
        [LS, READ_X],
    ),
    "all at index 0 without ids": (
        [piece("{}", index=0, name="ls"), piece('{"path":"x"}', index=0, name="read")],
        [LS, READ_X],
    ),
    "empty ids": (
        [piece('{"path":"x"}', id="", index=0, name="read"), piece("{}", id="", index=1, name="ls")],
        [READ_X, LS],
    ),
    "interleaved": (
        [
            piece("", id="a", index=0, name="read"),
            piece("{", id="b", index=1, name="ls"),
            piece('{"path":', index=0),
            piece("}", index=1),
            piece('"x"}', index=0),
        ],
        [READ_X, LS],
    ),
    "id and name in each piece": (
        [piece('{"path":', id="a", index=0, name="read"), piece('"x"}', id="a", index=0, name="read")],
        [READ_X],
    ),
    "name in each piece": ([piece('{"path":', index=0, name="read"), piece('"x"}', index=0, name="read")], [READ_X]),
    "a new id in each piece": (
        [piece("", id="a", index=0, name="read"), piece('{"path":', id="b", index=0), piece('"x"}', id="c", index=0)],
        [READ_X],
    ),
    "id before the name": ([piece(id="a", index=0), piece("{}", index=0, name="ls")], [LS]),
    "id that never becomes a call": ([piece(id="a", index=0), piece("{}", id="b", index=1, name="ls")], [LS]),
    "arguments as an object": ([piece({"path": "x"}, id="a", index=0, name="read")], [READ_X]),
    "empty pieces": ([{}, None, {"function": None}, piece("{}", id="a", name="ls"), piece("", index=9)], [LS]),
    "no arguments": ([piece(id="a", index=0, name="ls")], [LS]),
}


@pytest.mark.parametrize(("pieces", "expected"), STREAMS.values(), ids=STREAMS)
def test_stream_is_put_together(pieces: list[Any], expected: list[tuple[str, dict[str, Any]]]) -> None:
    assert facts(assemble(*pieces)) == expected


@pytest.mark.parametrize(
    "pieces",
    [
        [piece('{"path":"x"}', index=0)],
        [piece('{"path":"x"}')],
        [piece("{}", id="a", index=0, name="ls"), piece('"x"}', index=3)],
    ],
)
def test_piece_that_belongs_nowhere_makes_the_turn_an_error(pieces: list[Any]) -> None:
    with pytest.raises(ModelError, match="belongs to no call") as caught:
        assemble(*pieces)
    assert caught.value.code == "bad_response"


def test_malformed_calls_are_answered_not_run() -> None:
    calls = parse_message_calls(
        [
            {"id": "c1", "type": "function", "function": {"name": "list_dir", "arguments": None}},
            {"id": "c2", "type": "function", "function": {"name": None, "arguments": "{}"}},
            {"id": "c3", "function": None},
            {"id": "c4", "function": {"name": "read", "arguments": '{"path": '}},
            None,
        ]
    )
    assert [(call.id, call.name, call.arguments, (call.problem or "").split(":")[0]) for call in calls[:4]] == [
        ("c1", "list_dir", {}, ""),
        ("c2", "", {}, "malformed_tool_call"),
        ("c3", "", {}, "malformed_tool_call"),
        ("c4", "read", {}, "invalid_arguments"),
    ]
    assert calls[4].id
    assert calls[4].problem == "malformed_tool_call: the call names no tool"


def test_ids_that_are_empty_doubled_used_or_absurd_are_made_up() -> None:
    elements = [
        {"id": one, "function": {"name": "ls"}} for one in ("", "", "a", "a", "old", "x" * 500, "a\nb", "ok", 7)
    ]
    ids = [call.id for call in parse_message_calls(elements, {"old"})]
    assert len(set(ids)) == 9
    assert [one for one in ids if one in ("a", "ok")] == ["a", "ok"]
    assert all(one and one.isprintable() and len(one) <= 64 for one in ids)
    assert "old" not in ids


def test_call_cut_off_by_the_length_limit_says_so() -> None:
    assembler = CallAssembler()
    assembler.feed(piece('{"path": "a.md", "content": "# Ti', id="a", index=0, name="write_file"))
    (call,) = assembler.finish(cut_off=True)
    assert call.arguments == {}
    assert "cut off at its length limit" in (call.problem or "")


def test_a_flood_of_calls_is_an_error() -> None:
    with pytest.raises(ModelError, match=f"more than {MAX_CALLS} calls"):
        assemble(*(piece("{}", id=f"c{number}", name="ls") for number in range(MAX_CALLS + 1)))
    with pytest.raises(ModelError, match=f"more than {MAX_CALLS} calls"):
        parse_message_calls([{"function": {"name": "ls"}}] * (MAX_CALLS + 1))


def test_a_piece_of_white_space_belongs_to_the_string_it_stands_in() -> None:
    calls = assemble(piece('{"a":"x', name="ls"), piece(" "), piece('y"}'), piece("\n"))
    assert [call.arguments for call in calls] == [{"a": "x y"}]


texts = st.text(max_size=20)
arguments = st.dictionaries(texts, texts | st.integers() | st.lists(texts, max_size=3), max_size=3)


@given(st.lists(arguments, min_size=1, max_size=4), st.booleans(), st.booleans(), st.randoms())
def test_any_cut_of_a_stream_gives_the_same_calls(
    wanted: list[dict[str, Any]], with_ids: bool, with_index: bool, random: Any
) -> None:
    pieces = []
    for number, one in enumerate(wanted):
        text = json.dumps(one)
        index = number if with_index else None
        pieces.append(piece("", id=f"c{number}" if with_ids else None, index=index, name=f"tool{number}"))
        while text:
            size = random.randint(1, len(text))
            pieces.append(piece(text[:size], index=index))
            text = text[size:]
    calls = assemble(*pieces)
    assert [(call.name, call.arguments, call.problem) for call in calls] == [
        (f"tool{number}", one, None) for number, one in enumerate(wanted)
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
shapes = st.fixed_dictionaries(
    {},
    optional={
        "id": texts | st.none() | st.integers(),
        "index": st.integers(-2, 3) | st.none() | texts,
        "function": st.none()
        | st.fixed_dictionaries({}, optional={"name": texts | st.none(), "arguments": json_values | st.just('{"a":')}),
    },
)


@given(st.lists(shapes | json_values, max_size=6))
def test_no_shape_of_call_breaks_the_parser(elements: list[Any]) -> None:
    for calls in (parse_message_calls(elements), _assemble_or_nothing(elements)):
        assert len({call.id for call in calls}) == len(calls)
        for call in calls:
            assert call.id
            assert call.name or call.problem
            json.dumps(call.arguments).encode()


def _assemble_or_nothing(elements: list[Any]) -> tuple[ToolCall, ...]:
    try:
        return assemble(*elements)
    except ModelError as error:
        assert error.code == "bad_response"
        return ()
