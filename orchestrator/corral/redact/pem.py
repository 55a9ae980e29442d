"""Private keys in their armour, wherever they stand: a file, a listing with line numbers, a diff, a string of JSON."""

from __future__ import annotations

import re

LITERAL = "-----BEGIN "
NAME = "private-key"

_HEADER = re.compile(rb"-----BEGIN (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_HEADER_BYTES = 120
# Between the lines of a key: line ends, also as escapes; indentation, quotes, line numbers, the marks of a diff.
_BETWEEN = re.compile(
    rb"(?:\\{1,4}[nrt]|[ \t\r\n\"',|>]|(?<![0-9A-Za-z+/])[0-9]{1,6}[\t|:]|(?:(?<=\n)|(?<=\\n))(?:\+|-(?!----[^-])))*+"
)
_FIELD = re.compile(rb"(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash):[ -\[\]-~]{0,200}+")
_RUN = re.compile(rb"[0-9A-Za-z+/=]*+")
_FOOTER = re.compile(rb"-----END (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_FULL = 16
"""So long is a line of a key at least; only the last may be shorter."""


def match_key(data: bytes, start: int, *, final: bool) -> int | None:
    """The end of the key whose header begins at `start`, None when it is no key; -1 when that cannot be said yet."""
    header = _HEADER.match(data, start)
    if header is None:
        return -1 if not final and len(data) - start < _HEADER_BYTES and b"\n" not in data[start:] else None
    end, full = header.end(), 0
    while True:
        place = _skip(data, end)
        if footer := _FOOTER.match(data, place):
            return footer.end() if full else None
        length = _run(data, place) - place
        if not final and place + length >= len(data) - _HEADER_BYTES and _may_go_on(data, place + length):
            return -1
        if length == 0 or (length < _FULL and not full):
            return end if full else None
        end, full = place + length, full + 1
        if length < _FULL:
            # The last line. What follows is a footer, or the key was cut.
            place = _skip(data, end)
            footer = _FOOTER.match(data, place)
            return footer.end() if footer else end


def _skip(data: bytes, place: int) -> int:
    """Past what may stand between two lines, and the fields of old formats."""
    while True:
        between = _BETWEEN.match(data, place)
        assert between is not None  # it matches nothing, too
        field = _FIELD.match(data, between.end())
        if field is None:
            return between.end()
        place = field.end()


def _run(data: bytes, place: int) -> int:
    run = _RUN.match(data, place)
    assert run is not None  # it matches nothing, too
    return run.end()


def _may_go_on(data: bytes, place: int) -> bool:
    """Whether all that is left is what could stand before more of the key, or before the rest of its footer."""
    rest = _skip(data, place)
    return rest >= len(data) or data.startswith(b"-", rest) or data.startswith(b"\\", rest)
