"""The HTTP proxy that programs in the box find on their loopback, spoken by the orchestrator.

CONNECT gives a tunnel of bytes; an absolute address one request, with an answer that ends the connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from corral.sandbox.channel.tunnel import BoxStream
from corral.sandbox.egress.dial import Refused
from corral.sandbox.egress.gate import Admitted, Gate
from corral.sandbox.egress.http.body import pass_body, read_body, read_to_end
from corral.sandbox.egress.http.head import (
    BadMessage,
    Buffered,
    Fields,
    Request,
    encode_head,
    find,
    find_body,
    parse_request,
    parse_response,
    strip_hops,
)
from corral.sandbox.egress.http.secret import Cleaner, Filled, Secret, put_in
from corral.sandbox.egress.outside import NotReached, Outside, open_outside
from corral.sandbox.egress.relay import IDLE_S, relay, run_directions
from corral.schema.network import Scheme
from corral.schema.target import BadTarget, Target, parse_target
from corral.schema.visible import visible

_PORTS = {Scheme.HTTP: 80, Scheme.HTTPS: 443}
_MAX_INTERIM = 10


@dataclass(frozen=True)
class Proxy:
    """What serving a connection needs."""

    gate: Gate
    secrets: Sequence[Secret] = ()
    tls: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context)
    idle_s: float = IDLE_S

    async def serve(self, box: BoxStream) -> None:
        """One connection to the proxy's port, from its first byte to its end. Raises OSError when the box gives it up,
        RecordError."""
        source = Buffered(box.read)
        try:
            head = await source.take_head()
            if head is None:
                box.close()
                return
            request = parse_request(head)
            if request.method == "CONNECT":
                await self._tunnel(box, source, request)
            else:
                await self._pass_request(box, source, request)
        except (BadMessage, BadTarget) as error:
            await _answer(box, 400, "Bad Request", f"this request is not passed on: {error}")
        except Refused as refused:
            status, words = (502, "Bad Gateway") if refused.has_failed else (403, "Forbidden")
            await _answer(box, status, words, refused.reason)

    async def _tunnel(self, box: BoxStream, source: Buffered, request: Request) -> None:
        admitted = await self.gate.admit(parse_target(request.target), Scheme.TUNNEL)
        try:
            async with open_outside(admitted) as outside:
                await box.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                if early := source.take_rest():
                    await outside.write(early)
                await relay(box, outside, idle_s=self.idle_s)
        finally:
            await self.gate.finish(admitted)

    async def _pass_request(self, box: BoxStream, source: Buffered, request: Request) -> None:
        scheme, target, path = _parse_address(request.target)
        known = [secret for secret in self.secrets if secret.is_for(target.host)]
        if known and scheme is Scheme.HTTP:
            # SECURITY: a secret never travels in the clear (test_egress_http).
            scheme, target = Scheme.HTTPS, Target(target.host, 443 if target.port == 80 else target.port)
        length = find_body(request.fields)
        fields, filled = put_in(strip_hops(request.fields), known)
        fields = [(key, value) for key, value in fields if key.lower() != "host"]
        if filled.names:
            # Compressed, a secret could not be seen in what comes back.
            fields = [(key, value) for key, value in fields if key.lower() not in ("accept-encoding", "range")]
            fields.append(("Accept-Encoding", "identity"))
        # SECURITY: the target that was judged is the one that is named: another Host would reach another site
        # of the same server (test_egress_http).
        fields = [("Host", _name_host(target, _PORTS[scheme])), *fields, ("Connection", "close")]
        head = encode_head(f"{request.method} {path} HTTP/1.{request.minor}", fields)
        admitted = await self.gate.admit(target, scheme, request.method, secrets=filled.names)
        try:
            await self._exchange(box, source, admitted, head, length, filled)
        finally:
            await self.gate.finish(admitted)

    async def _exchange(
        self, box: BoxStream, source: Buffered, admitted: Admitted, head: bytes, length: int | None, filled: Filled
    ) -> None:
        tls = self.tls() if admitted.request.scheme is Scheme.HTTPS else None
        try:
            async with open_outside(admitted, tls) as outside:
                await outside.write(head)
                back = _pass_answer(box, outside, admitted.request.method, filled)
                send = _pass_request_body(source, outside, length)
                await run_directions(send, back, box, outside, idle_s=self.idle_s, back_is_all=True)
        except NotReached as error:
            admitted.ending = "failed"
            raise Refused(f"no connection to {admitted.request.host}: {error}", has_failed=True) from None


async def _pass_request_body(source: Buffered, outside: Outside, length: int | None) -> None:
    try:
        await pass_body(source, outside.write, length)
    except BadMessage as error:
        raise EOFError(str(error)) from None


def _parse_address(text: str) -> tuple[Scheme, Target, str]:
    """An absolute address as scheme, target and what to ask the server for. Raises BadTarget."""
    name, separator, rest = text.partition("://")
    if not separator or name.lower() not in (Scheme.HTTP, Scheme.HTTPS):
        raise BadTarget("a proxy takes CONNECT, or an address with http:// or https://")
    scheme = Scheme(name.lower())
    cut = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    authority, path = rest[:cut], rest[cut:].partition("#")[0]
    if "@" in authority:
        raise BadTarget("an address with a user in it; send Authorization instead")
    return scheme, parse_target(authority, _PORTS[scheme]), path if path.startswith("/") else f"/{path}"


def _name_host(target: Target, usual_port: int) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == usual_port else f"{host}:{target.port}"


async def _pass_answer(box: BoxStream, outside: Outside, method: str, filled: Filled) -> None:
    """Pass on the answer to its end. It goes without chunks: a secret may lie across two, and the connection's end says
    how long it was. Raises EOFError when it breaks off."""
    source = Buffered(outside.read)
    try:
        status, fields = await _pass_heads(box, source, filled)
        is_empty = method == "HEAD" or status in (204, 304)
        length = 0 if is_empty else find_body(fields)
    except BadMessage as error:
        await _answer(box, 502, "Bad Gateway", f"the server's answer is not passed on: {error}")
        return
    is_open_ended = not is_empty and not find(fields, "content-length") and length is not None
    cleaner = Cleaner(filled)
    try:
        async for data in read_to_end(source) if is_open_ended else read_body(source, length):
            if clean := cleaner.feed(data):
                await box.write(clean)
    except BadMessage as error:
        raise EOFError(str(error)) from None
    if rest := cleaner.feed(b"", is_last=True):
        await box.write(rest)
    box.close()


async def _pass_heads(box: BoxStream, source: Buffered, filled: Filled) -> tuple[int, Fields]:
    """Interim answers, and the head of the one that counts. Raises BadMessage."""
    for _ in range(_MAX_INTERIM):
        head = await source.take_head(within_s=IDLE_S)
        status, words, fields = parse_response(head or b"")
        if status == 101:
            raise BadMessage("it changes the protocol")
        if status >= 200:
            _check_answer(fields, filled)
        shown = [(key, value) for key, value in strip_hops(fields) if key.lower() != "transfer-encoding"]
        if status >= 200:
            shown.append(("Connection", "close"))
        text = encode_head(f"HTTP/1.1 {status} {words}", shown)
        await box.write(Cleaner(filled).feed(text, is_last=True))
        if status >= 200:
            return status, fields
    raise BadMessage(f"over {_MAX_INTERIM} interim answers")


def _check_answer(fields: Fields, filled: Filled) -> None:
    """Raises BadMessage for an answer that is not passed on."""
    find_body(fields)
    # SECURITY: compressed against our word, an answer could show the secret to the box (test_egress_http).
    if filled.names and any(
        coding.strip().lower() not in ("", "identity") for coding in find(fields, "content-encoding")
    ):
        raise BadMessage("it is compressed, so a secret could not be seen in it")


async def _answer(box: BoxStream, status: int, words: str, reason: str) -> None:
    """Our own answer. The reason may hold what the box or a server said: one line of plain text."""
    text = f"corral: {visible(reason, limit=500)}\n".encode()
    fields: Fields = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(text))),
        ("Connection", "close"),
    ]
    await box.write(encode_head(f"HTTP/1.1 {status} {words}", fields) + text)
    box.close()
