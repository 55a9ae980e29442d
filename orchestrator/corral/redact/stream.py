"""A stream of bytes on its way to a screen, masked across the borders of its pieces; holds back as little as it can."""

from __future__ import annotations

from collections.abc import Callable

from corral.redact.scan import CONTEXT, Scanner, Span

MAX_HELD = 16 << 10
"""What waits at most for more to come; a private key of 16,384 bits fits. Known values wait for as long as they are."""


class Stream:
    """`feed` pieces, then `finish`. What comes out together is what masking the whole at once would give."""

    def __init__(self, scanner: Scanner, name: Callable[[Span, bytes], bytes]) -> None:
        self._scanner = scanner
        self._name = name
        self._before = b""  # the last bytes that went out, as they were: they decide what may begin after them
        self._held = b""

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """What may go on now."""
        text = self._before + self._held + bytes(data)
        found = self._scanner.scan(text)
        sure = found.sure
        spans = found.spans
        if len(text) - sure > MAX_HELD:
            # Nothing that is looked for by its looks is so long: it is judged as it is.
            sure, spans = found.exact, self._scanner.find(text)
        sure = max(sure, len(self._before))
        for span in spans:
            if span.start < sure < span.end:
                sure = max(span.start, len(self._before))
        return self._emit(text, sure, spans)

    def finish(self) -> bytes:
        """The rest."""
        text = self._before + self._held
        return self._emit(text, len(text), self._scanner.find(text))

    def _emit(self, text: bytes, sure: int, spans: list[Span]) -> bytes:
        place = len(self._before)
        parts: list[bytes] = []
        for span in spans:
            if place <= span.start and span.end <= sure:
                parts += (text[place : span.start], self._name(span, text[span.start : span.end]))
                place = span.end
        parts.append(text[place:sure])
        self._before, self._held = text[max(0, sure - CONTEXT) : sure], text[sure:]
        return b"".join(parts)
