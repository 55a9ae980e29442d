"""Connections of the box as streams to the host, and the host's connections to ports of the box."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import psutil
import pytest
from tests.unit.toolbox.client import BoxEnded, Client

from corral_protocol.message import FIRST_DIALED_STREAM, FIRST_OPENED_STREAM, INITIAL_CREDIT

FIRST = FIRST_OPENED_STREAM


@contextlib.contextmanager
def connect(port: int) -> Iterator[socket.socket]:
    """What a program in the box does; loopback is the machine's own here."""
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        yield sock


def listen(box: Client, most: int = 8) -> list[int]:
    ports = box.call("tunnel.listen", {"listeners": 2, "max_streams": most})["ports"]
    assert isinstance(ports, list)
    return ports


def wait_open(box: Client, stream: int, listener: int = 0) -> None:
    opened = {"jsonrpc": "2.0", "method": "stream.open", "params": {"stream": stream, "listener": listener}}
    box.wait_until(lambda: opened in box.notices)
    box.notices.remove(opened)
    box.credit[stream] = INITIAL_CREDIT


def wait_notice(box: Client, method: str, **params: object) -> None:
    notice = {"jsonrpc": "2.0", "method": method, "params": params}
    box.wait_until(lambda: notice in box.notices)


def close(box: Client, stream: int, total: int, error: str = "") -> None:
    box.notify("stream.close", {"stream": stream, "total": total, "error": error})


def test_a_connection_is_a_stream_in_both_directions(box: Client) -> None:
    ports = listen(box)
    with connect(ports[1]) as sock:
        wait_open(box, FIRST, 1)
        sock.sendall(b"out")
        sock.shutdown(socket.SHUT_WR)
        assert box.wait_closed(FIRST) == b"out"
        box.send_chunk(FIRST, b"in")
        close(box, FIRST, 2)
        assert (sock.recv(10), sock.recv(10)) == (b"in", b"")


def test_the_box_answers_end_by_end(box: Client) -> None:
    """Half-close in the other order: what the client still sends after our end arrives."""
    with connect(listen(box)[0]) as sock:
        wait_open(box, FIRST)
        close(box, FIRST, 0)
        assert sock.recv(10) == b""
        sock.sendall(b"late")
        sock.close()
        assert box.wait_closed(FIRST) == b"late"


def test_without_credit_the_client_waits(box: Client) -> None:
    box.is_giving_credit = False
    with connect(listen(box)[0]) as sock:
        wait_open(box, FIRST)
        sock.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 64 << 20:
                sent += sock.send(bytes(1 << 16))
                box.poll(0)
        box.wait_until(lambda: len(box.streams.get(FIRST, b"")) == INITIAL_CREDIT)
        box.call("ping")
        assert len(box.streams[FIRST]) == INITIAL_CREDIT < sent < 64 << 20
        box.notify("stream.credit", {"stream": FIRST, "bytes": 1000})
        box.wait_until(lambda: len(box.streams[FIRST]) == INITIAL_CREDIT + 1000)


def test_a_client_that_does_not_read_holds_up_nothing_else(box: Client) -> None:
    with connect(listen(box)[0]) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wait_open(box, FIRST)
        for _ in range(INITIAL_CREDIT >> 16):
            box.send_chunk(FIRST, bytes(1 << 16))
        assert box.shell("echo works").stdout == b"works\n"


def test_more_than_the_credit_ends_the_box(box: Client) -> None:
    with connect(listen(box)[0]):
        wait_open(box, FIRST)
        with pytest.raises((BoxEnded, BrokenPipeError)):
            for _ in range(300):
                box.send_chunk(FIRST, bytes(1 << 16))
                box.poll(0)
            box.call("ping")


def test_credit_comes_back_as_the_client_reads(box: Client) -> None:
    with connect(listen(box)[0]) as sock:
        wait_open(box, FIRST)
        for _ in range(INITIAL_CREDIT >> 16):
            box.send_chunk(FIRST, bytes(1 << 16))
        got = 0
        while got < INITIAL_CREDIT:
            got += len(sock.recv(1 << 20))
        box.wait_until(lambda: box.credit[FIRST] == 2 * INITIAL_CREDIT)


def test_a_client_that_breaks_off_is_told_as_a_reset(box: Client) -> None:
    with connect(listen(box)[0]) as sock:
        wait_open(box, FIRST)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    box.wait_until(lambda: FIRST in box.closed)
    assert box.closed[FIRST] == {"stream": FIRST, "total": 0, "error": "cancelled"}
    wait_notice(box, "stream.reset", stream=FIRST)


def test_a_reset_by_the_host_is_a_reset_for_the_client(box: Client) -> None:
    with connect(listen(box)[0]) as sock:
        wait_open(box, FIRST)
        box.notify("stream.reset", {"stream": FIRST})
        close(box, FIRST, 0, "cancelled")
        with pytest.raises(ConnectionResetError):
            sock.recv(10)
        box.wait_until(lambda: FIRST in box.closed)


def test_no_more_streams_than_allowed_and_the_next_when_one_is_over(box: Client) -> None:
    port = listen(box, most=1)[0]
    with connect(port), connect(port) as second:
        wait_open(box, FIRST)
        second.sendall(b"waits")
        box.call("ping")
        assert box.notices == []
        box.notify("stream.reset", {"stream": FIRST})
        close(box, FIRST, 0, "cancelled")
        wait_open(box, FIRST + 1)
        box.wait_until(lambda: box.streams.get(FIRST + 1) == b"waits")


def test_a_flood_of_connections_leaves_nothing_behind(box: Client) -> None:
    port = listen(box)[0]
    before = box.call("stats")["rss"]
    for number in range(300):
        with connect(port):
            wait_open(box, FIRST + number)
        close(box, FIRST + number, 0)
        box.wait_until(lambda number=number: FIRST + number in box.closed)  # type: ignore[misc]
    assert box.call("stats")["rss"] < before + (4 << 20)
    assert box.exec("true").status == "exited"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_host_reaches_a_port_of_the_box(box: Client, host: str) -> None:
    listen(box)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind((host, 0))
        server.listen()
        stream = FIRST_DIALED_STREAM
        box.streams[stream] = bytearray()
        number = box.request("tunnel.dial", {"stream": stream, "port": server.getsockname()[1]})
        box.credit[stream] = INITIAL_CREDIT
        assert box.wait(number)["result"] == {}
        inside, _ = server.accept()
        with inside:
            box.send_chunk(stream, b"hello")
            assert inside.recv(10) == b"hello"
            inside.sendall(b"answer")
        assert box.wait_closed(stream) == b"answer"


def test_a_port_where_nobody_listens(box: Client) -> None:
    ports = listen(box)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        refused = box.fail("tunnel.dial", {"stream": FIRST_DIALED_STREAM, "port": port})
    assert refused["code"] == "io_error"
    own = box.fail("tunnel.dial", {"stream": FIRST_DIALED_STREAM, "port": ports[0]})
    assert own["message"] == "that port is the tunnel's own"


def test_the_tunnel_is_opened_once(box: Client) -> None:
    assert box.fail("tunnel.dial", {"stream": FIRST_DIALED_STREAM, "port": 1})["message"] == "the tunnel is not open"
    listen(box)
    again = box.fail("tunnel.listen", {"listeners": 1, "max_streams": 1})
    assert again["message"] == "the tunnel is open already"


def test_a_dial_for_which_there_is_no_socket_is_refused(box: Client) -> None:
    """A kernel without IPv6 has none for the second try: the toolbox goes on."""
    listen(box)
    below = psutil.Process(box.process.pid).children(recursive=True)
    toolbox = next(one for one in below if one.name().startswith("python"))
    held = toolbox.rlimit(psutil.RLIMIT_NOFILE)
    toolbox.rlimit(psutil.RLIMIT_NOFILE, (1, held[1]))
    refused = box.fail("tunnel.dial", {"stream": FIRST_DIALED_STREAM, "port": 8000})
    assert refused["message"] == "cannot connect to port 8000 in the box: Too many open files"
    toolbox.rlimit(psutil.RLIMIT_NOFILE, held)
    assert box.shell("echo works").stdout == b"works\n"
