"""Named secrets: the box has a placeholder, the orchestrator puts the secret in, per host and header, and takes it out
of what comes back.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from corral.sandbox.egress.http.head import Fields

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
MIN_SECRET = 8
"""A shorter one cannot be told from ordinary text, in an answer or in a request."""


def make_placeholder(length: int) -> str:
    """As long as the secret, so that an answer keeps its length when one is taken out."""
    text = "corral" + "".join(secrets.choice(_ALPHABET) for _ in range(max(length - 6, 6)))
    return text[: max(length, MIN_SECRET)]


@dataclass(frozen=True)
class Secret:
    """One secret, for as long as a run lives."""

    name: str
    hosts: frozenset[str]
    header: str  # lower case
    value: str = field(repr=False)
    placeholder: str

    def is_for(self, host: str) -> bool:
        return host in self.hosts


@dataclass(frozen=True)
class Filled:
    """What was put into a request: names for the record; what to look for in the answer, with what stands for it."""

    names: tuple[str, ...] = ()
    pairs: tuple[tuple[bytes, bytes], ...] = ()


def put_in(fields: Fields, known: Sequence[Secret]) -> tuple[Fields, Filled]:
    """The fields with each placeholder replaced where it stands in its own header."""
    names: dict[str, None] = {}
    pairs: list[tuple[bytes, bytes]] = []
    filled: Fields = []
    for key, value in fields:
        for secret in known:
            # SECURITY: in its own header only: elsewhere, in a path or a body, a server may show it to others
            # (test_egress_secret).
            if key.lower() != secret.header:
                continue
            changed = _replace(value, secret)
            if changed != value:
                names[secret.name] = None
                # The last word, too: of a Basic header it is the only form in which the secret is seen.
                last = tuple(text.rpartition(" ")[2].encode("latin-1") for text in (changed, value))
                pairs += [(last[0], last[1]), _pair(secret)]
                value = changed
        filled.append((key, value))
    return filled, Filled(tuple(names), tuple(pairs))


def _pair(secret: Secret) -> tuple[bytes, bytes]:
    old = secret.value.encode()
    return old, secret.placeholder.encode()[: len(old)]


def _replace(value: str, secret: Secret) -> str:
    scheme, _, rest = value.partition(" ")
    if scheme.lower() != "basic":
        return value.replace(secret.placeholder, secret.value)
    try:
        pair = base64.b64decode(rest.strip(), validate=True)
    except ValueError:  # not Base64, or not even ASCII
        return value
    filled = pair.replace(secret.placeholder.encode(), secret.value.encode())
    return value if filled == pair else f"{scheme} {base64.b64encode(filled).decode('ascii')}"


class Cleaner:
    """Takes secrets out of a stream of bytes, across the borders of its pieces. The length stays the same."""

    def __init__(self, filled: Filled) -> None:
        self._pairs = [(old, new) for old, new in filled.pairs if len(old) == len(new)]
        self._overlap = max((len(old) for old, _ in self._pairs), default=1) - 1
        self._held = b""

    def feed(self, data: bytes | bytearray, *, is_last: bool = False) -> bytes:
        """What may go on; the last bytes wait for what follows them."""
        text = self._held + data
        for old, new in self._pairs:
            text = text.replace(old, new)
        keep = 0 if is_last else min(self._overlap, len(text))
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]
