"""Reaching anything but oneself. A control has a neighbour that answers at every address tried here."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import select
import socket
import struct

from .attack import Table, Unable

NETWORK = Table("network")
_WAIT_S = 1.0
TCP_TARGETS = {
    "public": ("198.51.100.7", 443, "an address of the internet"),
    "public-http": ("203.0.113.9", 80, "another, plain HTTP"),
    "metadata": ("169.254.169.254", 80, "the cloud's metadata: credentials"),
    "metadata-tasks": ("169.254.170.2", 80, "the same for containers"),
    "metadata-other": ("100.100.100.200", 80, "the same at another provider"),
    "private-10": ("10.0.0.1", 22, "a private network"),
    "private-172": ("172.17.0.1", 2375, "the engine's bridge and its open port"),
    "private-192": ("192.168.1.1", 80, "a router at home"),
    "carrier": ("100.64.0.1", 80, "a carrier's network"),
    "link-local": ("169.254.1.1", 80, "a neighbour on the link"),
    "host-loopback": ("127.0.0.1", 7654, "a server on the host's loopback"),
    "resolver-loopback": ("127.0.0.53", 53, "the host's resolver"),
    "engine-resolver": ("127.0.0.11", 53, "the engine's resolver"),
    "unspecified": ("0.0.0.0", 7654, "the unspecified address, which is oneself"),
    "v6": ("2001:db8::7", 443, "an address of the internet, version 6"),
    "v6-unique-local": ("fd00:ec2::254", 80, "the cloud's metadata, version 6"),
    "v6-loopback": ("::1", 7654, "the host's loopback, version 6"),
    "v6-mapped": ("::ffff:198.51.100.7", 443, "version 4 in version 6's clothes"),
    "v6-translated": ("64:ff9b::c633:6407", 443, "the same through a translator"),
}
UDP_TARGETS = {
    "dns": ("198.51.100.7", 53, "a name server: data in questions"),
    "dns-public": ("203.0.113.9", 53, "another"),
    "dns-v6": ("2001:db8::7", 53, "another, version 6"),
    "ntp": ("198.51.100.7", 123, "a time server"),
    "quic": ("198.51.100.7", 443, "HTTP/3"),
    "syslog": ("127.0.0.1", 514, "the host's log"),
    "private": ("10.0.0.1", 161, "a switch's management"),
}
ABSTRACT = "\0corral-attack-abstract"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _connect(host: str, port: int) -> str | None:
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.settimeout(_WAIT_S)
        probe.connect((host, port))
        return f"{host} answers"


def _ask(host: str, port: int) -> str | None:
    with socket.socket(_family(host), socket.SOCK_DGRAM) as probe:
        probe.settimeout(_WAIT_S)
        probe.sendto(b"attack", (host, port))
        return f"{host} answered {probe.recv(64)[:16]!r}"


def _fill() -> None:
    for name, (host, port, what) in TCP_TARGETS.items():
        NETWORK.add(f"tcp-{name}", f"connect: {what}", functools.partial(_connect, host, port))
    for name, (host, port, what) in UDP_TARGETS.items():
        NETWORK.add(f"udp-{name}", f"ask: {what}", functools.partial(_ask, host, port))


_fill()


@NETWORK("fast-open", "data in the first packet of a connection")
def _() -> str | None:
    with socket.socket() as probe:
        probe.settimeout(_WAIT_S)
        try:
            probe.sendto(b"x", 0x20000000, ("198.51.100.7", 443))
        except BlockingIOError:  # on its way
            select.select([], [probe], [], _WAIT_S)
            failure = probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failure:
                raise OSError(failure, os.strerror(failure)) from None
        return f"{probe.getpeername()[0]} answers"


@NETWORK("sendmsg", "a datagram by sendmsg, which no record sees")
def _() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(_WAIT_S)
        probe.sendmsg([b"attack"], [], 0, ("198.51.100.7", 53))
        return f"answered {probe.recv(64)[:16]!r}"


@NETWORK("name", "look a name up")
def _() -> str | None:
    with open("/etc/resolv.conf", encoding="utf-8") as file:
        resolvers = [line.split()[1] for line in file if line.startswith("nameserver")]
    for resolver in resolvers:
        found = _ask(resolver, 53)
        if found:
            return found
    if not resolvers:
        raise FileNotFoundError(errno.ENOENT, "no name server is named")
    return None


@NETWORK("ping", "an echo request without root")
def _() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1) as probe:
        probe.settimeout(_WAIT_S)
        probe.sendto(b"\x08\0\xf7\xff\0\0\0\0", ("198.51.100.7", 0))
        return f"{len(probe.recv(64))} bytes came back"


@NETWORK("raw-icmp", "an echo request with headers of one's own")
def _() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) as probe:
        probe.settimeout(_WAIT_S)
        probe.sendto(b"\x08\0\xf7\xff\0\0\0\0", ("198.51.100.7", 0))
        return f"{len(probe.recv(64))} bytes came back"


@NETWORK("sniff", "listen to what others send")
def _() -> str | None:
    with socket.socket(17, socket.SOCK_RAW, socket.htons(3)):
        return "a packet socket"


@NETWORK("abstract-stream", "an abstract socket of the host or of another box")
def _() -> str | None:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(ABSTRACT)
        return "connected"


@NETWORK("abstract-list", "list abstract sockets of others")
def _() -> str | None:
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        names = [line.split()[-1] for line in file if line.split()[-1].startswith("@")]
    return names[0] if names else None


@NETWORK("connections-list", "list connections and servers of others")
def _() -> str | None:
    for path in ("/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6"):
        with open(path, encoding="ascii") as file:
            lines = file.readlines()[1:]
        if lines:
            return f"{len(lines)} in {path}"
    return None


@NETWORK("routes", "have a way out of one's own machine")
def _() -> str | None:
    with open("/proc/net/route", encoding="ascii") as file:
        lines = file.readlines()[1:]
    names = {line.split()[0] for line in lines} - {"lo"}
    others = [name for name in os.listdir("/sys/class/net") if name != "lo"]
    return f"{sorted(names) or others}" if names or others else None


def _interface(request: int, argument: bytes) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, request, argument)
    return "done"


def _address(host: str) -> bytes:
    return struct.pack("<HH4s8s", socket.AF_INET, 0, socket.inet_aton(host), b"")


@NETWORK("address-add", "give the interface another address")
def _() -> str | None:
    return _interface(0x8916, struct.pack("16s16s", b"lo:9", _address("198.51.100.99")))


@NETWORK("interface-flags", "switch an interface to listen to everything")
def _() -> str | None:
    return _interface(0x8914, struct.pack("16sH22s", b"lo", 0x149, b""))


@NETWORK("interface-mtu", "change an interface")
def _() -> str | None:
    return _interface(0x8922, struct.pack("16si20s", b"lo", 65536, b""))


@NETWORK("route-add", "add a route")
def _() -> str | None:
    entry = struct.pack("<Q16s16s16sHhQQhxxxxxxQQQHxxxxxx", 0, _address("198.51.100.0"), _address("0.0.0.0"),
                        _address("255.255.255.0"), 1, 0, 0, 0, 0, 0, 0, 0, 0)  # fmt: skip
    try:
        return _interface(0x890B, entry)  # SIOCADDRT: what is wrong with it is seen after who asks for it
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise
        return f"the kernel answered {errno.errorcode.get(error.errno or 0)}"


@NETWORK("link-add", "make a network interface")
def _() -> str | None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
        kind = struct.pack("<HH", 9, 1) + b"dummy\0\0\0"
        info = struct.pack("<HH", 4 + len(kind), 18) + kind
        body = struct.pack("<BxHiII", 0, 0, 0, 0, 0) + info
        route.send(struct.pack("<IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
        answer = struct.unpack_from("<i", route.recv(4096), 16)[0]
    if answer in (-errno.EPERM, -errno.EACCES):
        raise PermissionError(-answer, os.strerror(-answer))
    return f"the kernel answered {answer}"


@NETWORK("transparent", "answer for addresses of others")
def _() -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.IPPROTO_IP, 19, 1)
        return "IP_TRANSPARENT set"


@NETWORK("mark", "mark packets past the firewall's rules")
def _() -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, 36, 7)
        return "SO_MARK set"


@NETWORK("force-buffer", "buffers beyond the host's limit")
def _() -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)
        return "SO_RCVBUFFORCE set"


@NETWORK("netfilter", "change firewall rules")
def _() -> str | None:
    with socket.socket() as probe:
        try:
            probe.getsockopt(socket.IPPROTO_IP, 64, 84)  # IPT_SO_GET_INFO
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES):
                raise
            return f"the kernel answered {errno.errorcode.get(error.errno or 0)}"
        return "read"


@NETWORK("tunnel-device", "a network device of one's own")
def _() -> str | None:
    if not os.path.exists("/dev/net/tun"):
        os.makedirs("/dev/net", exist_ok=True)
        os.mknod("/dev/net/tun", 0o020666, os.makedev(10, 200))
    with open("/dev/net/tun", "rb+", buffering=0) as device:
        fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22s", b"", 0x1001, b""))
    return "made"


@NETWORK("unix-of-the-host", "a socket file that the host has put into the workspace")
def _() -> str | None:
    path = os.environ.get("ATTACK_SOCKET")
    if not path:
        raise Unable("the host made none")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
        return "connected"


@NETWORK("fifo-of-the-host", "a named pipe of the workspace that the host reads")
def _() -> str | None:
    path = os.environ.get("ATTACK_FIFO")
    if not path:
        raise Unable("the host made none")
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))  # fails where nobody reads the very same pipe
    return "a reader is there"
