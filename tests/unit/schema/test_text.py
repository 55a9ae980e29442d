from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from corral.schema.text import Lines, Name, bound, clean, cut, digest

texts = st.text(st.characters(codec=None))


def test_cut_keeps_head_and_tail_and_says_what_is_missing() -> None:
    text = "a" * 500 + "z" * 500
    short = cut(text, 300)
    mark = f"…[cut: 1000 characters, sha256 {hashlib.sha256(text.encode()).hexdigest()}]…"
    assert short == "a" * 120 + mark + "z" * 60
    assert cut("a" * 300, 300) == "a" * 300


def test_clean_makes_unicode_of_anything() -> None:
    assert clean("half \ud83c") == "half \ufffd"
    assert clean("full \U0001f378") == "full \U0001f378"
    assert clean("name\udcff") == "name\\xff"
    assert clean(b"name\xff") == "name\\xff"


def test_digest_is_the_same_for_text_and_its_bytes() -> None:
    assert digest("é") == digest("é".encode()) == hashlib.sha256(b"\xc3\xa9").hexdigest()


@given(texts, st.integers(130, 400))
def test_cut_is_bounded_encodable_and_stable(text: str, limit: int) -> None:
    short = cut(text * 5, limit)
    assert len(short) <= limit
    assert cut(short, limit) == short
    short.encode()


def test_bound_makes_json_of_what_a_model_may_send() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    value = {
        "big": 10**5000,
        "nan": math.nan,
        "inf": -math.inf,
        "half": "\ud83c",
        "\udcff": b"\xff",
        "many": list(range(5000)),
        "deep": deep,
        "none": None,
        "yes": True,
    }
    kept = bound(value, 200)
    json.dumps(kept, allow_nan=False).encode()
    assert kept["big"].startswith("0x")
    assert len(kept["big"]) <= 200
    assert (kept["nan"], kept["inf"], kept["half"], kept["\\xff"]) == ("nan", "-inf", "\ufffd", "\\xff")
    assert kept["many"][-1] == "[cut: 5000 items]"
    assert len(kept["many"]) == 1001
    assert "nested too deep" in json.dumps(kept["deep"])
    assert (kept["none"], kept["yes"]) == (None, True)


def test_bound_cuts_wide_objects() -> None:
    kept = bound({f"k{n}": n for n in range(50)}, 100, 10)
    assert kept == {**{f"k{n}": n for n in range(10)}, "[cut]": "50 entries"}


class Kept(BaseModel):
    name: Name = ""
    lines: Lines = ()


@given(texts, st.lists(texts, max_size=4))
def test_kept_text_is_cut_and_cleaned_whatever_it_was(text: str, lines: list[str]) -> None:
    kept = Kept(name=text * 40, lines=lines)  # type: ignore[arg-type]  # as a reader gets it: a list
    assert kept == Kept(name=cut(text * 40, 512), lines=tuple(cut(line, 4096) for line in lines))
    kept.model_dump_json().encode()


def test_kept_text_from_bytes_too_long_and_too_many() -> None:
    many = tuple(str(number) for number in range(2000))
    kept = Kept(name=b"caf\xe9", lines=("x" * 5000, *many))  # type: ignore[arg-type]
    assert kept.name == "caf\\xe9"
    assert (len(kept.lines), kept.lines[-1]) == (1000, "[cut: 2001 items]")
    assert kept.lines[0] == cut("x" * 5000, 4096)


@pytest.mark.parametrize("value", [7, None, {"a": 1}, ["a"]])
def test_kept_text_is_text(value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Kept(name=value)
    assert caught.value.error_count() == 1
