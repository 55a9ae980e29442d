"""Makes bytes and text safe to show: no character that moves a cursor, hides or reorders text gets through."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Match

_UNSAFE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # soft hyphen, fillers, Arabic letter mark
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # zero width, separators, bidirectional controls
    "\ufff9-\ufffb\ufff0-\ufff8"
    "\ud800-\udfff"  # surrogates: undecodable bytes as \xNN
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # shorthand and musical controls
    "\U000e0000-\U000e0fff]"  # tags, variation selectors
)


def make_visible(text: str) -> str:
    r"""Text with every control, bidirectional and zero-width character as \xNN or \u{...}; tabs stay."""
    # SECURITY: what is shown may reach a terminal or a model (test_visible.py).
    return _escape_all(text).replace("\n", "\\x0a")


def show_lines(raw: bytes) -> str:
    """Like show_bytes, but line feeds stay."""
    return _escape_all(raw.decode("utf-8", "surrogateescape"))


def show_bytes(raw: bytes) -> str:
    r"""Bytes as UTF-8 text; undecodable bytes and controls are made visible as \xNN."""
    return make_visible(raw.decode("utf-8", "surrogateescape"))


def show_path(path: bytes) -> str:
    """A path for a message, one line and at most about 300 characters."""
    text = show_bytes(path)
    return text if len(text) <= 300 else f"{text[:140]}...{text[-140:]}"


def cut(text: str, limit: int) -> str:
    """The first characters of a text, with a mark when something was left out."""
    return text if len(text) <= limit else text[:limit] + "..."


def _escape_all(text: str) -> str:
    # Most text has nothing to escape, and printable ASCII is safe whatever the pattern says.
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    import re  # late: with the packages it needs 1.1 MB of every file worker

    return re.sub(_UNSAFE, _escape, text)


def _escape(match: Match[str]) -> str:
    code = ord(match.group())
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
