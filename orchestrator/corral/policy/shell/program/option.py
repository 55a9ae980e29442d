"""Options of a program, cut off its operands as the program itself would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from corral.policy.shell.model import UNKNOWN_WORDS, Word


@dataclass(frozen=True, slots=True)
class Options:
    """Which options a program knows. Long ones may be shortened, as GNU's are."""

    flags: str = ""
    values: str = ""  # letters that take a value, attached or as the next word
    attached: str = ""  # letters whose value, if there is one, is attached
    long_flags: tuple[str, ...] = ()
    long_values: tuple[str, ...] = ()
    long_attached: tuple[str, ...] = ()
    plus: bool = False  # `+x` is an option, too
    digits: bool = False  # `-20` is one
    anywhere: bool = False  # also behind operands


@dataclass(slots=True)
class Parsed:
    """`options` in their order, `operands` the rest."""

    options: list[tuple[str, Word | None]] = field(default_factory=list)
    operands: list[Word] = field(default_factory=list)
    is_known: bool = True  # every option was one of those that are known, and every word before the operands is static

    def get(self, *names: str) -> list[Word]:
        return [value for name, value in self.options if name in names and value is not None]

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)


def parse_options(words: Sequence[Word], known: Options) -> Parsed:
    """Cut at the first operand, or collect operands from everywhere."""
    parsed = Parsed()
    left = iter(words)
    for word in left:
        text = word.text
        if text == "--":
            parsed.operands += left
        elif text is None or len(text) < 2 or not (text[0] == "-" or (known.plus and text[0] == "+")):
            if text is None and word.many:
                parsed.is_known = False
            parsed.operands.append(word)
            if not known.anywhere:
                parsed.operands += left
        elif text.startswith("--"):
            _parse_long(text[2:], left, known, parsed)
        elif known.digits and text[1:].isdigit():
            parsed.options.append((text, None))
        else:
            _parse_short(text, left, known, parsed)
    return parsed


def _parse_short(text: str, left: Iterator[Word], known: Options, parsed: Parsed) -> None:
    for place, letter in enumerate(text[1:], 2):
        rest = text[place:]
        if letter in known.values:
            parsed.options.append((letter, Word(rest) if rest else next(left, UNKNOWN_WORDS)))
            return
        if letter in known.attached:
            parsed.options.append((letter, Word(rest)))
            return
        if letter not in known.flags:
            parsed.is_known = False
        parsed.options.append((letter, None))


def _parse_long(text: str, left: Iterator[Word], known: Options, parsed: Parsed) -> None:
    name, separator, value = text.partition("=")
    full = find_long(name, (*known.long_values, *known.long_flags, *known.long_attached))
    if full is None:
        parsed.is_known = False
        full = name
    if separator:
        parsed.options.append((full, Word(value)))
    elif full in known.long_values:
        parsed.options.append((full, next(left, UNKNOWN_WORDS)))
    else:
        parsed.options.append((full, None))


def find_long(name: str, known: Sequence[str]) -> str | None:
    """The option that `name` is, or is short for."""
    if name in known:
        return name
    return next((full for full in known if name and full.startswith(name)), None)
