"""A stream cut anywhere is masked as the whole would be, and masking twice changes nothing."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.redact import Redactor

VALUE = 'Zk83/fLs0"3kf+slw93jdQ'
OTHER = "slw93jdQ-second-value-77"  # begins with the end of the first
KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "MIIEowIBAAKCAQEAr0ABCDEFGHIJKLMN\n" * 3
    + "ab==\n-----END RSA PRIVATE KEY-----"
)
SECRETS = (
    VALUE,
    OTHER,
    VALUE + OTHER[8:],
    json.dumps(VALUE)[1:-1],
    quote(VALUE, safe=""),
    base64.b64encode(b"x" + VALUE.encode()).decode(),
    base64.encodebytes(b"some text before " * 3 + VALUE.encode() + b" and after" * 3).decode(),
    KEY,
    json.dumps(KEY),
    "ghp_" + "a1B2" * 9,
    "Authorization: Bearer abcdef0123456789",
    "postgres://user:s3cret-pass@host/db",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmnop",
    "API_TOKEN=0123456789abcdef0123",
    "1234567890:AAabcdefghijklmnopqrstuvwxyz01234567",
    "4111 1111 1111 1111",
    "4012888888881881",
    "GB29 NWBK 6016 1331 9268 19",
    "DE89370400440532013000",
    "11010519491231002X",
    "+49 30 1234567",
    "(202) 555-0172",
)
FILLER = st.sampled_from(
    ("", " ", "\n", "x", "-", "\\\\n", "%3D", "ghp_", "sk-", "-----BEGIN ", "+1", "é", "\x1b[31m", "://")
)
TEXTS = st.lists(st.one_of(st.sampled_from(SECRETS), FILLER, st.text(max_size=12)), max_size=10).map("".join)


def make_redactor() -> Redactor:
    return Redactor([("first", VALUE), ("second", OTHER)], mark=583201)


@settings(deadline=None)
@given(TEXTS, st.data())
def test_a_stream_is_masked_as_the_whole(text: str, data: st.DataObject) -> None:
    whole = text.encode("utf-8", "surrogatepass")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    stream = make_redactor().stream()
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert b"".join(map(stream.feed, pieces)) + stream.finish() == make_redactor().data(whole)


@settings(deadline=None)
@given(TEXTS)
def test_a_stream_of_single_bytes_is_masked_as_the_whole(text: str) -> None:
    whole = text.encode("utf-8", "surrogatepass")
    stream = make_redactor().stream()
    out = b"".join(stream.feed(whole[place : place + 1]) for place in range(len(whole))) + stream.finish()
    assert out == make_redactor().data(whole)


@settings(deadline=None)
@given(TEXTS)
def test_no_known_value_is_left(text: str) -> None:
    masked = make_redactor().text(text)
    assert (VALUE in masked, OTHER in masked) == (False, False)


@settings(deadline=None)
@given(st.lists(st.sampled_from(SECRETS), max_size=6))
def test_masking_twice_is_masking_once(secrets: list[str]) -> None:
    redactor = make_redactor()
    masked = redactor.text(" ".join(secrets))
    assert redactor.text(masked) == masked


@settings(deadline=None)
@given(st.binary(max_size=400), st.data())
def test_any_bytes_at_all_can_be_masked(raw: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(raw)))
    stream = make_redactor().stream()
    assert stream.feed(raw[:cut]) + stream.feed(raw[cut:]) + stream.finish() == make_redactor().data(raw)
