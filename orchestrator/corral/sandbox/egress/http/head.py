"""Heads of HTTP/1.x messages, read strictly: what can be read in two ways is refused. Pure, apart from the reader."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

MAX_HEAD = 32 << 10
MAX_FIELDS = 100
HEAD_S = 30.0

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/1\.([01])")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: ([\t -~\x80-\xff]*))?")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,18}")

Read = Callable[[], Awaitable[bytes | bytearray]]
Fields = list[tuple[str, str]]

HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "upgrade")
)


class BadMessage(ValueError):
    """Not a message that we pass on."""


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    minor: int
    """Of HTTP/1.x."""
    fields: Fields

    def find(self, name: str) -> list[str]:
        return find(self.fields, name)


def find(fields: Fields, name: str) -> list[str]:
    """Every value of a field, by its lower-case name."""
    return [value for key, value in fields if key.lower() == name]


class Buffered:
    """Bytes of one side, read by pieces and taken by need."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._held = bytearray()
        self.has_ended = False

    async def _more(self) -> bool:
        data = await self._read()
        self.has_ended = not data
        self._held += data
        return not self.has_ended

    async def take_some(self, most: int) -> bytes:
        """At least one byte and at most `most`; b"" at the end."""
        if not self._held:
            await self._more()
        taken = bytes(self._held[:most])
        del self._held[:most]
        return taken

    async def take(self, size: int) -> bytes:
        """Exactly so many. Raises BadMessage when it ends before."""
        while len(self._held) < size:
            if not await self._more():
                raise BadMessage("it ended in the middle")
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken

    async def take_line(self, most: int) -> bytes:
        """A line without its CRLF. Raises BadMessage."""
        line = await self._take_until(b"\r\n", most)
        if line is None:
            raise BadMessage("it ended in the middle")
        return line

    async def take_head(self, *, within_s: float = HEAD_S) -> bytes | None:
        """A head without the empty line at its end; None when there is none any more. Raises BadMessage."""
        try:
            async with asyncio.timeout(within_s):
                return await self._take_until(b"\r\n\r\n", MAX_HEAD)
        except TimeoutError:
            raise BadMessage(f"no whole head within {within_s:g} s") from None

    async def _take_until(self, mark: bytes, most: int) -> bytes | None:
        searched = 0
        while (at := self._held.find(mark, searched)) < 0:
            searched = max(len(self._held) - len(mark) + 1, 0)
            # SECURITY: a head without an end would grow for ever (test_egress_head).
            if len(self._held) > most:
                raise BadMessage(f"over {most} bytes")
            if not await self._more():
                if self._held:
                    raise BadMessage("it ended in the middle")
                return None
        if at > most:
            raise BadMessage(f"over {most} bytes")
        taken = bytes(self._held[:at])
        del self._held[: at + len(mark)]
        return taken

    def take_rest(self) -> bytes:
        """What was read and not yet taken."""
        taken = bytes(self._held)
        self._held.clear()
        return taken


def parse_request(head: bytes) -> Request:
    """Raises BadMessage."""
    first, *lines = head.split(b"\r\n")
    match = _REQUEST.fullmatch(first)
    if match is None:
        raise BadMessage("not a request of HTTP/1.x")
    return Request(match[1].decode("ascii"), match[2].decode("ascii"), int(match[3]), _parse_fields(lines))


def parse_response(head: bytes) -> tuple[int, str, Fields]:
    """Status, reason and fields. Raises BadMessage."""
    first, *lines = head.split(b"\r\n")
    match = _STATUS.fullmatch(first)
    if match is None:
        raise BadMessage("not an answer of HTTP/1.x")
    return int(match[1]), (match[2] or b"").decode("latin-1"), _parse_fields(lines)


def _parse_fields(lines: list[bytes]) -> Fields:
    if len(lines) > MAX_FIELDS:
        raise BadMessage(f"over {MAX_FIELDS} fields")
    fields = []
    for line in lines:
        # SECURITY: no folded line, no space before the colon, no bare CR, LF or NUL: each is a way to make two servers
        # read two requests (test_egress_head).
        match = _FIELD.fullmatch(line)
        if match is None:
            raise BadMessage("a field that is none")
        fields.append((match[1].decode("ascii"), match[2].decode("latin-1")))
    return fields


def find_body(fields: Fields) -> int | None:
    """Length of a request's body; None: it comes in chunks. Raises BadMessage when that can be read in two ways."""
    lengths, codings = find(fields, "content-length"), find(fields, "transfer-encoding")
    if codings:
        if lengths or len(codings) > 1 or codings[0].strip().lower() != "chunked":
            raise BadMessage("its length can be read in two ways")
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise BadMessage("its length can be read in two ways")
    return int(lengths[0])


def strip_hops(fields: Fields) -> Fields:
    """The fields that are not about this one connection."""
    named = {word.strip().lower() for value in find(fields, "connection") for word in value.split(",")}
    # A client must not be able to have a field removed that says how long the message is.
    named -= {"content-length", "transfer-encoding", "host"}
    return [(key, value) for key, value in fields if key.lower() not in HOP_BY_HOP | named]


def encode_head(first: str, fields: Fields) -> bytes:
    lines = [first, *(f"{key}: {value}" for key, value in fields), "", ""]
    return "\r\n".join(lines).encode("latin-1")
