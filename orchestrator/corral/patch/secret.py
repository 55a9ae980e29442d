"""Secrets and personal data in the lines that a patch adds. They are told, never masked: a patch is what it is."""

from __future__ import annotations

import bisect
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from corral.redact import Redactor

_PIECE = 1 << 20
"""So much is looked at at once: what a piece's border cuts is looked at twice."""
_OVERLAP = 16 << 10
_KEY_HEADER = re.compile(rb"-----BEGIN (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
"""Alone it is no key. But its lines may be among those that were there."""
_RANDOM = re.compile(rb"(?<![0-9A-Za-z_+/=-])[0-9A-Za-z_+/-]{32,512}+={0,2}(?![0-9A-Za-z_+/=-])")
_RANDOM_BITS = 4.6
"""Shannon's entropy of a character. Hexadecimal has at most 4: digests are no find; words and paths have less."""


class Found(NamedTuple):
    """In an added line: its offset in the patch, and what it is."""

    offset: int
    kind: str  # secret, personal or random
    text: str  # what may be shown of it


def find_secrets(data: bytes, start: int, end: int, redactor: Redactor) -> Iterator[Found]:
    """What the added lines of one hunk hold, in order."""
    offsets, places, size, lines = list[int](), list[int](), 0, list[bytes]()
    for offset, line in _added(data, start, end):
        offsets.append(offset)
        places.append(size)
        size += len(line) + 1
        lines.append(line)
    text = b"\n".join(lines)
    told = set[tuple[int, int]]()
    for begin in range(0, len(text), _PIECE):
        piece = text[begin : begin + _PIECE + _OVERLAP]
        spans = [(span.start, span.end, span.kind, span.name) for span in redactor.find(piece)]
        spans += [(*match.span(), "secret", "private-key") for match in _KEY_HEADER.finditer(piece)]
        spans += [(*match.span(), "random", "") for match in _RANDOM.finditer(piece) if _is_random(match[0])]
        masked_to = 0
        for first, last, kind, name in sorted(spans):
            if (begin + first, begin + last) in told or first < masked_to:
                continue
            told.add((begin + first, begin + last))
            masked_to = max(masked_to, last)
            offset = offsets[bisect.bisect_right(places, begin + first) - 1]
            yield Found(offset, kind, f"{name or 'looks random'} ({last - first} characters)")


def _added(data: bytes, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Offset and text of each added line."""
    place = start
    while place < end:
        stop = data.find(b"\n", place, end)
        stop = end if stop < 0 else stop
        if data[place : place + 1] == b"+":
            yield place, data[place + 1 : stop]
        place = stop + 1


def _is_random(text: bytes) -> bool:
    counts = Counter(text)
    bits = -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())
    return bits >= _RANDOM_BITS and any(0x30 <= char <= 0x39 for char in counts)
