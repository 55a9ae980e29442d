"""Socket families: each is a protocol's worth of kernel code, loaded on demand."""

from __future__ import annotations

import errno
import functools
import os
import socket

from .attack import Table

SOCKETS = Table("kernel surface")
_STREAM, _DATAGRAM, _RAW, _PACKETS = 1, 2, 3, 5
_FAMILIES: tuple[tuple[str, str, int, int, int], ...] = (
    ("packet", "frames from and to the wire", 17, _RAW, 3 << 8),
    ("packet-datagram", "the same without headers", 17, _DATAGRAM, 3 << 8),
    ("vsock", "the hypervisor", 40, _STREAM, 0),
    ("alg", "the kernel's cryptography", 38, _PACKETS, 0),
    ("key", "keys of IPsec", 15, _RAW, 2),
    ("xdp", "frames without the stack", 44, _RAW, 0),
    ("tipc", "cluster messages", 30, _STREAM, 0),
    ("bluetooth", "radios", 31, _RAW, 1),
    ("rds", "reliable datagrams", 21, _PACKETS, 0),
    ("can", "car buses", 29, _RAW, 1),
    ("nfc", "near field", 39, _RAW, 0),
    ("qipcrtr", "modems", 42, _DATAGRAM, 0),
    ("smc", "shared memory for TCP", 43, _STREAM, 0),
    ("llc", "802.2", 26, _STREAM, 0),
    ("ax25", "amateur radio", 3, _PACKETS, 0),
    ("x25", "a relic", 9, _PACKETS, 0),
    ("appletalk", "a relic", 5, _DATAGRAM, 0),
    ("pppox", "PPP and L2TP", 24, _STREAM, 0),
    ("kcm", "multiplexed TCP", 41, _DATAGRAM, 0),
    ("rxrpc", "AFS", 33, _DATAGRAM, 2),
    ("phonet", "phones", 35, _DATAGRAM, 0),
    ("ieee802154", "sensors", 36, _DATAGRAM, 0),
    ("mctp", "management controllers", 45, _DATAGRAM, 0),
    ("inet-raw", "packets with headers of one's own", 2, _RAW, 1),
    ("inet6-raw", "the same, version 6", 10, _RAW, 58),
    ("inet-ping", "echo requests without root", 2, _DATAGRAM, 1),
    ("mptcp", "multipath TCP", 2, _STREAM, 262),
    ("sctp", "SCTP", 2, _STREAM, 132),
    ("dccp", "DCCP", 2, 6, 33),
    ("l2tp", "tunnels", 2, _DATAGRAM, 115),
    ("udplite", "UDP-Lite", 2, _DATAGRAM, 136),
    ("netlink-audit", "the host's audit log", 16, _RAW, 9),
    ("netlink-netfilter", "firewall rules", 16, _RAW, 12),
    ("netlink-generic", "a hundred small interfaces", 16, _RAW, 16),
    ("netlink-xfrm", "IPsec", 16, _RAW, 6),
    ("netlink-diag", "everybody's sockets", 16, _RAW, 4),
    ("netlink-uevent", "device events", 16, _RAW, 15),
    ("netlink-connector", "process events of the host", 16, _RAW, 11),
    ("netlink-crypto", "cryptography", 16, _RAW, 21),
    ("netlink-iscsi", "storage", 16, _RAW, 8),
)


def _open(family: int, kind: int, protocol: int) -> str | None:
    try:
        os.close(socket.socket(family, kind, protocol).detach())
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise
        return f"the kernel answered {errno.errorcode.get(error.errno or 0, error.errno)}"
    return "open"


def _pair() -> str | None:
    try:
        for end in socket.socketpair(30, _STREAM, 0):
            end.close()
    except OSError as error:
        if error.errno == errno.EPERM:
            raise
        return f"the kernel answered {errno.errorcode.get(error.errno or 0, error.errno)}"
    return "open"


def _fill() -> None:
    for name, what, family, kind, protocol in _FAMILIES:
        SOCKETS.add(f"socket-{name}", f"socket: {what}", functools.partial(_open, family, kind, protocol))
    SOCKETS.add("socketpair-tipc", "a pair of another family", _pair)


_fill()
