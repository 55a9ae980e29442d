"""Names that lead to where nobody may go: private answers, answers that change, servers that do not answer."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest
from tests.support.tunnel import serve

from corral.sandbox.egress import Dialer
from corral.sandbox.egress.dial import Refused, is_private
from corral.schema.target import Target


def answering(*answers: list[str]) -> tuple[Dialer, list[str]]:
    """A name server that gives one answer after the other; and what it was asked."""
    left, asked = list(answers), list[str]()

    async def resolve(name: str) -> list[str]:
        asked.append(name)
        return left.pop(0) if len(left) > 1 else left[0]

    return Dialer(resolve=resolve, connect_s=1.0), asked


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (["10.0.0.1"], "10.0.0.1 is private"),
        (["169.254.169.254"], "169.254.169.254 is link-local"),
        (["::ffff:127.0.0.1", "127.0.0.1"], "::ffff:127.0.0.1 is an IPv4 address in disguise; 127.0.0.1 is loopback"),
        (["64:ff9b::a00:1"], "64:ff9b::a00:1 embeds an IPv4 address (NAT64)"),
        (["fe80::1%lo"], "fe80::1%lo is link-local"),
        (["nonsense"], "nonsense is not an address"),
        ([], "a.test has no address"),
    ],
)
async def test_answers_that_are_refused(answer: list[str], reason: str) -> None:
    dialer, _ = answering(answer)
    with pytest.raises(Refused) as refused:
        await dialer.connect(Target("a.test", 80))
    assert refused.value.reason == reason


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.1.2.3", "::ffff:10.1.2.3", "0.0.0.0"])
async def test_an_address_literal_is_no_way_around(host: str) -> None:
    dialer, asked = answering(["192.0.2.1"])
    with pytest.raises(Refused):
        await dialer.connect(Target(host, 80))
    assert asked == []
    assert is_private(host)


async def test_a_name_is_asked_for_once_and_the_answer_is_what_is_connected_to() -> None:
    """Rebinding: the second answer would be another one; there is no second question."""

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"the first")

    async with serve(hello) as port:
        dialer, asked = answering(["127.0.0.1"], ["10.0.0.1"])
        dialer = Dialer(resolve=dialer.resolve, exempt=frozenset({("127.0.0.1", port)}))
        sock, address = await dialer.connect(Target("a.test", port))
        with sock:
            assert (address, sock.getpeername()) == ("127.0.0.1", ("127.0.0.1", port))
            assert await asyncio.get_running_loop().sock_recv(sock, 100) == b"the first"
        assert asked == ["a.test"]
        with pytest.raises(Refused, match=r"10\.0\.0\.1 is private"):
            await dialer.connect(Target("a.test", port))


async def test_of_mixed_answers_only_public_ones_are_tried() -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass

    async with serve(hello) as port, serve(hello) as other:
        tried: list[str] = []
        loop = asyncio.get_running_loop()
        real = loop.sock_connect

        async def watch(sock: socket.socket, address: tuple[str, int]) -> None:
            tried.append(address[0])
            await real(sock, address)

        dialer, _ = answering(["10.0.0.1", "127.0.0.2", "127.0.0.1", "fe80::1"])
        dialer = Dialer(resolve=dialer.resolve, exempt=frozenset({("127.0.0.1", port)}))
        loop.sock_connect = watch  # type: ignore[method-assign,assignment]
        sock, _ = await dialer.connect(Target("a.test", port))
        sock.close()
        assert tried == ["127.0.0.1"]
        with pytest.raises(Refused):  # the exception is for one port
            await dialer.connect(Target("a.test", other))


async def test_a_server_that_refuses_and_one_that_is_silent() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        blockers = [socket.socket() for _ in range(3)]
        for blocker in blockers:
            blocker.setblocking(False)
            blocker.connect_ex(("127.0.0.1", port))
        dialer, _ = answering(["127.0.0.1"])
        dialer = Dialer(resolve=dialer.resolve, exempt=frozenset({("127.0.0.1", port)}), connect_s=0.3)
        with pytest.raises(Refused, match=r"no answer within 0\.3 s") as silent:
            await dialer.connect(Target("a.test", port))
        for blocker in blockers:
            blocker.close()
    with pytest.raises(Refused, match="Connection refused") as refused:
        await dialer.connect(Target("a.test", port))
    assert silent.value.outcome == refused.value.outcome == "failed"


async def test_a_name_that_does_not_exist() -> None:
    async def resolve(name: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(Refused, match=r"a\.test cannot be resolved: name or service not known") as refused:
        await Dialer(resolve=resolve).connect(Target("a.test", 80))
    assert refused.value.has_failed


_SLOW_NAME_SERVER = """
import asyncio, socket, time
from corral.sandbox.egress.dial import system_resolver
socket.getaddrinfo = lambda *arguments, **more: time.sleep(600)
async def main():
    resolve = system_resolver()
    for _ in range(20):
        try:
            async with asyncio.timeout(0.01):
                await resolve("a.test")
        except TimeoutError:
            pass
    import threading
    print(sum(thread.name == "corral-resolve" for thread in threading.enumerate()))
asyncio.run(main())
"""


def test_a_name_server_that_never_answers_holds_up_no_end_and_costs_few_threads() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SLOW_NAME_SERVER], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")
