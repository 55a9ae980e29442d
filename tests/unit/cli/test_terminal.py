from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cli.terminal import TerminalFilter


def show(*pieces: bytes, colours: bool = True) -> str:
    """All that reaches the terminal, in one text."""
    terminal = TerminalFilter(colours=colours)
    return "".join([*(terminal.feed(piece) for piece in pieces), terminal.feed(b"", final=True)])


ATTACKS = {
    "title": b"\x1b]0;owned\x07",
    "clipboard": b"\x1b]52;c;ZXZpbA==\x07",
    "link": b"\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "answerback": b"\x1b[c\x1b[6n\x1b[21t",
    "cursor up": b"\x1b[2A\x1b[2K",
    "clear": b"\x1b[2J\x1b[H",
    "alternate screen": b"\x1b[?1049h",
    "device control": b"\x1bP+q544e\x1b\\",
    "character set": b"\x1b(0",
    "reset": b"\x1bc",
    "eight-bit control": "\x9b2J\x90x\x9c".encode(),
    "backspace": b"safe\x08\x08\x08\x08evil",
    "shift out": b"\x0e\x0f",
    "bell": b"\x07",
    "null": b"\0",
    "delete": b"\x7f",
    "bidi": "a\u202eb\u2066c".encode(),
    "zero width": "a\u200bb\u2060\ufeff".encode(),
    "tags": "\U000e0041".encode(),
    "braille blank": "\u2800\u034f\u3164".encode(),
    "private use": "\ue000".encode(),
    "conceal": b"\x1b[8mhidden\x1b[0m",
    "conceal among others": b"\x1b[1;08;31mhidden",
    "conceal after a colour": b"\x1b[38;5;1;8mhidden",
    "overlong colour": b"\x1b[" + b"1;" * 40 + b"m",
    "colour with a query": b"\x1b[?1m\x1b[>4;2m",
    "not UTF-8": b"\xff\xfe\xc0\x80",
    "half a surrogate": b"\xed\xa0\x80",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_terminal_escapes_what_a_terminal_executes(attack: bytes) -> None:
    shown = show(attack)
    rest = shown.replace("\x1b[0m", "")
    assert rest == rest.encode().decode() and "\x1b" not in rest
    assert all(char in "\n\t" or char.isprintable() for char in rest), ascii(rest)
    assert "\\" in rest  # it is told, not dropped


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_sequence_cut_anywhere_is_the_same_sequence(attack: bytes) -> None:
    whole = show(attack)
    assert all(show(attack[:cut], attack[cut:]) == whole for cut in range(len(attack)))
    assert show(*(attack[number : number + 1] for number in range(len(attack)))) == whole


def test_every_character_that_is_no_plain_text_is_escaped() -> None:
    codes = (code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    odd = [chr(code) for code in codes if unicodedata.category(chr(code))[0] in "CZ"]
    odd = [char for char in odd if char not in "\n\t\r\x1b \u3000"]
    assert len(odd) > 900_000
    assert show("".join(odd[::7]).encode()).isascii()


def test_text_and_colours_pass() -> None:
    text = "Grüße 世界 ✓\t\x1b[1;31mred\x1b[0m \x1b[38;5;8mgrey\x1b[38;2;8;8;8mgrey\x1b[48:5:8mx\x1b[m\n"
    assert show(text.encode()) == text


def test_colours_are_reset_at_the_end() -> None:
    assert show(b"\x1b[31mred") == "\x1b[31mred\x1b[0m"
    assert show(b"\x1b[31mred\x1b[0m") == "\x1b[31mred\x1b[0m"
    assert show(b"\x1b[31", b"m", b"red") == "\x1b[31mred\x1b[0m"


def test_colours_are_left_out_where_they_are_not_wanted() -> None:
    assert show(b"\x1b[31mred\x1b[0m \x1b]0;t\x07", colours=False) == "red \\x1b]0;t\\x07"


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ((b"10%\r20%\r", b"30%\n"), "10%\n20%\n30%\n"),
        ((b"a\r\nb\r\n",), "a\nb\n"),
        ((b"a\r", b"\nb"), "a\nb"),
        ((b"real output\rfake\n",), "real output\nfake\n"),
        ((b"a\r",), "a\n"),
    ],
)
def test_a_carriage_return_never_rewrites_a_line(pieces: tuple[bytes, ...], shown: str) -> None:
    assert show(*pieces) == shown


def test_characters_cut_between_pieces_are_put_together() -> None:
    raw = "世✓é".encode()
    assert show(*(raw[number : number + 1] for number in range(len(raw)))) == "世✓é"
    assert show("é".encode()[:1]) == "\\xc3"


def test_what_is_held_back_is_bounded() -> None:
    terminal = TerminalFilter()
    for _ in range(100):
        terminal.feed(b"\x1b[1;1;1;1;1;1;1;1")
    assert len(terminal._pending) < 40


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_no_bytes_get_past(pieces: list[bytes]) -> None:
    shown = show(*pieces, colours=False)
    assert all(char in "\n\t" or char.isprintable() for char in shown)
    assert show(b"".join(pieces), colours=False) == shown
