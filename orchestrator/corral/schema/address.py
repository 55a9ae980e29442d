"""Which addresses a box may never reach, whatever a list says. Pure."""

from __future__ import annotations

import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Tables of our own: what `ipaddress` calls global differs from one Python to the next.
_REFUSED_V4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared, private",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "a cloud's metadata service",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "special",
    "192.0.2.0/24": "documentation",
    "192.31.196.0/24": "special",
    "192.52.193.0/24": "special",
    "192.88.99.0/24": "a relay to other addresses",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "special",
    "198.18.0.0/15": "private",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}
_REFUSED_V6 = {
    "2001::/32": "embeds an IPv4 address (Teredo)",
    "2001::/23": "special",
    "2001:db8::/32": "documentation",
    "2002::/16": "embeds an IPv4 address (6to4)",
    "2620:4f:8000::/48": "special",
    "3fff::/20": "documentation",
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::ffff:0:0/96": "an IPv4 address in disguise",
    "::/96": "an IPv4 address in disguise",
    "64:ff9b::/96": "embeds an IPv4 address (NAT64)",
    "64:ff9b:1::/48": "embeds an IPv4 address (NAT64)",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "ff00::/8": "multicast",
}
_V4 = [(ipaddress.IPv4Network(net), why) for net, why in _REFUSED_V4.items()]
_V6 = [(ipaddress.IPv6Network(net), why) for net, why in _REFUSED_V6.items()]
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_ISATAP = (0x00005EFE, 0x02005EFE)


def explain_refusal(address: Address) -> str:
    """Why this address is not reached, or "" for a plainly public one."""
    # SECURITY: each row has a case in test_address.
    if isinstance(address, ipaddress.IPv4Address):
        return next((why for net, why in _V4 if address in net), "")
    if address.scope_id:
        return "link-local"
    for net, why in _V6:
        if address in net:
            return why
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return "embeds an IPv4 address (ISATAP)"
    return "" if address in _GLOBAL_V6 else "not a public address"


def is_own(address: Address) -> bool:
    """Whether the kernel would reach this machine itself by it: a public address of our own is still our own."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))  # sends nothing: only asks which way it would go
            return bool(probe.getsockname()[0] == str(address))
    except OSError:
        return False


def parse_address(text: str) -> Address | None:
    """An address in one of its usual forms; None for a name."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
