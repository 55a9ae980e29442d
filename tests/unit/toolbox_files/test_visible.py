"""Nothing that moves a cursor, hides or reorders text is ever shown raw."""

from __future__ import annotations

import sys
import unicodedata

from corral_toolbox.files.text.visible import make_visible, show_bytes, show_path


def test_every_control_and_format_character_is_made_visible() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs") and char != "\t":
            shown = make_visible(char)
            if shown == char:
                # Marks that belong to their script and are seen, such as the Arabic number signs.
                assert unicodedata.bidirectional(char) in ("AN", "AL", "L", "R", "NSM"), hex(code)


def test_ordinary_text_stays() -> None:
    text = "tab\t é 中 👍 ~!\"'\\ \u00a0"
    assert make_visible(text) == text


def test_forms() -> None:
    assert make_visible("\x00\x1b\x7f\x9b\n\u202e\u2028\ufeff") == (
        "\\x00\\x1b\\x7f\\x9b\\x0a\\u{202e}\\u{2028}\\u{feff}"
    )
    assert show_bytes(b"\xff\xc3\xa9\xc3") == "\\xffé\\xc3"
    assert len(show_path(b"x" * 4000)) < 300
