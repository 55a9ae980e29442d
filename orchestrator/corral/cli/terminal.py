"""What may reach a person's terminal: printable text, colours, line ends. Everything else is made visible.

Output of the box is hostile. Raw to a pipe, because programs want the bytes; escaped to a terminal, because a terminal
executes what it is sent (titles, clipboard, cursor moves, answers typed into the shell).
"""

from __future__ import annotations

import codecs
import re

from corral.schema.visible import visible

# A colour and nothing else: CSI, digits and semicolons, `m`.
_SGR = re.compile(r"\x1b\[[0-9;:]{0,32}m")
_PARTIAL = re.compile(r"\x1b(?:\[[0-9;:]{0,32})?\Z")
# SECURITY: everything a terminal could act on; test_terminal_escapes_what_a_terminal_executes
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


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
            if self._colours:
                out.append(colour[0])
                self._coloured = colour[0] not in ("\x1b[m", "\x1b[0m")
            position = colour.end()
        out.append(_escape(text[position:]))
        if final and self._coloured:
            out.append("\x1b[0m")
        return "".join(out)


def _escape(text: str) -> str:
    # A bare carriage return would rewrite the line that was just read: it becomes a line end.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNSAFE.sub(lambda match: visible(match[0]), text)
