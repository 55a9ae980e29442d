"""The screen that a model is shown of a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.tools.screen import Screen


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"one\r\ntwo", "one\ntwo"),
        (b"10%\r20%\r30%", "30%"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07plain", "red plain"),
        (b"abc\b\bX", "aXc"),
        (b"abcdefghijkl", "abcdefghij\nkl"),
        (b"1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5"),
        (b"junk\x1b[2J\x1b[Hnew", "new"),
        (b"\x1b[2;3Hx\x1b[Ay", "   y\n  x"),
        (b"abc\x1b[2G\x1b[K.", "a."),
        (b"one\r\ntwo\r\nthree\x1b[2;1H\x1b[M", "one\nthree"),
        (b"one\r\ntwo\x1b[1;1H\x1b[L", "\none\ntwo"),
        (b"abcdef\x1b[2G\x1b[2P", "adef"),
        (b"abcdef\x1b[2G\x1b[2@", "a  bcdef"),
        (b"top\r\nmid\x1b[H\x1bMnew", "new\ntop\nmid"),
        (b"main\x1b[?1049halt", "alt"),
        ("漢字x".encode(), "漢字x"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"a\x1bP$qm\x1b\\b", "ab"),
    ],
)
def test_a_screen_shows_what_a_terminal_would(written: bytes, shown: str) -> None:
    whole, cut = Screen(4, 10), Screen(4, 10)
    whole.feed(written)
    for index in range(len(written)):
        cut.feed(written[index : index + 1])
    assert (whole.render(), cut.render()) == (shown, shown)


def test_a_smaller_screen_keeps_the_last_lines() -> None:
    screen = Screen(4, 10)
    screen.feed(b"1\r\n2\r\n3\r\n4444444444")
    screen.resize(2, 5)
    assert screen.render() == "3\n44444"


_PIECES = [b"\x1b[", b"\x1b]", b"\x1b", b"999999", b"99999", b";", b"?", b"H", b"r", b"L", b"M", b"S", b"T", b"@", b"P",
           b"J", b"\n", b"\r", b"x" * 30, b"\x1b[2;3r", b"\x1b[3;9r", "漢".encode(), b"\x1bM", b"\x1b8"]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES) | st.binary(max_size=8), max_size=60), st.integers(1, 6), st.integers(1, 12))
def test_a_screen_never_grows(pieces: list[bytes], rows: int, columns: int) -> None:
    screen = Screen(rows, columns)
    screen.feed(b"".join(pieces))
    screen.resize(columns, rows)
    screen.feed(b"".join(pieces))
    lines = screen._lines
    assert len(lines) == columns
    assert max(map(len, lines)) <= max(rows, 2)
