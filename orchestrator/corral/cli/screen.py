"""What a program that was given a terminal may do to the person's own: draw on it, and nothing else.

An allow-list. What draws, moves and colours passes, and modes that are set back at the end. What a terminal keeps,
tells or answers does not: titles, clipboard, links, downloads, status reports, which it types as if the person had.
"""

from __future__ import annotations

import codecs
import re

_MAX_PARTIAL = 256
"""Longer than any sequence that passes: what is not complete by then never will be one."""

# One token of what is not plain text. The order is: complete sequences, then what may still become one.
_TOKEN = re.compile(
    r"""\x1b\[(?P<csi>[0-?]{0,64}[\ -/]{0,2}[@-~])
    |(?P<string>\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])
    |\x1b(?P<charset>[()*+][0-9A-Za-z<=>])
    |\x1b(?P<short>[78=>DEHMc])
    |(?P<partial>\x1b(?:\[[0-?]{0,64}[\ -/]{0,2}|[()*+])?\Z)
    |(?P<drop>\x1b[\ -/]{0,2}[0-~]?|[\x00-\x06\x10-\x1a\x1c-\x1f\x7f-\x9f])
    """,
    re.VERBOSE,
)
# The end of a string sequence; any other escape, CAN and SUB break one off.
_STRING_END = re.compile(r"\x07|\x1b\\|\x9c|[\x18\x1a]|\x1b(?=[^\\])")
_DRAWING = re.compile(r"[0-9;:]*[@A-HJ-MPSTXZ`abdefgmrsu]|\?[0-9;]*[JK]|[0-6]? q|!p|[0-9;]*[hl]")
_MODE = re.compile(r"\?([0-9;]{1,32})([hl])")
_SET_BACK = dict.fromkeys((1, 5, 6, 9, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004, 2026), "l") | {
    7: "h",
    12: "l",
    25: "h",
    47: "l",
    1047: "l",
    1048: "l",
    1049: "l",
}
"""The private modes that pass, and what leaves each as it was."""


class ScreenFilter:
    """Bytes of a program to what may reach the terminal, piece by piece."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._in_string = False
        self._changed: set[int] = set()

    def feed(self, data: bytes | memoryview) -> bytes:
        # SECURITY: everything a terminal keeps, tells or answers; test_a_terminal_is_drawn_on_and_nothing_else
        text = self._pending + self._decoder.decode(bytes(data))
        self._pending = ""
        out: list[str] = []
        place = 0
        while place < len(text):
            if self._in_string:
                place = self._skip_string(text, place)
                continue
            token = _TOKEN.search(text, place)
            if token is None:
                out.append(text[place:])
                break
            out.append(text[place : token.start()])
            place = token.end()
            if token["partial"] is not None:
                self._pending = token[0]
            elif token["string"] is not None:
                self._in_string = True
            else:
                out.append(self._pass(token))
        return "".join(out).encode()

    def finish(self) -> bytes:
        """What leaves the terminal as it was."""
        back = "".join(f"\x1b[?{number}{_SET_BACK[number]}" for number in sorted(self._changed))
        self._changed.clear()
        return f"{back}\x1b[0m\x1b(B\x1b>\x0f".encode()

    def _skip_string(self, text: str, place: int) -> int:
        end = _STRING_END.search(text, place)
        if end is None:
            if text.endswith("\x1b"):
                self._pending = "\x1b"  # perhaps the first half of its end
            return len(text)
        self._in_string = False
        return end.start() if end[0] == "\x1b" else end.end()

    def _pass(self, token: re.Match[str]) -> str:
        if token["csi"] is not None:
            return self._pass_csi(token["csi"])
        return token[0] if token["charset"] or token["short"] else ""

    def _pass_csi(self, body: str) -> str:
        mode = _MODE.fullmatch(body)
        if mode is None:
            return f"\x1b[{body}" if _DRAWING.fullmatch(body) else ""
        numbers = [int(part) for part in mode[1].split(";") if part.isdigit() and len(part) < 5]
        known = [number for number in numbers if number in _SET_BACK]
        for number in known:
            (self._changed.discard if mode[2] == _SET_BACK[number] else self._changed.add)(number)
        return f"\x1b[?{';'.join(map(str, known))}{mode[2]}" if known else ""
