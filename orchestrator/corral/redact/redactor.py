"""The one thing that masks: for whatever leaves towards a model, a record, a screen or an export.

A placeholder says the kind, the name and the number of what it stands for, and a number of this run that the box has no
way to know before: `[secret:github-token#2~583201]`. The same value has the same placeholder throughout a run.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from corral.redact.form import spell_out
from corral.redact.scan import Scanner, Span
from corral.redact.stream import Stream

MAX_NUMBERED = 10_000
"""Different values that get a number of their own; a box may print any number of them."""


class Redactor:
    """Knows the secrets of one run by value, and the rest by its looks. Safe to use from several threads."""

    def __init__(
        self,
        values: Iterable[tuple[str, str]] = (),
        *,
        keys: bool = True,
        numbers: bool = True,
        mark: int | None = None,
    ) -> None:
        """`values` are pairs of name and value. `keys` and `numbers`: whether to look for key families and for personal
        numbers. `mark` is the number of this run; drawn when it is not given."""
        self._values = tuple(dict.fromkeys(values))
        self._keys = keys
        self._numbers = numbers
        self.mark = f"~{secrets.randbelow(10**6) if mark is None else mark:06d}]"
        self._lock = threading.Lock()
        self._numbered: dict[bytes, bytes] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self.count = 0
        """How many were masked so far."""

    @cached_property
    def _scanner(self) -> Scanner:
        needles = [needle for name, value in self._values for needle in spell_out(name, value)]
        return Scanner(needles, keys=self._keys, numbers=self._numbers)

    def text(self, text: str) -> str:
        """`text` with everything masked; the same object when there is nothing."""
        if len(text) < 8:
            return text
        # Half a surrogate pair is settled later, by whoever writes the text.
        data = text.encode("utf-8", "surrogatepass")
        spans = self._scanner.find(data)
        return self._replace(data, spans).decode("utf-8", "surrogatepass") if spans else text

    def data(self, data: bytes) -> bytes:
        """The same for bytes."""
        spans = self._scanner.find(data)
        return self._replace(data, spans) if spans else data

    def find(self, data: bytes) -> list[Span]:
        """What would be masked."""
        return self._scanner.find(data)

    def stream(self) -> Stream:
        """A stream of its own, to be masked piece by piece."""
        return Stream(self._scanner, self._place)

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it masked, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.value, value)) if type(value) in (list, tuple) else [*map(self.value, value)]
        return value

    def holds_placeholder(self, value: Any) -> bool:
        """Whether a placeholder of this run stands anywhere in a JSON value."""
        if isinstance(value, str):
            return self.mark in value
        if isinstance(value, Mapping):
            return any(self.holds_placeholder(part) for item in value.items() for part in item)
        return isinstance(value, list | tuple) and any(map(self.holds_placeholder, value))

    def _replace(self, data: bytes, spans: list[Span]) -> bytes:
        view = memoryview(data)  # no copy of what stays, before the one that joins it
        parts: list[bytes | memoryview] = []
        place = 0
        for span in spans:
            parts += (view[place : span.start], self._place(span, data[span.start : span.end]))
            place = span.end
        parts.append(view[place:])
        return b"".join(parts)

    def _place(self, span: Span, value: bytes) -> bytes:
        """What stands for this value from now on."""
        # Kept as a digest: a run that masks much does not collect what it masks.
        identity = b"known" if span.known else b"found" + value
        key = hashlib.sha256(b"\0".join((span.kind.encode(), span.name.encode(), identity))).digest()
        with self._lock:
            self.count += 1
            if (known := self._numbered.get(key)) is not None:
                return known
            kind = (span.kind, span.name)
            if len(self._numbered) >= MAX_NUMBERED:
                return f"[{span.kind}:{span.name}#more{self.mark}".encode()
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            placeholder = f"[{span.kind}:{span.name}#{number}{self.mark}".encode()
            self._numbered[key] = placeholder
            return placeholder
