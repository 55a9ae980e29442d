from __future__ import annotations

from typing import Any

import pytest

from corral.llm.parsing.arguments import MAX_CHARS, parse_arguments
from corral.llm.parsing.thinking import split_thinking


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {}),
        ("", {}),
        ("  \n", {}),
        ("{}", {}),
        ('{"a": [1, {"b": null}], "c": true}', {"a": [1, {"b": None}], "c": True}),
        ({"a": 1}, {"a": 1}),
        (r'{"content": "\ud83c x"}', {"content": "\ufffd x"}),
        (r'{"content": "\ud83c\udf78"}', {"content": "\U0001f378"}),
        (r'{"\ud83c": ["\udc80"]}', {"\ufffd": ["\\x80"]}),
        (r'{"content": "a\nb\\n"}', {"content": "a\nb\\n"}),
    ],
)
def test_arguments_are_read(value: Any, expected: dict[str, Any]) -> None:
    assert parse_arguments(value) == (expected, None)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ('{"command": "ls"', "invalid_arguments: not JSON at character 16: Expecting ',' delimiter"),
        ('{"command":"ls"}}', "invalid_arguments: not JSON at character 16: Extra data"),
        ("[1]", "invalid_arguments: a JSON object is needed, not an array"),
        ('"text"', "invalid_arguments: a JSON object is needed, not a string"),
        ("null", "invalid_arguments: a JSON object is needed, not null"),
        ("1", "invalid_arguments: a JSON object is needed, not a number"),
        ('{"a": NaN}', "invalid_arguments: NaN is not JSON"),
        ('{"a": -Infinity}', "invalid_arguments: -Infinity is not JSON"),
        ('{"a": 1e999}', "invalid_arguments: a number is too large"),
        ('{"a": %s}' % ("9" * 5000), "invalid_arguments: a number is too large"),
        ("[" * 100_000, "invalid_arguments: nested too deep"),
        (
            "x" * (MAX_CHARS + 1),
            f"invalid_arguments: {MAX_CHARS + 1} characters of arguments, at most {MAX_CHARS} are read",
        ),
        (7, "malformed_tool_call: the arguments are no text but a int"),
    ],
)
def test_arguments_that_cannot_be_read_say_why(value: Any, problem: str) -> None:
    assert parse_arguments(value) == ({}, problem)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Done.", ("", "Done.")),
        ("<think>hm</think>\n\nDone.", ("hm", "Done.")),
        ("let me think…</think>\nDone.", ("let me think…", "Done.")),
        ("<think>unclosed … <tool_call>{}</tool_call>", ("unclosed … <tool_call>{}</tool_call>", "")),
        ("Use <think>tags</think> like this", ("", "Use <think>tags</think> like this")),
        ("Done.<｜end▁of▁sentence｜>", ("", "Done.")),
        ("Done.<|im_end|>\n<|endoftext|>", ("", "Done.")),
        ("The mark <|im_end|> ends a turn.", ("", "The mark <|im_end|> ends a turn.")),
    ],
)
def test_thinking_is_taken_out_of_the_answer(text: str, expected: tuple[str, str]) -> None:
    assert split_thinking(text) == expected
