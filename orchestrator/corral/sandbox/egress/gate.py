"""What every connection out of the box passes: policy, record, address, limits; and what is known of it at its end."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from corral.sandbox.egress.dial import Dialer, Refused, is_private
from corral.schema.events import ConnectionAttempted, ConnectionEnded, Event, GuardTripped, Payload, Source
from corral.schema.network import NetworkDecider, NetworkRequest, Scheme
from corral.schema.policy import Effect
from corral.schema.target import Target

MAX_RECORDED = 10_000
"""Connections of one run in its record. What cannot be recorded is not allowed."""
_SAME_REFUSALS = 10
_MAX_TALLIED = 1000


class EventLog(Protocol):
    """The run's record, as far as connections need it."""

    async def append_async(
        self, *payloads: Payload, source: Source | None = None, durable: bool = True
    ) -> tuple[Event, ...]: ...


@dataclass
class Admitted:
    """A connection that was let through."""

    id: str
    request: NetworkRequest
    sock: socket.socket | None
    address: str
    began_at: float = field(default_factory=time.monotonic)
    bytes_in: int = 0
    bytes_out: int = 0
    ending: str = "closed"
    cut: Callable[[], object] = lambda: None
    """Ends it from outside: the rules have changed."""


@dataclass(frozen=True)
class NetworkReport:
    """What a box reached and did not, each host with how often; the most frequent first."""

    reached: tuple[tuple[str, int], ...] = ()
    refused: tuple[tuple[str, int], ...] = ()
    bytes_in: int = 0
    bytes_out: int = 0


class Gate:
    def __init__(self, decider: NetworkDecider, record: EventLog, dialer: Dialer) -> None:
        self._decider = decider
        self._record = record
        self._dialer = dialer
        self._count = 0
        self._recorded = 0
        self._refusals: Counter[tuple[str, int, str]] = Counter()
        self._unrecorded = 0
        self._reached: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._open: dict[str, Admitted] = {}
        self.bytes_in = 0
        self.bytes_out = 0

    async def admit(self, target: Target, scheme: Scheme, method: str = "", secrets: tuple[str, ...] = ()) -> Admitted:
        """Judge, record, resolve, check, connect. Raises Refused, RecordError."""
        request = NetworkRequest(
            host=target.host, port=target.port, scheme=scheme, method=method[:32], private=is_private(target.host)
        )
        decision = self._decider.decide(request)
        self._count += 1
        number = f"n{self._count}"
        if decision.effect is not Effect.ALLOW:
            reason = decision.reason or "no rule allows it"
            await self._note_refusal(number, request, reason, decision.rules)
            raise Refused(reason)
        if self._recorded >= MAX_RECORDED:
            await self._note_refusal(number, request, "too many connections", ())
            raise Refused(f"this run made {MAX_RECORDED} connections: no more are recorded, so no more are made")
        self._recorded += 1
        # SECURITY: on disk before the name is looked up: a name can carry data (test_egress_gate).
        attempt = self._describe(
            number, request, allowed=True, reason=decision.reason, rules=decision.rules, secrets=secrets
        )
        await self._record.append_async(attempt, source=Source.ORCHESTRATOR)
        began_at = time.monotonic()
        try:
            sock, address = await self._dialer.connect(target)
        except Refused as refused:
            _count(self._refused, target)
            await self._end(ConnectionEnded(connection=number, outcome=refused.outcome, reason=refused.reason))
            raise
        except asyncio.CancelledError:
            await self._end(ConnectionEnded(connection=number, outcome="over"))
            raise
        _count(self._reached, target)
        admitted = self._open[number] = Admitted(number, request, sock, address, began_at)
        if (task := asyncio.current_task()) is not None:
            admitted.cut = task.cancel
        if self._decider.decide(request).effect is not Effect.ALLOW:  # the rules changed meanwhile
            sock.close()
            admitted.ending = "revoked"
            await self.finish(admitted)
            raise Refused("the rules have changed")
        return admitted

    async def note_forward(self, port: int) -> Admitted:
        """A connection from the host to a port of the box: nobody judges it but the person who asked for it."""
        self._count += 1
        number = f"n{self._count}"
        request = NetworkRequest(host="127.0.0.1", port=port, scheme=Scheme.FORWARD)
        payload = self._describe(number, request, allowed=True, reason="forwarded by the user")
        await self._record.append_async(payload, source=Source.ORCHESTRATOR, durable=False)
        admitted = self._open[number] = Admitted(number, request, None, "127.0.0.1")
        return admitted

    async def finish(self, admitted: Admitted) -> None:
        """Say what went through. Once for each connection that was let through."""
        if self._open.pop(admitted.id, None) is None:
            return
        self.bytes_in += admitted.bytes_in
        self.bytes_out += admitted.bytes_out
        await self._end(
            ConnectionEnded(
                connection=admitted.id,
                address=admitted.address,
                bytes_in=admitted.bytes_in,
                bytes_out=admitted.bytes_out,
                duration_s=round(time.monotonic() - admitted.began_at, 3),
                outcome=admitted.ending,
            )
        )

    def judge_again(self) -> int:
        """The rules have changed: end what they no longer allow. Returns how many that were."""
        judged = [one for one in self._open.values() if one.request.scheme is not Scheme.FORWARD]
        cut = [one for one in judged if self._decider.decide(one.request).effect is not Effect.ALLOW]
        for admitted in cut:
            admitted.ending = "revoked"
            admitted.cut()
        return len(cut)

    def report(self) -> NetworkReport:
        bytes_in, bytes_out = self.count_bytes()
        return NetworkReport(
            tuple(self._reached.most_common()), tuple(self._refused.most_common()), bytes_in, bytes_out
        )

    def count_bytes(self) -> tuple[int, int]:
        """Into the box and out of it, by connections that are open, too."""
        still = self._open.values()
        return (
            self.bytes_in + sum(one.bytes_in for one in still),
            self.bytes_out + sum(one.bytes_out for one in still),
        )

    async def close(self) -> None:
        """The run is over: say what was only counted."""
        if self._unrecorded:
            count, self._unrecorded = self._unrecorded, 0
            reason = "refused connections like earlier ones, counted only"
            guard = GuardTripped(guard="network_refusals", action="refuse", reason=reason, count=count)
            await self._record.append_async(guard, durable=False)

    async def _note_refusal(self, number: str, request: NetworkRequest, reason: str, rules: tuple[str, ...]) -> None:
        """Record a refusal; one that repeats itself, or comes too late for the record, is only counted."""
        _count(self._refused, Target(request.host, request.port))
        key = (request.host, request.port, reason)
        if self._recorded >= MAX_RECORDED or self._refusals[key] >= _SAME_REFUSALS:
            self._unrecorded += 1
            return
        self._refusals[key] += 1
        self._recorded += 1
        payload = self._describe(number, request, allowed=False, reason=reason, rules=rules)
        await self._record.append_async(payload, source=Source.ORCHESTRATOR, durable=False)

    def _describe(self, number: str, request: NetworkRequest, **more: object) -> ConnectionAttempted:
        facts = {"connection": number, **request.model_dump(mode="json", exclude={"private"}), **more}
        facts |= {"phase": self._decider.phase, "outcome": "attempted" if more["allowed"] else "refused"}
        return ConnectionAttempted.model_validate(facts)

    async def _end(self, ended: ConnectionEnded) -> None:
        await self._record.append_async(ended, source=Source.ORCHESTRATOR, durable=False)


def _count(tally: Counter[str], target: Target) -> None:
    """Once more; a box that makes up names all the time does not fill our memory with them."""
    name = str(target)
    if name in tally or len(tally) < _MAX_TALLIED:
        tally[name] += 1
