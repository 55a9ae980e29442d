"""Check digits: what tells a card or identity number from any number. All take ASCII digits and are pure."""

from __future__ import annotations

_LUHN = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_CN_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CN_CHECK = "10X98765432"
_RRN_WEIGHTS = (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)
# Verhoeff: the dihedral group D5, and the permutation by place.
_D5 = (
    "0123456789",
    "1234067895",
    "2340178956",
    "3401289567",
    "4012395678",
    "5987604321",
    "6598710432",
    "7659821043",
    "8765932104",
    "9876543210",
)
_PLACES = (
    "0123456789",
    "1576283094",
    "5803796142",
    "8916043527",
    "9453126870",
    "4286573901",
    "2793806415",
    "7046913258",
)


def luhn(digits: str) -> bool:
    """ISO/IEC 7812: cards."""
    numbers = [int(digit) for digit in reversed(digits)]
    return (sum(numbers[::2]) + sum(_LUHN[number] for number in numbers[1::2])) % 10 == 0


def mod97(text: str) -> bool:
    """ISO 13616: an IBAN, without spaces."""
    moved = text[4:] + text[:4]
    return int("".join(str(int(char, 36)) for char in moved)) % 97 == 1


def resident_cn(text: str) -> bool:
    """GB 11643: 17 digits and a check character, with a birthday."""
    weighed = sum(weight * int(digit) for weight, digit in zip(_CN_WEIGHTS, text[:17], strict=True))
    return text[17].upper() == _CN_CHECK[weighed % 11] and is_date(text[6:14])


def cpf_br(digits: str) -> bool:
    """Receita Federal: two check digits; never eleven times the same."""
    if len(set(digits)) == 1:
        return False
    for length in (9, 10):
        weighed = sum((length + 1 - place) * int(digit) for place, digit in enumerate(digits[:length]))
        if weighed * 10 % 11 % 10 != int(digits[length]):
            return False
    return True


def verhoeff(digits: str) -> bool:
    """Aadhaar (UIDAI) numbers."""
    found = 0
    for place, digit in enumerate(reversed(digits)):
        found = int(_D5[found][int(_PLACES[place % 8][int(digit)])])
    return found == 0


def nir_fr(digits: str) -> bool:
    """INSEE: sex, year, month, place, order, and a key of two digits."""
    return digits[0] in "12" and 1 <= int(digits[3:5]) <= 12 and 97 - int(digits[:13]) % 97 == int(digits[13:])


def rrn_kr(digits: str) -> bool:
    """Korean resident registration number, as issued before October 2020."""
    weighed = sum(weight * int(digit) for weight, digit in zip(_RRN_WEIGHTS, digits[:12], strict=True))
    century = "19" if digits[6] in "1256" else "20"
    return (11 - weighed % 11) % 10 == int(digits[12]) and is_date(century + digits[:6])


def is_date(digits: str) -> bool:
    """Whether YYYYMMDD may be somebody's birthday."""
    return 1900 <= int(digits[:4]) <= 2099 and 1 <= int(digits[4:6]) <= 12 and 1 <= int(digits[6:]) <= 31
