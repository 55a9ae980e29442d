"""What passes the gate is judged first, recorded first, and can be ended; what cannot be recorded does not pass."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.tunnel import Listed, Notes, open_net, point_to, serve

from corral.errors import RecordError
from corral.sandbox.egress import Dialer, gate
from corral.sandbox.egress.dial import Refused
from corral.sandbox.egress.gate import Gate
from corral.schema.events import Event, GuardTripped, Payload, Source
from corral.schema.network import Scheme
from corral.schema.target import Target


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


def watched() -> tuple[Dialer, list[str]]:
    asked: list[str] = []

    async def resolve(name: str) -> list[str]:
        asked.append(name)
        return ["10.0.0.1"]

    return Dialer(resolve=resolve), asked


async def test_a_name_that_is_not_allowed_is_never_resolved() -> None:
    """A look-up of secret.evil.test would carry the secret to the evil name server."""
    dialer, asked = watched()
    notes = Notes()
    with pytest.raises(Refused, match="not listed"):
        await Gate(Listed({"a.test"}), notes, dialer).admit(Target("secret.evil.test", 443), Scheme.TUNNEL)
    assert asked == []
    assert [(one.host, one.port, one.allowed, one.reason, one.connection) for one in notes.attempts] == [
        ("secret.evil.test", 443, False, "not listed", "n1")
    ]


async def test_an_allowed_one_is_on_disk_before_the_look_up() -> None:
    dialer, asked = watched()
    seen: list[int] = []

    class Watching(Notes):
        async def append_async(
            self, *payloads: Payload, source: Source | None = None, durable: bool = True
        ) -> tuple[Event, ...]:
            seen.append(len(asked))
            return await super().append_async(*payloads, source=source, durable=durable)

    notes = Watching()
    with pytest.raises(Refused, match=r"10\.0\.0\.1 is private"):
        await Gate(Listed({"a.test"}), notes, dialer).admit(Target("a.test", 443), Scheme.SOCKS)
    assert (seen, notes.durable) == ([0, 1], [True, False])
    assert [(one.connection, one.outcome, one.reason) for one in notes.ends] == [
        ("n1", "refused", "10.0.0.1 is private")
    ]


async def test_nothing_passes_when_the_record_cannot_be_written() -> None:
    dialer, asked = watched()

    class Full(Notes):
        async def append_async(
            self, *payloads: Payload, source: Source | None = None, durable: bool = True
        ) -> tuple[Event, ...]:
            raise RecordError("the disk is full")

    with pytest.raises(RecordError):
        await Gate(Listed({"a.test"}), Full(), dialer).admit(Target("a.test", 443), Scheme.TUNNEL)
    assert asked == []


async def test_a_flood_of_refusals_is_counted_not_kept() -> None:
    notes = Notes()
    guard = Gate(Listed(set()), notes, watched()[0])
    for _ in range(500):
        with pytest.raises(Refused):
            await guard.admit(Target("evil.test", 443), Scheme.TUNNEL)
    await guard.close()
    assert len(notes.attempts) == 10
    assert [(one.guard, one.count) for one in notes.payloads if isinstance(one, GuardTripped)] == [
        ("network_refusals", 490)
    ]
    assert guard.report().refused == (("evil.test:443", 500),)


async def test_what_cannot_be_recorded_any_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_RECORDED", 3)
    dialer, asked = watched()
    guard = Gate(Listed({"a.test"}), Notes(), dialer)
    for _ in range(3):
        with pytest.raises(Refused, match="private"):
            await guard.admit(Target("a.test", 443), Scheme.TUNNEL)
    with pytest.raises(Refused, match="no more are recorded"):
        await guard.admit(Target("a.test", 443), Scheme.TUNNEL)
    assert len(asked) == 3


async def test_new_rules_end_what_they_no_longer_allow() -> None:
    async with serve(echo) as port:
        rules = Listed({"a.test", "b.test"})
        async with open_net(rules, point_to(port, "a.test", "b.test")) as net:
            kept, cut = await net.connect(), await net.connect()
            for program, name in ((kept, "a.test"), (cut, "b.test")):
                await program.send(f"CONNECT {name}:{port} HTTP/1.1\r\n\r\n".encode())
                await program.read_until(b"\r\n\r\n")
            rules.hosts.discard("b.test")
            assert net.egress.gate.judge_again() == 1
            await cut.read_all()
            await kept.send(b"still there")
            await kept.read_until(b"still there")
            assert (cut.was_reset, kept.was_reset) == (True, False)
        outcomes = {one.connection: one.outcome for one in net.notes.ends}
        assert outcomes == {"n2": "revoked", "n1": "over"}


async def test_a_connection_that_is_given_up_while_it_is_made_has_an_end_in_the_record() -> None:
    asked = asyncio.Event()

    async def resolve(name: str) -> list[str]:
        asked.set()
        await asyncio.sleep(60)
        return []

    notes = Notes()
    task = asyncio.ensure_future(
        Gate(Listed({"a.test"}), notes, Dialer(resolve=resolve)).admit(Target("a.test", 443), Scheme.TUNNEL)
    )
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(one.connection, one.outcome) for one in notes.ends] == [("n1", "over")]


async def test_who_comes_when_the_run_is_over_is_turned_away() -> None:
    """Programs in the background outlive the body: the record is about to end, and nobody waits for them."""
    async with serve(echo) as port, open_net({"a.test"}, point_to(port, "a.test")) as net:
        forwarded = await net.egress.forward(8000, 0)
        await net.egress.close()
        late = await net.connect()
        await late.send(f"CONNECT a.test:{port} HTTP/1.1\r\n\r\n".encode())
        assert await late.read_all() == b"" and late.was_reset
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", forwarded)
        assert net.notes.payloads == []


async def test_bytes_of_connections_that_are_open_are_counted_and_once() -> None:
    guard = Gate(Listed(set()), Notes(), watched()[0])
    first, second = await guard.note_forward(8000), await guard.note_forward(8001)
    first.bytes_in, second.bytes_out = 5, 7
    assert guard.count_bytes() == (5, 7)
    await guard.finish(first)
    await guard.finish(first)
    assert (guard.count_bytes(), guard.report().bytes_in) == ((5, 7), 5)
