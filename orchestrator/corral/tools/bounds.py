"""Text for a model: cleaned of what only a terminal understands, and cut to a size with the cut told."""

from __future__ import annotations

import re

from corral.schema.tools import Truncation

SHOWN_BYTES = 32 << 10

# Every alternative stops at the next escape, so that the whole is linear however hostile the text.
_ESCAPE = re.compile(
    r"""\x1b\[[0-?]*[\ -/]*[@-~]              # CSI: colours, cursor
    |\x1b[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)   # OSC and other strings, ended
    |\x1b[\ -/]*[0-~]                         # two characters
    |\x9b[0-?]*[\ -/]*[@-~]                   # CSI as one character
    """,
    re.VERBOSE,
)
# SECURITY: also what an eye cannot see and a model reads: test_what_hides_or_reorders_text_is_spelled_out. The same
# characters that the toolbox spells out in files.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # soft hyphen, fillers, Arabic letter mark
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"  # zero width, separators, bidirectional controls
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"  # shorthand, musical controls, tags
)
_PLAIN = bytes([0x09, 0x0A, *range(0x20, 0x7F)])  # ASCII that nothing here changes


def clean(text: str) -> str:
    """`text` as a terminal would leave it: escapes gone, overwritten progress gone, other controls visible."""
    if text.isascii() and not text.encode().translate(None, _PLAIN):
        return text
    text = _ESCAPE.sub("", text)
    if "\r" in text:
        text = "\n".join(_fold_line(line) for line in text.replace("\r\n", "\n").split("\n"))
    return show_controls(text)


def show_controls(text: str) -> str:
    """Control characters as `\\xNN`, hidden ones as `\\u{N}`; newline and tab stay. Half a surrogate pair: U+FFFD."""
    return _CONTROL.sub(_show, text)


def bound(
    text: str, *, max_bytes: int = SHOWN_BYTES, full_at: str = "", total: int = 0
) -> tuple[str, Truncation | None]:
    """Head and tail of `text` in at most about `max_bytes`, and what was left out.

    `total` is the size of the whole where `text` is already less than that.
    """
    raw = text.encode("utf-8", "replace")
    total = max(total, len(raw))
    if len(raw) <= max_bytes:
        return text, None
    half = max_bytes // 2
    head = raw[:half].decode("utf-8", "ignore")
    tail = raw[-half:].decode("utf-8", "ignore")
    # Whole lines, where that costs little.
    if (end := head.rfind("\n")) >= 0 and len(head) - end < 1000:
        head = head[: end + 1]
    if 0 <= (start := tail.find("\n")) < 1000:
        tail = tail[start + 1 :]
    shown = len(head.encode()) + len(tail.encode())
    mark = describe_cut(total - shown, full_at)
    return f"{head.rstrip(chr(10))}\n{mark}\n{tail}", Truncation(shown_bytes=shown, total_bytes=total, full_at=full_at)


def describe_cut(missing: int, full_at: str) -> str:
    where = f"; read the whole at {full_at}" if full_at else ""
    return f"[… {missing} bytes left out{where} …]"


def _fold_line(line: str) -> str:
    """What stays visible of a line that was written over: the last thing written."""
    return next((part for part in reversed(line.split("\r")) if part), "")


def _show(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
