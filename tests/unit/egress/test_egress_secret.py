"""Secrets go into their own header for their own hosts, and come out of what comes back."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.sandbox.egress.http.secret import Cleaner, Filled, Secret, make_placeholder, put_in

VALUE = "s3cr3t-t0ken-value"
MARK = "corralPLACEHOLDER1"
SECRET = Secret("api", frozenset({"api.test"}), "authorization", VALUE, MARK)
FILLED = put_in([("Authorization", MARK)], [SECRET])[1]


def test_a_placeholder_looks_like_none_and_is_as_long() -> None:
    made = make_placeholder(len(VALUE))
    assert len(made) == len(VALUE) and made.startswith("corral") and make_placeholder(18) != made
    assert VALUE not in repr(SECRET)


@pytest.mark.parametrize(
    ("given_value", "sent"),
    [
        (MARK, VALUE),
        (f"Bearer {MARK}", f"Bearer {VALUE}"),
        (f"token={MARK}; x", f"token={VALUE}; x"),
        (
            f"Basic {base64.b64encode(f'me:{MARK}'.encode()).decode()}",
            f"Basic {base64.b64encode(f'me:{VALUE}'.encode()).decode()}",
        ),
    ],
)
def test_is_put_into_its_header(given_value: str, sent: str) -> None:
    fields, filled = put_in([("AUTHORIZATION", given_value)], [SECRET])
    assert (fields, filled.names) == ([("AUTHORIZATION", sent)], ("api",))
    echoed = Cleaner(filled).feed(f"you sent {sent}".encode(), is_last=True)
    assert echoed == f"you sent {given_value}".encode()


@pytest.mark.parametrize(
    "field",
    [
        ("X-Other", f"Bearer {MARK}"),
        ("Authorization", "Bearer else"),
        ("Authorization", "Basic %%%"),
        ("Authorization", "Basic \xfc"),
        ("Cookie", MARK),
    ],
)
def test_is_put_nowhere_else(field: tuple[str, str]) -> None:
    assert put_in([field], [SECRET]) == ([field], Filled())


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(1, 30))
def test_is_taken_out_across_the_borders_of_pieces(before: bytes, after: bytes, size: int) -> None:
    text = before + VALUE.encode() + after + VALUE.encode()
    cleaner = Cleaner(FILLED)
    out = b"".join(cleaner.feed(text[at : at + size]) for at in range(0, len(text), size)) + cleaner.feed(
        b"", is_last=True
    )
    assert VALUE.encode() not in out and len(out) == len(text)
    assert out == text.replace(VALUE.encode(), MARK.encode())


def test_without_a_secret_nothing_is_held_back() -> None:
    assert Cleaner(Filled()).feed(b"abc") == b"abc"
