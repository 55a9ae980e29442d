"""Which addresses a box may reach: public ones, and nothing that leads elsewhere."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from corral.schema.address import explain_refusal, is_own, parse_address

REFUSED = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.0.192",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.1.1",
    "192.175.48.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "2620:4f:8000::1",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "4000::1",
    "5f00::1",
    "2a00:1450:4001::5efe:a00:1",
    "2a00:1450:4001::200:5efe:a00:1",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "192.167.255.255",
    "198.17.255.255",
    "198.20.0.1",
    "223.255.255.255",
    "2a00:1450:4001:830::200e",
    "2606:4700:4700::1111",
    "2001:4860:4860::8888",
]


@pytest.mark.parametrize("text", REFUSED)
def test_is_never_reached(text: str) -> None:
    assert explain_refusal(ipaddress.ip_address(text)) != ""


@pytest.mark.parametrize("text", PUBLIC)
def test_is_public(text: str) -> None:
    assert explain_refusal(ipaddress.ip_address(text)) == ""


def test_nothing_that_python_calls_private_is_public() -> None:
    """A second opinion, over one address of each /16 and of many prefixes."""
    wrong = []
    for high in range(1 << 16):
        address = ipaddress.IPv4Address((high << 16) + 1)
        if not explain_refusal(address) and (not address.is_global or address.is_multicast):
            wrong.append(str(address))
    for high in range(0, 1 << 16, 7):
        other = ipaddress.IPv6Address((high << 112) + (1 << 64) + 1)
        if not explain_refusal(other) and (not other.is_global or other.is_multicast):
            wrong.append(str(other))
    assert wrong == []


def test_our_own_address_is_known_without_sending_anything() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
    assert is_own(ipaddress.ip_address("127.0.0.1"))
    assert not is_own(ipaddress.ip_address("192.0.2.1"))


def test_a_name_is_no_address() -> None:
    assert parse_address("example.org") is None
    assert parse_address("127.1") is None
