from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.context.untrusted import wrap_untrusted
from corral.tools.bounds import bound, clean


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("10%\r20%\r30%", "30%"),
        ("10%\r20%\r", "20%"),
        ("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x1b\\", "red link"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title", "\x1b]0;title".replace("\x1b]", "")),
        ("bell\x07 null\x00", "bell\\x07 null\\x00"),
        ("tab\tstays", "tab\tstays"),
        ("\ud800", "\ufffd"),
        ("a\\nb é 漢", "a\\nb é 漢"),
    ],
)
def test_text_is_as_a_terminal_would_leave_it(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_what_hides_or_reorders_text_is_spelled_out() -> None:
    assert (
        clean("\u202eevil\u202c a\u200bb \U000e0041 \ufeff")
        == "\\u{202e}evil\\u{202c} a\\u{200b}b \\u{e0041} \\u{feff}"
    )


@given(st.text(alphabet="a\r\n\x1b[]0;m\x07\\\x9b\x00 ", max_size=200))
def test_nothing_that_acts_on_a_terminal_is_left(text: str) -> None:
    cleaned = clean(text)
    assert not set(cleaned) & set("\x1b\x07\x9b\x00\r")
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize("piece", ["\x1b]", "\x1b[", "\x1b[0", "\x1bP", "\r", "\x1b", "\x1b]\x1b[0"])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()
    clean(text)
    assert time.process_time() - began < 3


def test_short_text_is_whole() -> None:
    assert bound("é" * 10, max_bytes=20) == ("é" * 10, None)


@given(st.text(max_size=400), st.integers(20, 100))
def test_a_cut_is_told_and_bounded(text: str, room: int) -> None:
    shown, cut = bound(text, max_bytes=room, full_at="/outputs/c")
    size = len(text.encode("utf-8", "replace"))
    if cut is None:
        assert (shown, size <= room) == (text, True)
    else:
        assert cut.total_bytes == size
        assert cut.shown_bytes <= room
        assert f"{size - cut.shown_bytes} bytes left out; read the whole at /outputs/c" in shown


def test_a_wrapper_is_never_marked_with_what_the_text_holds() -> None:
    marks = iter(["1111", "2222"])
    assert wrap_untrusted("see 1111", 'a"b\n', boundary=lambda: next(marks)) == (
        '<untrusted source="a\'b\\n" id="2222">\nsee 1111\n</untrusted id="2222">'
    )
