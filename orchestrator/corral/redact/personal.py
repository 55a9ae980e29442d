"""Phone, card and identity numbers: by their grouping first, which is cheap, and then by check digits and known ranges.

A candidate is a run of digits and the marks people put between them. What can be in it depends on where its digits and
marks stand, its shape, and shapes repeat: a log has thousands of lines and a dozen shapes. So shapes are looked up, and
only a shape that fits is looked at closely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from corral.redact.checksum import cpf_br, luhn, mod97, nir_fr, resident_cn, rrn_kr, verhoeff

CANDIDATE = re.compile(rb"[0-9][0-9 ().-]{7,}+")
RUN = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ+ ().-"
"""What a number may still grow by, at the end of a piece of text."""

_MARKS = b" ().-"
_SHAPE = bytes(0x30 if chr(code).isdigit() else code for code in range(128)) + bytes(range(128, 256))
_MAX_SHAPE = 64
_ESCAPE_BEFORE = re.compile(rb"(?:\\[nrt]|%[0-9A-Fa-f]{2})\Z")
_RESIDENT_X = re.compile(rb"(?<![0-9.-])[0-9]{17}\Z")
_PHONE = re.compile(rb"[0-9](?:[ ().-]{0,3}[0-9]){7,14}(?![0-9])")
_AREA_IN_BRACKETS = re.compile(rb"\([0-9]{3}\) ?[0-9]{3}-[0-9]{4}(?![0-9])")

_IBAN = re.compile(rb"(?<![0-9A-Za-z_])[A-Z]{2}[0-9]{2}(?: ?[0-9A-Z]{4}){2,7}+(?: ?[0-9A-Z]{1,3})?(?![0-9A-Za-z_])")
_IBAN_BEFORE, _IBAN_AFTER = 24, 40
_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15,
    "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24, "SI": 19,
    "SK": 24, "SM": 27, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip
"""ISO 13616 registry."""

_COUNTRY_CODES = re.compile(
    "7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]"  # of one and two digits
    "|2[1-69]|3[578]|42|50|59|6[789]|8[0578]|9[679]"  # the beginnings of those of three
)
"""ITU-T E.164, without 1."""


class Found(NamedTuple):
    """A number of somebody's, in bytes of the text."""

    start: int
    end: int
    name: str


class _Check(NamedTuple):
    name: str
    shape: re.Pattern[bytes]
    holds: Callable[[str], bool]


def find_numbers(data: bytes) -> Iterator[Found]:
    """Every phone, card, account and identity number in `data`."""
    for match in CANDIDATE.finditer(data):
        text = match[0].rstrip(_MARKS)
        start = match.start()
        end = start + len(text)
        before = data[start - 1 : start] if start else b""
        if before.isupper() or (before == b" " and data[max(0, start - 4) : start].rstrip(b" ")[-1:].isupper()):
            yield from _find_account(data, start, end)
        phone = _PHONE.match(data, start, end) if before == b"+" else None
        if phone is not None and is_phone(phone[0]):
            yield Found(start - 1, phone.end(), "phone")
        yield from _find_grouped(data, text, start)
        yield from _find_odd(data, text, start)


def _may_begin(data: bytes, start: int) -> bool:
    """Not in hexadecimal, in a decimal fraction, in a name; but after an escape, such as the n of `\\n`."""
    before = data[start - 1 : start] if start else b""
    if before.isalnum():
        return _ESCAPE_BEFORE.search(data, max(0, start - 3), start) is not None
    return before not in (b"-", b"_", b".")


def _find_grouped(data: bytes, text: bytes, start: int) -> Iterator[Found]:
    """What its grouping gives away."""
    after = data[start + len(text) : start + len(text) + 1]
    shape = text.translate(_SHAPE)
    for check, first, last in _places(shape) if len(shape) <= _MAX_SHAPE else _find_places(shape):
        if first == 0 and not _may_begin(data, start):
            continue
        if last == len(text) and (after.isalnum() or after == b"_"):
            continue
        if check.holds(text[first:last].decode()):
            yield Found(start + first, start + last, check.name)


def _find_odd(data: bytes, text: bytes, start: int) -> Iterator[Found]:
    """What has something else than digits and marks in it, or around it."""
    end = start + len(text)
    ends_in_x = data[end : end + 1] in (b"X", b"x") and not data[end + 1 : end + 2].isalnum()
    whole = len(text) > 17 or _may_begin(data, start)
    if ends_in_x and whole and _RESIDENT_X.search(text) and resident_cn(text[-17:].decode() + "X"):
        yield Found(end - 17, end + 1, "identity")
    for area in _AREA_IN_BRACKETS.finditer(data, max(0, start - 1), end):
        if _is_north_american(_digits(area[0].decode())):
            yield Found(area.start(), area.end(), "phone")


@lru_cache(maxsize=512)
def _places(shape: bytes) -> tuple[tuple[_Check, int, int], ...]:
    return tuple(_find_places(shape))


def _find_places(shape: bytes) -> Iterator[tuple[_Check, int, int]]:
    for check in _CHECKS:
        for match in check.shape.finditer(shape):
            yield check, *match.span("number")


def _digits(text: str) -> str:
    return "".join(char for char in text if char.isdigit())


# Issuers' ranges, and how long their numbers are (ISO/IEC 7812).
_CARDS: tuple[tuple[re.Pattern[str], tuple[int, ...]], ...] = (
    (re.compile("4"), (13, 16, 19)),
    (re.compile("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), (16,)),
    (re.compile("3[47]"), (15,)),
    (re.compile("30[0-5]|3[689]"), (14,)),
    (re.compile("35(2[89]|[3-8])"), (16,)),
    (re.compile("6011|64[4-9]|65"), (16,)),
    (re.compile("62"), (16, 17, 18, 19)),
    (re.compile("220[0-4]"), (16,)),
)


def _is_card(text: str) -> bool:
    digits = _digits(text)
    known = any(len(digits) in lengths and issuer.match(digits) for issuer, lengths in _CARDS)
    return known and len(set(digits)) > 1 and luhn(digits)


_MOBILE_CN = re.compile(r"1(3[0-9]|4[5-9]|5[0-35-9]|6[2567]|7[0-8]|8[0-9]|9[0-35-9])[0-9]{8}")


def _is_mobile_cn(text: str) -> bool:
    digits = _digits(text)
    # 16 GiB is 17179869184 bytes: what divides by 1,024 is a size.
    return _MOBILE_CN.fullmatch(digits) is not None and int(digits) % 1024 != 0


def _is_north_american(digits: str) -> bool:
    return len(digits) == 10 and digits[0] in "23456789" and digits[3] in "23456789" and digits[1:3] != "11"


def is_phone(text: bytes) -> bool:
    """What follows a `+`: a country's code, and as many digits as its numbers have (E.164)."""
    groups = re.split(r"[ ().-]+", text.decode())
    digits = "".join(groups)
    if not 9 <= len(digits) <= 15 or len(groups) > 7 or any(len(group) < 2 and group != "0" for group in groups[1:]):
        return False
    if digits[0] == "1":
        return len(digits) == 11 and _is_north_american(digits[1:])
    return _COUNTRY_CODES.match(digits) is not None


def _is_social_us(text: str) -> bool:
    """SSA: no area 000, 666, 9xx, no group 00, no serial 0000; and none of those printed in advertisements."""
    area, group, serial = text.split("-")
    known_fake = text in ("078-05-1120", "219-09-9999", "123-45-6789")
    return not (area in ("000", "666") or area[0] == "9" or group == "00" or serial == "0000" or known_fake)


def _find_account(data: bytes, start: int, end: int) -> Iterator[Found]:
    for match in _IBAN.finditer(data, max(0, start - _IBAN_BEFORE), min(len(data), end + _IBAN_AFTER)):
        text = match[0].replace(b" ", b"").decode()
        # The pattern may have taken a following word in capitals for its last group.
        length = _IBAN_LENGTHS.get(text[:2], 0)
        if len(text) >= length > 0 and mod97(text[:length]):
            yield Found(match.start(), match.start() + _reach(match[0], length), "account")


def _reach(spelled: bytes, length: int) -> int:
    """How many bytes of the spelling hold that many characters other than spaces."""
    seen = 0
    for place, char in enumerate(spelled):
        seen += char != 0x20
        if seen == length:
            return place + 1
    return len(spelled)


def _shape(pattern: str) -> re.Pattern[bytes]:
    # Found by looking ahead: in a row of groups a number may begin with any of them.
    return re.compile(rf"(?<![0.-])(?=(?P<number>{pattern})(?!0|[.-]0))".encode())


_CHECKS = (
    _Check("card", _shape("0{13,19}"), _is_card),
    _Check("card", _shape("0{4}(?P<mark>[ -])0{4}(?P=mark)0{4}(?P=mark)0{4}"), _is_card),
    _Check("card", _shape("0{4}(?P<mark>[ -])0{4}(?P=mark)0{4}(?P=mark)0{4}(?P=mark)0{3}"), _is_card),
    _Check("card", _shape("0{4}(?P<mark>[ -])0{6}(?P=mark)0{4,5}"), _is_card),
    _Check("identity", _shape("0{18}"), resident_cn),
    _Check("identity", _shape("000-00-0000"), _is_social_us),
    _Check("identity", _shape(r"000\.000\.000-00"), lambda text: cpf_br(_digits(text))),
    _Check("identity", _shape("0{4} 0{4} 0{4}"), lambda text: text[0] in "23456789" and verhoeff(_digits(text))),
    _Check("identity", _shape("0 00 00 00 000 000 00"), lambda text: nir_fr(_digits(text))),
    _Check("identity", _shape("0{6}-0{7}"), lambda text: rrn_kr(_digits(text))),
    _Check("phone", _shape("0{11}|000(?P<mark>[ -])0000(?P=mark)0000"), _is_mobile_cn),
    _Check("phone", _shape("000-000-0000"), lambda text: _is_north_american(_digits(text))),
)
