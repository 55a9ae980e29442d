"""The proxy as programs in the box use and abuse it: tunnels, plain requests, smuggling, secrets, slowness."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import pytest
from tests.support.tunnel import Listed, open_net, point_to, serve

from corral.sandbox.egress import Secret
from corral.sandbox.egress.http.secret import make_placeholder
from corral_protocol.message import INITIAL_CREDIT

VALUE = "s3cr3t-t0ken-value"
SECRET = Secret("api", frozenset({"api.test"}), "authorization", VALUE, make_placeholder(len(VALUE)))


class Web:
    """A server that keeps what it was asked and answers it with itself."""

    def __init__(self, answer: bytes = b"") -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self._answer = answer
        self.keeps = False
        self.rest = b""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        size = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
        self.bodies.append(await reader.readexactly(size))
        body = head
        answer = self._answer or b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nKeep-Alive: 5\r\n\r\n%s" % (len(body), body)
        writer.write(answer)
        await writer.drain()
        if self.keeps:
            self.rest = await reader.read()
        else:
            writer.write_eof() if writer.can_write_eof() else writer.close()
            self.rest = await reader.read()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write(b"<end>")


async def test_a_tunnel_of_bytes_with_half_close() -> None:
    async with serve(echo) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        program = await net.connect()
        await program.send(f"CONNECT A.test.:{port} HTTP/1.1\r\nHost: whatever\r\n\r\nearly".encode())
        await program.read_until(b"early")
        await program.send(bytes(3 << 20) + b"late")
        await program.finish()
        got = await program.read_all()
        assert got == b"HTTP/1.1 200 Connection established\r\n\r\nearly" + bytes(3 << 20) + b"late<end>"
        (attempt,) = net.notes.attempts
        assert (attempt.host, attempt.port, attempt.allowed, attempt.scheme, attempt.method, attempt.phase) == (
            *("a.test", port, True, "tunnel", "", "agent"),
        )
    (end,) = net.notes.ends
    size = (3 << 20) + 9
    assert (end.outcome, end.bytes_out, end.bytes_in, end.address) == ("closed", size, size + 5, "127.0.0.1")


async def test_one_plain_request() -> None:
    web = Web()
    async with serve(web) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        request = (
            f"POST http://a.test:{port}/x?y=1 HTTP/1.1\r\nHost: internal.test\r\nProxy-Connection: keep-alive\r\n"
            "Connection: X-Hop\r\nX-Hop: 1\r\nAccept: */*\r\nContent-Length: 4\r\n\r\nbody"
        )
        answer = await (await net.connect()).ask(request.encode())
    assert web.heads == [
        f"POST /x?y=1 HTTP/1.1\r\nHost: a.test:{port}\r\nAccept: */*\r\nContent-Length: 4\r\n"
        "Connection: close\r\n\r\n".encode()
    ]
    assert web.bodies == [b"body"]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), b"Connection: close"]
    assert [(one.scheme, one.method, one.allowed) for one in net.notes.attempts] == [("http", "POST", True)]


async def test_a_second_request_on_the_connection_reaches_nobody() -> None:
    """Smuggling: what stands behind the first body was never judged."""
    web = Web()
    async with serve(web) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        first = f"GET http://a.test:{port}/ HTTP/1.1\r\n\r\n"
        second = f"DELETE http://a.test:{port}/all HTTP/1.1\r\n\r\n"
        answer = await (await net.connect()).ask((first + second).encode())
        assert answer.count(b"HTTP/1.1 200") == 1
    assert (len(web.heads), web.rest) == (1, b"")
    assert [one.method for one in net.notes.attempts] == ["GET"]


@pytest.mark.parametrize(
    "extra",
    [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Content-Length: 4\r\nContent-Length: 5",
        "Transfer-Encoding: gzip, chunked",
        "Content-Length : 4",
        "X: 1\r\n folded",
    ],
)
async def test_what_can_be_read_in_two_ways_is_not_passed_on(extra: str) -> None:
    web = Web()
    async with serve(web) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        answer = await (await net.connect()).ask(f"POST http://a.test:{port}/ HTTP/1.1\r\n{extra}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert web.heads == []


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET ftp://a.test/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http://me:pw@a.test/ HTTP/1.1",
        "GET http://127.1/ HTTP/1.1",
        "CONNECT a.test HTTP/1.1",
        "CONNECT a.test:0 HTTP/1.1",
        "CONNECT http://a.test:1 HTTP/1.1",
        "nonsense",
        "GET http://a.test/ HTTP/3.0",
    ],
)
async def test_is_no_request_for_a_proxy(line: str) -> None:
    async with open_net({"a.test"}, point_to(1, "a.test")) as net:
        answer = await (await net.connect()).ask(f"{line}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert net.notes.attempts == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("evil.test:443", "not listed"),
        ("169.254.169.254:80", "not listed"),
        ("[::ffff:169.254.169.254]:80", "not listed"),
        ("a.test:1", "127.0.0.1 is loopback"),
        ("127.0.0.1:22", "127.0.0.1 is loopback"),
        ("[::1]:22", "::1 is loopback"),
    ],
)
async def test_a_refusal_says_why(target: str, reason: str) -> None:
    """Listed or not, an address that is not public is never connected to."""
    async with open_net({"a.test", "127.0.0.1", "::1"}, point_to(2, "a.test")) as net:
        answer = await (await net.connect()).ask(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert answer.endswith(f"\r\n\r\ncorral: {reason}\n".encode())


async def test_a_redirect_is_judged_like_any_request() -> None:
    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n")

    async with serve(elsewhere) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        answer = await (await net.connect()).ask(f"GET http://a.test:{port}/ HTTP/1.1\r\n\r\n".encode())
        assert b"Location: http://169.254.169.254/latest\r\n" in answer
        answer = await (await net.connect()).ask(b"GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert [one.allowed for one in net.notes.attempts] == [True, False]


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (64 << 10) + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nBad : x\r\n\r\n",
    ],
)
async def test_an_answer_that_is_none(answer: bytes) -> None:
    async with serve(Web(answer)) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        got = await (await net.connect()).ask(f"GET http://a.test:{port}/ HTTP/1.1\r\n\r\n".encode())
        assert got.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nT: x\r\n\r\n", b"hello"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloand more", b"hello"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello"),
    ],
)
async def test_an_answer_ends_where_it_ends(answer: bytes, body: bytes) -> None:
    """Also from a server that keeps the connection."""
    web = Web(answer)
    web.keeps = not answer.startswith(b"HTTP/1.0")
    async with serve(web) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        got = await (await net.connect()).ask(f"GET http://a.test:{port}/ HTTP/1.1\r\n\r\n".encode())
        head, _, rest = got.partition(b"\r\n\r\n")
        assert rest == body and b"Transfer-Encoding" not in head and head.endswith(b"\r\nConnection: close")


async def test_an_answer_that_breaks_off_is_a_reset() -> None:
    async with (
        serve(Web(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")) as port,
        open_net({"a.test"}, point_to(port, "a.test")) as net,
    ):
        program = await net.connect()
        await program.ask(f"GET http://a.test:{port}/ HTTP/1.1\r\n\r\n".encode())
        assert program.was_reset


async def test_an_interim_answer_goes_first() -> None:
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nA: b\r\n\r\n"
    async with serve(Web(answer)) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        got = await (await net.connect()).ask(f"GET http://a.test:{port}/ HTTP/1.1\r\n\r\n".encode())
        assert got == (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nA: b\r\nConnection: close\r\n\r\n")


async def test_heads_without_an_end_and_half_requests() -> None:
    async with open_net({"a.test"}, point_to(1, "a.test")) as net:
        long = await net.connect()
        await long.send(b"GET http://a.test/ HTTP/1.1\r\nX: " + b"x" * (40 << 10))
        assert (await long.read_all()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        half = await net.connect()
        assert (await half.ask(b"GET http://a.t", finish=True)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        silent = await net.connect()
        await silent.finish()
        assert await silent.read_all() == b""


async def test_an_idle_connection_is_ended() -> None:
    async with serve(echo) as port, open_net({"a.test"}, point_to(port, "a.test"), idle_s=0.3) as net:
        program = await net.connect()
        await program.send(f"CONNECT a.test:{port} HTTP/1.1\r\n\r\n".encode())
        await program.read_all()
        assert program.was_reset
    assert [one.outcome for one in net.notes.ends] == ["idle"]


async def test_a_half_open_connection_is_ended_when_nothing_moves() -> None:
    """One side has ended, the other neither ends nor speaks."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serve(silent) as port, open_net({"a.test"}, point_to(port, "a.test"), idle_s=0.3) as net:
        program = await net.connect()
        await program.send(f"CONNECT a.test:{port} HTTP/1.1\r\n\r\n".encode())
        await program.finish()
        await program.read_all()
    assert [one.outcome for one in net.notes.ends] == ["idle"]


async def test_a_reader_that_does_not_read_costs_a_window_and_holds_up_nobody() -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    async with serve(pour) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        program = await net.connect()
        program.is_reading = False
        await program.send(f"CONNECT a.test:{port} HTTP/1.1\r\n\r\n".encode())
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.3)
        assert len(program.got) == INITIAL_CREDIT
        answer = await (await net.connect()).ask(b"GET http://evil.test/ HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")


async def test_a_server_that_breaks_off_is_a_reset_for_the_program() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with serve(break_off) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        program = await net.connect()
        await program.send(f"CONNECT a.test:{port} HTTP/1.1\r\n\r\nxx".encode())
        await program.read_all()
        assert program.was_reset
    assert [one.outcome for one in net.notes.ends] == ["reset"]


async def test_socks() -> None:
    async with serve(echo) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        program = await net.connect(1)
        name = b"\3\6a.test" + port.to_bytes(2, "big")
        await program.send(b"\5\2\2\0" + b"\5\1\0" + name + b"hello")
        await program.finish()
        ok = b"\5\0" + b"\5\0\0\1" + bytes(6)
        assert await program.read_all() == ok + b"hello<end>"
        refused = await net.connect(1)
        assert await refused.ask(b"\5\1\0" + b"\5\1\0\1\x7f\0\0\1\0\x16") == b"\5\0" + b"\5\2\0\1" + bytes(6)
        bind = await net.connect(1)
        assert await bind.ask(b"\5\1\0" + b"\5\2\0" + name) == b"\5\0" + b"\5\7\0\1" + bytes(6)
        kind = await net.connect(1)
        assert await kind.ask(b"\5\1\0" + b"\5\1\0\x09\0\0\0") == b"\5\0" + b"\5\x08\0\1" + bytes(6)
        for nonsense in (b"\4\1\0\x50\x7f\0\0\1\0", b"\5\1\2", b"GET / HTTP/1.1\r\n\r\n"):
            odd = await net.connect(1)
            await odd.ask(nonsense)
            assert odd.was_reset
        assert [(one.scheme, one.host, one.allowed) for one in net.notes.attempts] == [
            ("socks", "a.test", True),
            ("socks", "127.0.0.1", False),
        ]


# Secrets


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=api.test"),
            *("-addext", "subjectAltName=DNS:api.test"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder / "cert.pem", folder / "key.pem"


def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def client_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate[0]))


async def test_a_secret_goes_by_tls_and_comes_back_as_its_placeholder(certificate: tuple[Path, Path]) -> None:
    web = Web()
    async with (
        serve(web, server_tls(certificate)) as port,
        open_net(
            {"api.test"}, point_to(port, "api.test"), secrets=[SECRET], tls=lambda: client_tls(certificate)
        ) as net,
    ):
        request = (
            f"GET http://api.test:{port}/me HTTP/1.1\r\nAuthorization: Bearer {SECRET.placeholder}\r\n"
            f"X-Copy: {SECRET.placeholder}\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        answer = await (await net.connect()).ask(request.encode())
        (attempt,) = net.notes.attempts
        assert (attempt.scheme, attempt.secrets, attempt.method) == ("https", ("api",), "GET")
    head = web.heads[0].decode()
    assert f"\r\nAuthorization: Bearer {VALUE}\r\n" in head and f"\r\nX-Copy: {SECRET.placeholder}\r\n" in head
    assert "\r\nAccept-Encoding: identity\r\n" in head and "gzip" not in head
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and VALUE.encode() not in answer
    assert f"Authorization: Bearer {SECRET.placeholder}".encode() in answer
    assert all(VALUE not in payload.model_dump_json() for payload in net.notes.payloads)


@pytest.mark.parametrize("coding", ["gzip", "GZip", "br, identity"])
async def test_an_answer_in_which_a_secret_could_not_be_seen_is_not_passed_on(
    certificate: tuple[Path, Path], coding: str
) -> None:
    web = Web(f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: 4\r\n\r\nblob".encode())
    async with (
        serve(web, server_tls(certificate)) as port,
        open_net(
            {"api.test"}, point_to(port, "api.test"), secrets=[SECRET], tls=lambda: client_tls(certificate)
        ) as net,
    ):
        for field, status in ((f"Authorization: {SECRET.placeholder}", b"502 Bad Gateway"), ("X: y", b"200 OK")):
            request = f"GET http://api.test:{port}/ HTTP/1.1\r\n{field}\r\n\r\n"
            answer = await (await net.connect()).ask(request.encode())
            assert answer.startswith(b"HTTP/1.1 " + status)
            assert (b"blob" in answer) == (status == b"200 OK")


async def test_a_secret_never_goes_in_the_clear(certificate: tuple[Path, Path]) -> None:
    """The server speaks no TLS: then nothing is sent at all, not even without the secret."""
    heard = bytearray()

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(1 << 16))

    async with (
        serve(plain) as port,
        open_net({"api.test"}, point_to(port, "api.test"), secrets=[SECRET]) as net,
    ):
        request = f"GET http://api.test:{port}/ HTTP/1.1\r\nAuthorization: {SECRET.placeholder}\r\n\r\n"
        answer = await (await net.connect()).ask(request.encode())
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert VALUE.encode() not in heard and b"GET" not in heard


async def test_a_certificate_that_does_not_hold_gets_no_secret(certificate: tuple[Path, Path]) -> None:
    web = Web()
    async with (
        serve(web, server_tls(certificate)) as port,
        open_net({"api.test"}, point_to(port, "api.test"), secrets=[SECRET]) as net,
    ):
        request = f"GET http://api.test:{port}/ HTTP/1.1\r\nAuthorization: {SECRET.placeholder}\r\n\r\n"
        answer = await (await net.connect()).ask(request.encode())
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n") and b"certificate" in answer.lower()
    assert web.heads == []


async def test_another_host_gets_the_placeholder() -> None:
    web = Web()
    rules = Listed({"api.test", "other.test"})
    async with (
        serve(web) as port,
        open_net(rules, point_to(port, "api.test", "other.test"), secrets=[SECRET]) as net,
    ):
        request = f"GET http://other.test:{port}/ HTTP/1.1\r\nAuthorization: {SECRET.placeholder}\r\n\r\n"
        await (await net.connect()).ask(request.encode())
        assert net.notes.attempts[0].secrets == ()
    assert SECRET.placeholder.encode() in web.heads[0] and VALUE.encode() not in web.heads[0]


async def test_a_hundred_streams_at_once() -> None:
    async with serve(echo) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        programs = [await net.connect() for _ in range(100)]
        for program in programs:
            await program.send(f"CONNECT a.test:{port} HTTP/1.1\r\n\r\n{program.number}".encode())
        for program in programs:
            await program.read_until(str(program.number).encode())
            await program.finish()
        for program in programs:
            assert (await program.read_all()).endswith(f"{program.number}<end>".encode())
    assert [one.outcome for one in net.notes.ends] == ["closed"] * 100
