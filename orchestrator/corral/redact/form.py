"""The forms in which a value that we know may turn up: as it is, in Base64, hexadecimal, a URL, JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_from_bytes, quote_plus

MIN_VALUE = 8
"""A shorter one cannot be told from ordinary text."""
MAX_VALUE = 16 << 10
_MIN_LINE = 12
_WHOLE = 64
_PIECE = 24


class Needle(NamedTuple):
    """What to look for, and which secret it gives away."""

    name: str
    data: bytes
    is_base64: bool = False


def spell_out(name: str, value: str) -> Iterator[Needle]:
    """Every form of `value`. One that has several lines is known by its long lines, too."""
    values = [value, *(line.strip() for line in value.splitlines() if len(line.strip()) >= _MIN_LINE)]
    for one in dict.fromkeys(values):
        raw = one.encode("utf-8", "surrogatepass")[:MAX_VALUE]
        if len(raw) >= MIN_VALUE:
            yield from _spell(name, raw)


def _spell(name: str, raw: bytes) -> Iterator[Needle]:
    text = raw.decode("utf-8", "replace")
    quoted = quote_from_bytes(raw, safe="")
    plain = {
        raw,
        *(form.encode() for form in (quoted, quote(text), quote_plus(text), quote(text, safe="/:@=+,;$!*'()~"))),
        *(_lower_escapes(form).encode() for form in (quoted, quote_plus(text))),
        *(json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "replace") for ascii_only in (True, False)),
        json.dumps(text)[1:-1].replace("/", "\\/").encode(),
        raw.hex().encode(),
        raw.hex().upper().encode(),
    }
    for form in sorted(plain):
        yield Needle(name, form)
    yield from _spell_base64(name, raw)


def _lower_escapes(quoted: str) -> str:
    first, *rest = quoted.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _spell_base64(name: str, raw: bytes) -> Iterator[Needle]:
    """As it stands in the Base64 of any text around it: three alignments, two alphabets."""
    seen = set[bytes]()
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw)
        # Only the characters that no neighbour has a part in: those at the ends, with two or four bits of it, are not
        # worth waiting for. 8 bits make 4/3 of a character.
        sure = coded[(0, 2, 3)[before] : 8 * (before + len(raw)) // 6]
        for form in (sure, sure.replace(b"+", b"-").replace(b"/", b"_")):
            if form not in seen:
                seen.add(form)
                yield Needle(name, form, is_base64=True)


def cut_pieces(needle: Needle) -> Iterator[bytes]:
    """Parts of a Base64 form of which one stays whole when a line ends somewhere within it."""
    size = len(needle.data)
    step = (size + 1) // 2 if size <= _WHOLE else _PIECE
    for start in range(0, size - step + 1, step):
        yield needle.data[start : start + step]
    if size <= _WHOLE:
        yield needle.data[size - size // 2 :]
