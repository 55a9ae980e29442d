"""Heads of HTTP messages, read strictly; bodies, exactly as far as they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.sandbox.egress.http.body import pass_body, read_body
from corral.sandbox.egress.http.head import (
    MAX_FIELDS,
    MAX_HEAD,
    BadMessage,
    Buffered,
    Request,
    encode_head,
    find_body,
    parse_request,
    parse_response,
    strip_hops,
)


def feed(*pieces: bytes) -> Buffered:
    left = list(pieces)

    async def read() -> bytes:
        return left.pop(0) if left else b""

    return Buffered(read)


def test_a_request() -> None:
    head = b"POST http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\nX-Empty:\r\nAccept:\t*/* \r\nX: caf\xe9"
    fields = [("Host", "a.test"), ("X-Empty", ""), ("Accept", "*/*"), ("X", "caf\xe9")]
    assert parse_request(head) == Request("POST", "http://a.test/x?y", 1, fields)
    assert encode_head("POST http://a.test/x?y HTTP/1.1", fields[:1] + fields[3:]).endswith(b"\r\nX: caf\xe9\r\n\r\n")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET / HTTP/2.0",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"GET /a b HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"G\xc3\x89T / HTTP/1.1",
        b"GET / HTTP/1.1\r\nNo colon",
        b"GET / HTTP/1.1\r\nName : value",
        b"GET / HTTP/1.1\r\n folded: value",
        b"GET / HTTP/1.1\r\nA: 1\r\n 2",
        b"GET / HTTP/1.1\r\nA: 1\nB: 2",
        b"GET / HTTP/1.1\r\nA: 1\rB: 2",
        b"GET / HTTP/1.1\r\nA: 1\x002",
        b"GET / HTTP/1.1\r\n: value",
        b"GET / HTTP/1.1\nHost: a",
        b"GET / HTTP/1.1" + b"\r\nA: 1" * (MAX_FIELDS + 1),
    ],
)
def test_is_no_request(head: bytes) -> None:
    with pytest.raises(BadMessage):
        parse_request(head)


@given(st.binary(max_size=200))
def test_what_is_read_is_written_so_that_it_is_read_the_same(head: bytes) -> None:
    try:
        request = parse_request(b"GET / HTTP/1.1\r\n" + head)
    except BadMessage:
        return
    again = encode_head("GET / HTTP/1.1", request.fields)
    assert again.endswith(b"\r\n\r\n") and again.count(b"\r\n") == len(request.fields) + 2
    assert parse_request(again[:-4]) == request


def test_an_answer() -> None:
    assert parse_response(b"HTTP/1.0 204 No  Content\r\nA: b") == (204, "No  Content", [("A", "b")])
    assert parse_response(b"HTTP/1.1 200") == (200, "", [])
    for head in (b"", b"HTTP/1.1 20 x", b"HTTP/1.1 999 x", b"ICY 200 OK", b"HTTP/1.1 200 a\x00"):
        with pytest.raises(BadMessage):
            parse_response(head)


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ([], 0),
        ([("Content-Length", "12")], 12),
        ([("Transfer-Encoding", "Chunked")], None),
    ],
)
def test_how_long_a_body_is(fields: list[tuple[str, str]], length: int | None) -> None:
    assert find_body(fields) == length


@pytest.mark.parametrize(
    "fields",
    [
        [("Content-Length", "1"), ("Transfer-Encoding", "chunked")],
        [("Content-Length", "1"), ("content-length", "1")],
        [("Content-Length", "1, 1")],
        [("Content-Length", "+1")],
        [("Content-Length", "-1")],
        [("Content-Length", "")],
        [("Content-Length", "1" * 19)],
        [("Transfer-Encoding", "gzip, chunked")],
        [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "identity")],
        [("Transfer-Encoding", "xchunked")],
    ],
)
def test_a_length_that_can_be_read_in_two_ways(fields: list[tuple[str, str]]) -> None:
    with pytest.raises(BadMessage):
        find_body(fields)


def test_fields_of_one_connection_go_no_further() -> None:
    fields = [
        *(("Connection", "close, X-Secret, Content-Length, host"), ("X-Secret", "1"), ("Proxy-Authorization", "a")),
        *(("Content-Length", "3"), ("Host", "a"), ("Upgrade", "h2c"), ("TE", "trailers"), ("Accept", "*/*")),
    ]
    assert strip_hops(fields) == [("Content-Length", "3"), ("Host", "a"), ("Accept", "*/*")]


async def test_a_head_in_any_slicing() -> None:
    whole = b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest"
    for size in (1, 2, 3, 7, 100):
        source = feed(*(whole[at : at + size] for at in range(0, len(whole), size)))
        assert await source.take_head() == b"GET / HTTP/1.1\r\nA: b"
        assert await source.take(4) == b"rest"
        assert await source.take_head() is None


@pytest.mark.parametrize(
    "make", [lambda: feed(*[b"x" * 1000] * 100), lambda: feed(b"x" * (MAX_HEAD + 1) + b"\r\n\r\n")]
)
async def test_a_head_without_an_end(make: Callable[[], Buffered]) -> None:
    with pytest.raises(BadMessage, match="over"):
        await make().take_head()


async def test_a_head_that_takes_for_ever() -> None:
    async def read() -> bytes:
        await asyncio.sleep(0.01)
        return b"x"

    with pytest.raises(BadMessage, match=r"within 0\.1 s"):
        await Buffered(read).take_head(within_s=0.1)


async def test_half_a_head() -> None:
    with pytest.raises(BadMessage, match="in the middle"):
        await feed(b"GET / HTTP/1.1\r\n").take_head()


async def run_body(length: int | None, *pieces: bytes) -> tuple[bytes, bytes]:
    source, out = feed(*pieces), bytearray()

    async def write(data: bytes) -> None:
        out.extend(data)

    await pass_body(source, write, length)
    return bytes(out), source.take_rest()


async def test_a_body_ends_where_it_ends() -> None:
    assert await run_body(5, b"he", b"lloGET /next") == (b"hello", b"GET /next")
    assert await run_body(0, b"GET /next") == (b"", b"")


async def test_chunks_are_written_anew() -> None:
    body = b"3;x=y\r\nabc\r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET /next"
    assert await run_body(None, body) == (b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n", b"GET /next")
    slices = (body[at : at + 1] for at in range(len(body)))
    assert b"".join([data async for data in read_body(feed(*slices), None)]) == b"abc0123456789"


@pytest.mark.parametrize(
    ("length", "body"),
    [
        (5, b"abc"),
        (None, b"3\r\nabcX\r\n0\r\n\r\n"),
        (None, b"-3\r\nabc\r\n"),
        (None, b"0x3\r\nabc\r\n"),
        (None, b"3\nabc\r\n0\r\n\r\n"),
        (None, b"3\r\nabc"),
        (None, b"g\r\n"),
        (None, b"\r\n"),
        (None, b"1" * 5000),
        (None, b"3 ; \x00\r\nabc\r\n"),
    ],
)
async def test_is_no_body(length: int | None, body: bytes) -> None:
    with pytest.raises(BadMessage):
        await run_body(length, body)
