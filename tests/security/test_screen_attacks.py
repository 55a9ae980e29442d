"""What a program in the box may do to the terminal of the person who gave it one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cli.screen import ScreenFilter

RESET = b"\x1b[0m\x1b(B\x1b>\x0f"
ATTACKS = {
    "title": b"\x1b]0;owned\x07",
    "title, ended by ST": b"\x1b]2;owned\x1b\\",
    "clipboard": b"\x1b]52;c;b3duZWQ=\x07",
    "link": b"\x1b]8;;http://example.org/\x1b\\",
    "colour query": b"\x1b]11;?\x07",
    "device attributes": b"\x1b[c",
    "secondary attributes": b"\x1b[>c",
    "identify": b"\x1bZ",
    "cursor report": b"\x1b[6n",
    "private report": b"\x1b[?6n",
    "mode report": b"\x1b[?25$p",
    "version": b"\x1b[>q",
    "window report": b"\x1b[21t",
    "resize window": b"\x1b[8;1;1t",
    "print screen": b"\x1b[5i",
    "terminal parameters": b"\x1b[x",
    "checksum": b"\x1b[1;1;1;1;1;1*y",
    "answerback": b"\x05",
    "DCS status": b"\x1bP$qm\x1b\\",
    "terminfo": b"\x1bP+q544e\x1b\\",
    "device string as C1": "\u0090$qm\u009c".encode(),
    "title as C1": "\u009d0;owned\u009c".encode(),
    "CSI as C1": "\u009b6n".encode(),
    "application command": b"\x1b_owned\x1b\\",
    "privacy message": b"\x1b^owned\x1b\\",
    "start of string": b"\x1bXowned\x1b\\",
    "keyboard protocol": b"\x1b[>1u",
    "unknown private mode": b"\x1b[?31337h",
}
DRAWING = [
    b"plain text\r\n\ttab\x08\x07",
    "naïve ✓ 漢字".encode(),
    b"\x1b[31;1mred\x1b[0m",
    b"\x1b[38;5;200mx\x1b[48;2;1;2;3my",
    b"\x1b[2J\x1b[H\x1b[10;20Hx\x1b[K\x1b[3A",
    b"\x1b[1;24r\x1b[2L\x1b[3M\x1b[4P",
    b"\x1b7\x1b8\x1bM\x1b(0lqqk\x1b(B",
]


@pytest.mark.parametrize("name", ATTACKS)
def test_a_terminal_is_drawn_on_and_nothing_else(name: str) -> None:
    passed = ScreenFilter().feed(b"before " + ATTACKS[name] + b"after")
    assert re.sub(rb"[6n]+after$", b"after", passed) == b"before after"


@pytest.mark.parametrize("name", ATTACKS)
def test_it_does_not_matter_how_it_is_cut(name: str) -> None:
    whole = b"before " + ATTACKS[name] + b"after"
    one, many = ScreenFilter(), ScreenFilter()
    assert b"".join(many.feed(whole[i : i + 1]) for i in range(len(whole))) == one.feed(whole)


@pytest.mark.parametrize("drawn", DRAWING)
def test_what_draws_passes(drawn: bytes) -> None:
    assert ScreenFilter().feed(drawn) == drawn


def test_modes_that_are_set_are_set_back() -> None:
    screen = ScreenFilter()
    assert screen.feed(b"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?2004l") == b"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?2004l"
    assert screen.finish() == b"\x1b[?25h\x1b[?1049l" + RESET
    assert screen.finish() == RESET


def test_a_string_without_end_holds_nothing_back_for_ever() -> None:
    screen = ScreenFilter()
    assert screen.feed(b"\x1b]0;" + bytes([65]) * 1_000_000) == b""
    assert screen.feed(b"\x1b[31mred") == b"\x1b[31mred"


@given(st.lists(st.sampled_from([*ATTACKS.values(), *DRAWING, b"\x1b", b"[", b"]", b";", b"\x9d", b"?", b"7"])))
def test_nothing_that_passes_is_a_string_or_a_question(parts: list[bytes]) -> None:
    passed = ScreenFilter().feed(b"".join(parts)).decode()
    assert not re.search("[\x05\x80-\x9f]|\x1b[\\]PX^_Z]|\x1b\\[[0-?]*[ -/]*[cnitxy]|\x1b\\[[0-?]*[>=<]", passed)


@given(st.binary(max_size=300))
def test_what_passed_once_passes_again(data: bytes) -> None:
    once = ScreenFilter().feed(data)
    assert ScreenFilter().feed(once) == once
