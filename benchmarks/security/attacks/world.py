"""A control's neighbour: answers at every address that an attack tries, in a network of its own. Never in our box.

python3 -m attacks.world: the first process of a container that may change its network and has none but its own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import selectors
import signal
import socket
import struct
import sys

from .network import ABSTRACT, TCP_TARGETS, UDP_TARGETS


def _add_v4(number: int, host: str) -> None:
    address = struct.pack("<HH4s8s", socket.AF_INET, 0, socket.inet_aton(host), b"")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8916, struct.pack("16s16s", b"lo:%d" % number, address))  # SIOCSIFADDR


def _add_v6(host: str) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
        request = struct.pack("<16sIi", socket.inet_pton(socket.AF_INET6, host), 128, 1)
        try:
            fcntl.ioctl(control, 0x8916, request)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise


def _add_link() -> None:
    """Any interface beside loopback, of whatever kind this kernel has."""
    for name in (b"dummy", b"bridge", b"veth"):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
            padded = name + bytes(4 - len(name) % 4)
            kind = struct.pack("<HH", 4 + len(name) + 1, 1) + padded
            body = struct.pack("<BxHiII", 0, 0, 0, 0, 0) + struct.pack("<HH", 4 + len(kind), 18) + kind
            route.send(struct.pack("<IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
            if struct.unpack_from("<i", route.recv(4096), 16)[0] == 0:
                return
    sys.stderr.write("no second interface: this kernel has none to make\n")


def _listen(selector: selectors.BaseSelector, family: int, kind: int, address: object) -> None:
    server = socket.socket(family, kind)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind(address)  # type: ignore[arg-type]  # of that family
    if kind == socket.SOCK_STREAM:
        server.listen(64)
    server.setblocking(False)
    selector.register(server, selectors.EVENT_READ)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write("neighbour")
    hosts = [host for host, _, _ in (*TCP_TARGETS.values(), *UDP_TARGETS.values())]
    outside = {host for host in hosts if not host.startswith(("127.", "0.", "::"))}
    for number, host in enumerate(sorted(host for host in outside if ":" not in host)):
        _add_v4(number, host)
    for host in sorted(host for host in outside if ":" in host):
        _add_v6(host)
    _add_link()
    selector = selectors.DefaultSelector()
    for kind, targets in ((socket.SOCK_STREAM, TCP_TARGETS), (socket.SOCK_DGRAM, UDP_TARGETS)):
        for port in {port for _, port, _ in targets.values()}:
            _listen(selector, socket.AF_INET, kind, ("0.0.0.0", port))
            _listen(selector, socket.AF_INET6, kind, ("::", port))
    _listen(selector, socket.AF_UNIX, socket.SOCK_STREAM, ABSTRACT)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        for key, _ in selector.select():
            server = key.fileobj
            assert isinstance(server, socket.socket)
            if server.type == socket.SOCK_STREAM:
                server.accept()[0].close()
            else:
                data, sender = server.recvfrom(2048)
                server.sendto(b"answer to " + data, sender)


if __name__ == "__main__":
    main()
