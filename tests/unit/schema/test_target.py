"""Host and port as clients write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.schema.address import parse_address
from corral.schema.target import BadTarget, Target, parse_host, parse_target


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("example.org:443", "example.org", 443),
        ("EXAMPLE.org.:1", "example.org", 1),
        ("a_b.example.org:8080", "a_b.example.org", 8080),
        ("xn--bcher-kva.example:80", "xn--bcher-kva.example", 80),
        ("localhost:80", "localhost", 80),
        ("192.0.2.1:80", "192.0.2.1", 80),
        ("[2001:DB8::1]:443", "2001:db8::1", 443),
        ("[::ffff:7f00:1]:65535", "::ffff:127.0.0.1", 65535),
    ],
)
def test_one_form(text: str, host: str, port: int) -> None:
    target = parse_target(text)
    assert (parse_address(target.host) or target.host, target.port) == (parse_address(host) or host, port)
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        *("", ":80", "example.org", "example.org:", "example.org:0", "example.org:65536", "example.org:8x"),
        *("example.org:080000", "user@example.org:80", "exa mple.org:80", "example..org:80", ".example.org:80"),
        *("-a.org:80", "a-.org:80", "a" * 64 + ".org:80", "a." * 130 + "org:80", "bücher.example:80", "a\0b:80"),
        *("127.1:80", "2130706433:80", "0x7f000001:80", "0x7f.1:80", "0177.0.0.1:80", "1.2.3.4.5:80", "a.1:80"),
        *("[::1:80", "[127.0.0.1]:80", "[::1]80", "[fe80::1%25eth0]:80", "::1:80", "[]:80", "[example.org]:80"),
        *("%31%32%37.0.0.1:80", "example.org:80/path", "example.org:+80", "example.org:８０"),
    ],
)
def test_is_no_target(text: str) -> None:
    with pytest.raises(BadTarget):
        parse_target(text)


def test_the_port_may_be_left_out_where_there_is_a_usual_one() -> None:
    assert parse_target("example.org", 80) == Target("example.org", 80)
    assert parse_target("[2001:db8::1]", 443) == Target("2001:db8::1", 443)


@given(st.text(max_size=40))
def test_never_anything_but_a_target_or_a_refusal(text: str) -> None:
    try:
        host = parse_host(text)
    except BadTarget:
        return
    assert host.isascii() and host == host.lower() and not set(host) & set(" /@?#\\%\0\r\n")
    assert parse_host(host) == host
