"""Where secrets and personal data stand in a piece of text: values that are known, key families, private keys, numbers.

Two automata find the known values and the literals that rules hang on, in one pass each; only what they point at is
looked at closely. All of it is linear in the length of the text, whatever the text is.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from corral.redact import pem, personal
from corral.redact.form import Needle, cut_pieces
from corral.redact.rule import RULES, Rule

CONTEXT = 128
"""Bytes before a place that may decide about it."""
_NEAR = 64
"""From a literal to the value that it announces, at most."""
_ESCAPE_BEFORE = re.compile(rb"(?:\\[nrtbf]|\\u00[0-9a-fA-F]{2}|%[0-9A-Fa-f]{2}|\[[0-9;]{1,20}m)\Z")
_LINE_ENDS = b"\r\n"


class Span(NamedTuple):
    """Something to mask, in bytes of the text. `kind` is secret or personal."""

    start: int
    end: int
    kind: str
    name: str
    known: bool = False
    """By its value; the same one in whatever form it stands there."""


class Scan(NamedTuple):
    """`spans` are apart from each other and in order; before `exact` and `sure` what follows the text changes nothing,
    for known values and for everything else."""

    spans: list[Span]
    exact: int
    sure: int


class _Literals(NamedTuple):
    automaton: BytesAhoCorasick
    rules: tuple[tuple[int, Rule | None], ...]
    prefixes: dict[bytes, bool]
    """Beginnings of literals, and whether one of them may follow a letter."""
    longest: int


@lru_cache(maxsize=1)
def _literals() -> _Literals:
    found: list[tuple[str, int, Rule | None]] = [(pem.LITERAL, -1, None)]
    found += [(literal, number, rule) for number, rule in enumerate(RULES) for literal in rule.literals]
    prefixes: dict[bytes, bool] = {}
    for text, _, rule in found:
        for length in range(1, len(text)):
            part = text[:length].encode()
            prefixes[part] = prefixes.get(part, False) or rule is None or rule.glued
    automaton = BytesAhoCorasick([text.encode() for text, _, _ in found], MatchKind.LeftmostLongest)
    rules = tuple((number, rule) for _, number, rule in found)
    return _Literals(automaton, rules, prefixes, max(len(text) for text, _, _ in found))


class Scanner:
    """Looks for these needles, and with `keys` and `numbers` for what is known by its looks."""

    def __init__(self, needles: Iterable[Needle] = (), *, keys: bool = True, numbers: bool = True) -> None:
        self._needles = tuple({needle.data: needle for needle in needles}.values())
        self._keys = keys
        self._numbers = numbers
        pieces = [piece for needle in self._needles if needle.is_base64 for piece in cut_pieces(needle)]
        whole = [needle.data for needle in self._needles]
        self._pieces_from = len(whole)
        self._longest = max(map(len, whole), default=0)
        self._automaton = BytesAhoCorasick([*whole, *pieces], MatchKind.LeftmostLongest) if whole else None

    def find(self, data: bytes) -> list[Span]:
        """All of it, in a text that is whole."""
        # On the path of every call: nearly always there is nothing.
        exact = self._find_exact(data) if self._automaton is not None else ()
        keys = self._find_keys(data, final=True)[0] if self._keys else ()
        numbers = self._find_numbers(data) if self._numbers else ()
        return _merge([*exact, *keys, *numbers]) if exact or keys or numbers else []

    def scan(self, data: bytes) -> Scan:
        """What is in a text that goes on, as far as that is certain."""
        exact, sure = len(data), len(data)
        spans: list[Span] = []
        if self._automaton is not None:
            spans += self._find_exact(data)
            exact -= max(self._hold_exact(data), self._hold_wrapped(data))
        if self._keys:
            keys, sure = self._find_keys(data, final=False)
            spans += keys
            sure = min(sure, len(data) - _hold_literal(data))
        if self._numbers:
            spans += self._find_numbers(data)
            sure = min(sure, len(data) - _hold_number(data))
        return Scan(_merge(spans), exact, min(sure, exact))

    def _find_exact(self, data: bytes) -> list[Span]:
        assert self._automaton is not None
        hits = self._automaton.find_matches_as_indexes(data)
        if not hits:
            return []
        # Values that overlap, or of which one holds another: looked for where there is one at all, in a slower pass.
        spans = [
            _known(self._needles[index], base + start, base + end)
            for base, part in _around(data, hits, self._longest)
            for index, start, end in self._overlapping.find_matches_as_indexes(part, overlapping=True)
        ]
        wrapped = any(index >= self._pieces_from for index, _, _ in hits)
        return [*spans, *self._find_wrapped(data)] if wrapped else spans

    @cached_property
    def _overlapping(self) -> BytesAhoCorasick:
        return BytesAhoCorasick([needle.data for needle in self._needles], MatchKind.Standard)

    @cached_property
    def _base64(self) -> tuple[list[Needle], BytesAhoCorasick]:
        needles = [needle for needle in self._needles if needle.is_base64]
        return needles, BytesAhoCorasick([needle.data for needle in needles], MatchKind.Standard)

    def _find_wrapped(self, data: bytes) -> Iterator[Span]:
        """Base64 with line ends in it."""
        needles, automaton = self._base64
        joined = data.translate(None, _LINE_ENDS)
        if len(joined) == len(data):
            return
        hits = automaton.find_matches_as_indexes(joined, overlapping=True)
        if not hits:
            return
        # Places of `joined` at which line ends were taken out, and how many up to there.
        places, removed = [0], [0]
        for match in re.finditer(rb"[\r\n]++", data):
            places.append(match.start() - removed[-1])
            removed.append(removed[-1] + len(match[0]))
        for index, start, end in hits:
            first = start + removed[bisect.bisect_right(places, start) - 1]
            last = end - 1 + removed[bisect.bisect_right(places, end - 1) - 1]
            yield _known(needles[index], first, last + 1)

    def _find_keys(self, data: bytes, *, final: bool) -> tuple[list[Span], int]:
        """The spans, and from where on more text could make another of it."""
        literals = _literals()
        spans: list[Span] = []
        sure = len(data)
        done: dict[int, int] = {}  # by rule: before this place there is nothing more to find
        for index, start, end in literals.automaton.find_matches_as_indexes(data):
            number, rule = literals.rules[index]
            if start < done.get(number, 0) and (rule is None or not rule.rest or end < done[number] - _NEAR):
                continue  # or a text of nothing but beginnings would take the square of its length
            if rule is None:
                stop = pem.match_key(data, start, final=final)
                if stop == -1:
                    sure = min(sure, start)
                elif stop is not None:
                    spans.append(Span(start, stop, "secret", pem.NAME))
                done[number] = stop or end
                continue
            if not rule.glued and not _starts_word(data, start):
                continue
            if not final and _is_open(rule, data, end):
                sure = min(sure, start)
            span, done[number] = _match(rule, data, start, end)
            if span is not None:
                spans.append(span)
        return spans, sure

    def _find_numbers(self, data: bytes) -> list[Span]:
        return [Span(start, end, "personal", name) for start, end, name in personal.find_numbers(data)]

    def _hold_exact(self, data: bytes) -> int:
        return max((_overlap(data, needle.data) for needle in self._needles), default=0)

    def _hold_wrapped(self, data: bytes) -> int:
        """The same for Base64 that goes on over a line end."""
        longest = max((len(needle.data) for needle in self._needles if needle.is_base64), default=0)
        tail = data[-2 * longest :]
        joined = tail.translate(None, _LINE_ENDS)
        if len(joined) == len(tail):
            return 0
        held = max((_overlap(joined, needle.data) for needle in self._needles if needle.is_base64), default=0)
        if held == 0:
            return 0
        place, seen = len(tail), 0
        while seen < held:
            place -= 1
            seen += tail[place] not in _LINE_ENDS
        return len(tail) - place


def _match(rule: Rule, data: bytes, start: int, end: int) -> tuple[Span | None, int]:
    """The secret at this literal, if it is one; and up to where this rule has nothing more to find."""
    run = rule.run_pattern.match(data, end)
    stop = run.end() if run else end
    length = stop - end
    if length < rule.least or (rule.most is not None and (length > rule.most or _is_word(data, stop))):
        return None, stop
    first = start
    if rule.rest_pattern is not None:
        rest = rule.rest_pattern.match(data, stop)
        if rest is None:
            return None, stop
        first, stop = rest.span("v") if "v" in rule.rest_pattern.groupindex else (start, rest.end())
    if rule.before_pattern and not rule.before_pattern.search(data, max(0, start - CONTEXT), start):
        return None, stop
    value = data[first:stop]
    if rule.digits and sum(map(value.count, _DIGITS)) < rule.digits:
        return None, stop
    if rule.mixed and not _is_mixed(value, data[stop : stop + 1]):
        return None, stop
    return Span(first, stop, "secret", rule.name), stop


_DIGITS = tuple(b"%d" % digit for digit in range(10))


def _is_mixed(value: bytes, after: bytes) -> bool:
    """Letters and at least two digits, and no call or index: what is made by a program, not a name in one."""
    digits = sum(map(value.count, _DIGITS))
    return 2 <= digits < len(value) and after not in (b"(", b"[")


def _is_open(rule: Rule, data: bytes, end: int) -> bool:
    """Whether the text ends while this rule still reads."""
    found = rule.scope_pattern.match(data, end)
    return found is not None and found.end() == len(data)


def _is_word(data: bytes, place: int) -> bool:
    return data[place : place + 1].isalnum()


def _starts_word(data: bytes, start: int) -> bool:
    """Whether no letter or digit stands before, other than that of an escape: `\\n`, `%3D`, a colour."""
    if not start or not data[start - 1 : start].isalnum():
        return True
    return _ESCAPE_BEFORE.search(data, max(0, start - 24), start) is not None


def _around(data: bytes, hits: Iterable[tuple[int, int, int]], reach: int) -> Iterator[tuple[int, bytes]]:
    """The parts of `data` that are near a hit, each with its place; apart from each other."""
    first, last = 0, 0
    for _, start, end in hits:
        if start - reach > last:
            if last:
                yield first, data[first:last]
            first = start - reach
        last = end + reach
    yield first, data[first:last]


def _known(needle: Needle, start: int, end: int) -> Span:
    return Span(start, end, "secret", needle.name, known=True)


def _merge(spans: list[Span]) -> list[Span]:
    """In order; those that touch the same bytes become one, named after the first."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            if span.end > last.end:
                merged[-1] = last._replace(end=span.end)
        else:
            merged.append(span)
    return merged


def _overlap(data: bytes, needle: bytes) -> int:
    """How much of `needle` stands at the end of `data`, if not all of it."""
    base = max(0, len(data) - len(needle) + 1)
    place = data.find(needle[:4], base)
    while place >= 0:
        if needle.startswith(data[place:]):
            return len(data) - place
        place = data.find(needle[:4], place + 1)
    return next((length for length in (3, 2, 1) if length < len(needle) and data.endswith(needle[:length])), 0)


def _hold_literal(data: bytes) -> int:
    literals = _literals()
    for length in range(min(literals.longest - 1, len(data)), 0, -1):
        glued = literals.prefixes.get(data[-length:])
        if glued or (glued is not None and _starts_word(data, len(data) - length)):
            return length
    return 0


def _hold_number(data: bytes) -> int:
    """The digits at the end, with the marks and capitals that may belong to them."""
    text = data[:-1] if data.endswith(b"x") else data
    held = len(text) - len(text.rstrip(personal.RUN))
    tail = text[len(text) - held :]
    if any(map(tail.count, _DIGITS)):
        return held + len(data) - len(text)
    # The country of an account, the + of a phone.
    return min(held, 2) if tail[-1:].isupper() or tail.endswith((b"+", b"(")) else 0
