"""What may reach a person's terminal: printable text, colours, line ends. Everything else is made visible.

Output of the box is hostile. Raw to a pipe, because programs want the bytes; escaped to a terminal, because a terminal
executes what it is sent (titles, clipboard, cursor moves, answers typed into the shell).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from corral.schema.visible import visible

# A colour and nothing else: CSI, digits and semicolons, `m`.
_SGR = re.compile(r"\x1b\[([0-9;:]{0,32})m")
# What may go on in the next piece: the beginning of a colour, or the first half of CR LF.
_PARTIAL = re.compile(r"(?:\x1b(?:\[[0-9;:]{0,32})?|\r)\Z")
_SUSPECT = re.compile(r"[^\t\n\x20-\x7e]+")
_CONCEAL = "8"
_WIDTH = {"5": 1, "2": 3}  # numbers that follow 38;5 and 38;2: a colour's own


class TerminalFilter:
    """Bytes of the box to text that is safe on a terminal, piece by piece; keeps at most one partial sequence."""

    def __init__(self, *, colours: bool = True) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._pending = ""
        self._colours = colours
        self._coloured = False

    def feed(self, data: bytes | memoryview, *, final: bool = False) -> str:
        """The safe text for these bytes. With `final` also what was held back, and colours are reset."""
        text = self._pending + self._decoder.decode(bytes(data), final)
        self._pending = ""
        if not final and (partial := _PARTIAL.search(text)):
            self._pending = partial[0]
            text = text[: partial.start()]
        out: list[str] = []
        position = 0
        for colour in _SGR.finditer(text):
            out.append(_escape(text[position : colour.start()]))
            out.append(self._pass_colour(colour))
            position = colour.end()
        out.append(_escape(text[position:]))
        if final and self._coloured:
            out.append("\x1b[0m")
        return "".join(out)

    def _pass_colour(self, colour: re.Match[str]) -> str:
        if _CONCEAL in _list_attributes(colour[1]):
            return _escape(colour[0])  # text that cannot be seen
        if not self._colours:
            return ""
        self._coloured = colour[1] not in ("", "0")
        return colour[0]


def _list_attributes(parameters: str) -> Iterator[str]:
    """The attributes of a colour sequence, without the numbers that belong to a colour."""
    rest = iter(re.split("[;:]", parameters))
    for one in rest:
        yield one.lstrip("0")
        if one in ("38", "48", "58"):
            for _ in range(_WIDTH.get(next(rest, ""), 0)):
                next(rest, "")


def _escape(text: str) -> str:
    # A bare carriage return would rewrite the line that was just read: it becomes a line end.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    # SECURITY: everything a terminal could act on, or an eye not see; test_terminal_escapes_what_a_terminal_executes
    return _SUSPECT.sub(lambda match: visible(match[0]), text)
