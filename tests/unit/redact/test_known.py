"""Values that are known, in the forms they turn up in."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from corral.redact import Redactor

VALUE = 'p/a"ss+wörd \\77&x'
MASKED = "[secret:db#1~583201]"

FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda value: value,
    "url": lambda value: quote(value, safe=""),
    "path": quote,
    "form": quote_plus,
    "lower case escapes": lambda value: re.sub("%..", lambda match: match[0].lower(), quote(value, safe="")),
    "json": lambda value: json.dumps(value)[1:-1],
    "json, not ASCII": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "hex": lambda value: value.encode().hex(),
    "HEX": lambda value: value.encode().hex().upper(),
}


def redactor(**more: str) -> Redactor:
    return Redactor([("db", VALUE), *more.items()], keys=False, numbers=False, mark=583201)


@pytest.mark.parametrize("form", FORMS)
def test_a_known_value_is_masked_in_every_form(form: str) -> None:
    spelled = FORMS[form](VALUE)
    assert redactor().text(f"a={spelled};") == f"a={MASKED};"


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("altchars", [None, b"-_"])
def test_a_known_value_is_masked_in_any_base64(before: int, altchars: bytes | None) -> None:
    coded = base64.b64encode(b"user:12"[:before] + VALUE.encode() + b":after", altchars).decode()
    masked = redactor().text(coded)
    left = masked.replace(MASKED, "")
    assert MASKED in masked
    # What is left at the ends is the neighbours', and two to four bits of the value.
    assert len(left) <= len(coded) - len(VALUE.encode()) * 4 // 3 + 2


@pytest.mark.parametrize("before", range(0, 80, 7))
@pytest.mark.parametrize("width", [40, 64, 76])
def test_base64_with_line_ends_is_masked(before: int, width: int) -> None:
    coded = base64.b64encode(b"x" * before + VALUE.encode() + b"y" * 40).decode()
    wrapped = "\n".join(coded[place : place + width] for place in range(0, len(coded), width))
    assert redactor().text(wrapped).count(MASKED) == 1


def test_values_that_overlap_are_masked_together() -> None:
    both = redactor(other="77&x-and-more").text("<" + VALUE + "-and-more>")
    assert both == f"<{MASKED}>"


def test_a_value_of_many_lines_is_known_by_its_lines() -> None:
    key = "-----BEGIN X-----\nabcdefghijklmnop\nqrstuvwxyz012345\n-----END X-----"
    masked = Redactor([("key", key)], keys=False, numbers=False, mark=1).text("  qrstuvwxyz012345  ")
    assert masked == "  [secret:key#1~000001]  "


def test_short_values_are_not_looked_for() -> None:
    assert Redactor([("pin", "1234567")]).text("1234567 1234567") == "1234567 1234567"


def test_a_json_value_is_masked_with_its_keys() -> None:
    found = redactor().value({"a": [VALUE, 1, None, True], VALUE: {"b": f"x{VALUE}"}})
    assert found == {"a": [MASKED, 1, None, True], MASKED: {"b": f"x{MASKED}"}}


def test_a_placeholder_is_known_wherever_it_stands() -> None:
    one = redactor()
    held = [
        one.holds_placeholder(value) for value in ({"a": [f"x {MASKED}"]}, {MASKED: 1}, f"{MASKED}", ["[secret:db#1]"])
    ]
    assert held == [True, True, True, False]


def test_no_value_is_shown_by_the_redactor_itself() -> None:
    assert VALUE not in repr(redactor())
