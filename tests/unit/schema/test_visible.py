from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.schema.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ünïcode, 日本　語 🙂", "plain text, ünïcode, 日本　語 🙂"),
        ("\x1b]0;pwn\x07\x1b[2J", "\\x1b]0;pwn\\x07\\x1b[2J"),
        ("\x1b]52;c;ZWNobw==\x07", "\\x1b]52;c;ZWNobw==\\x07"),
        ("\x9b31m", "\\u009b31m"),
        (b"\xc2\x9b31m", "\\u009b31m"),
        (b"\x9b31m", "\\x9b31m"),
        ("a\r\n\tb\x00\x7f", "a\\r\\n\\tb\\x00\\x7f"),
        ("abc\u202etxt.exe", "abc\\u202etxt.exe"),
        ("pay\u200bpal\u2060\ufeff", "pay\\u200bpal\\u2060\\ufeff"),
        ("line\u2028sep\u2029\x85", "line\\u2028sep\\u2029\\u0085"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("vs\U000e0101\ufe0f", "vs\\U000e0101\\ufe0f"),
        ("half \ud83c", "half \\ud83c"),
        ("name\udcff", "name\\xff"),
        (b"name\xff", "name\\xff"),
        (r"grep '\.py' C:\dir", r"grep '\.py' C:\dir"),
        (r"no\newline", r"no\\newline"),
        ("\\\n", "\\\\\\n"),
        ("nbsp\u00a0", "nbsp\\u00a0"),
        ("filler\u3164", "filler\\u3164"),
    ],
)
def test_visible_escapes_what_a_terminal_or_an_eye_cannot_take(text: str | bytes, shown: str) -> None:
    assert visible(text) == shown


def test_visible_cuts_and_says_by_how_much() -> None:
    assert visible("a" * 10, limit=4) == "aaaa…(+6)"
    assert visible("aaaa", limit=4) == "aaaa"


def test_visible_keeps_what_a_block_of_text_needs() -> None:
    assert visible("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


@given(st.text(st.characters(codec=None)))
def test_visible_output_is_printable_whatever_goes_in(text: str) -> None:
    shown = visible(text)
    assert all(char.isprintable() or char == "\u3000" for char in shown)
    assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def undo(shown: str) -> str:
    named = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return named[match[1]]
        code = int((match[2] or match[3])[1:], 16)
        return chr(code + 0xDC00 if match[2] and code >= 0x80 else code)

    return re.sub(r"\\(?:([nrt\\])|(x[0-9a-f]{2})|(u[0-9a-f]{4}|U[0-9a-f]{8}))", one, shown)


@given(st.text(st.characters(codec=None) | st.sampled_from("\\nrtxuU01af\n\x1b\udc80")))
@example("\\\\n")
@example("\\\n")
@example("\\x1b\x1b")
def test_visible_never_shows_two_texts_alike(text: str) -> None:
    assert undo(visible(text)) == text
