"""One function that makes any text safe and honest to look at: what is unseen, or acts on a terminal, is spelled out.

Every place that shows text of a box, a model or a repository to a person goes through `visible`: terminal, log viewer,
approval preview, error messages. It is injective: two different inputs never look the same.
"""

from __future__ import annotations

import re

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# `str.isprintable` is false for controls, format characters (bidi, zero-width, tags), surrogates, private use,
# unassigned and odd spaces. These are printable by category and still show nothing.
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
_IDEOGRAPHIC_SPACE = "\u3000"  # a plain space in Chinese and Japanese text

# A backslash is doubled only where it could be read as one of our own escapes; `\.py` stays `\.py`.
_AMBIGUOUS = re.compile(r"\\(?=[\\nrtxuU])")


def visible(text: str | bytes, *, limit: int | None = None, keep: str = "") -> str:
    r"""`text` with everything unprintable or invisible written as `\n`, `\x1b`, `\u202e` and so on.

    Bytes that are no UTF-8 (also as surrogate escapes in a str, as Python gives odd file names) become `\xNN`. `keep`
    names characters to leave alone, such as "\n\t" for a block of text. Over `limit` input characters the rest is
    replaced by `…(+N)`.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    rest = ""
    if limit is not None and len(text) > limit:
        rest = f"…(+{len(text) - limit})"
        text = text[:limit]
    # SECURITY: the only way past the escaping; test_visible_escapes_what_a_terminal_or_an_eye_cannot_take
    if text.isascii() and text.isprintable():
        return (_AMBIGUOUS.sub(r"\\\\", text) if "\\" in text else text) + rest
    out: list[str] = []
    for position, char in enumerate(text):
        if char == "\\":
            following = text[position + 1 : position + 2]
            out.append("\\\\" if following in "\\nrtxuU" and following else "\\")
            if following and _must_escape(following, keep):
                out[-1] = "\\\\"
        else:
            out.append(_escape(char) if _must_escape(char, keep) else char)
    return "".join(out) + rest


def _must_escape(char: str, keep: str) -> bool:
    if char in keep or char == _IDEOGRAPHIC_SPACE:
        return False
    return not char.isprintable() or char in _INVISIBLE


def _escape(char: str) -> str:
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
