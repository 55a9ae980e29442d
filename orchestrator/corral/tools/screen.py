"""What a terminal would show after all that was written to it: the model's view of a program that draws.

Small on purpose: rows of characters, a cursor, erasing, scrolling. Colours and modes do not show. The bytes are the
box's: whatever they are, there are never more than rows times columns characters, and every byte costs the same.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

from corral.tools.bounds import show_controls

_TOKEN = re.compile(
    r"""\x1b\[(?P<csi>[0-?]{0,64}[\ -/]{0,2}[@-~])
    |(?P<string>\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])
    |\x1b(?P<escape>[()*+\ #%][ -~]|[0-Z\\`-~])
    |(?P<partial>\x1b(?:\[[0-?]{0,64}[\ -/]{0,2}|[()*+\ #%])?\Z)
    |(?P<control>[\x00-\x1f\x7f-\x9f])
    """,
    re.VERBOSE,
)
_STRING_END = re.compile(r"\x07|\x1b\\|\x9c|[\x18\x1a]|\x1b(?=[^\\])")
_TAB = 8


class Screen:
    """One terminal's screen. `feed` bytes, `render` text."""

    def __init__(self, rows: int, columns: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._in_string = False
        self._saved = (0, 0)
        self.rows, self.columns = rows, columns
        self._clear()

    def _clear(self) -> None:
        self._lines: list[list[str]] = [[] for _ in range(self.rows)]
        self._row = self._column = 0
        self._top, self._bottom = 0, self.rows - 1

    def resize(self, rows: int, columns: int) -> None:
        """The last lines stay, as on a terminal that is made smaller from above."""
        lines = self._lines[max(0, self._row + 1 - rows) :][:rows]
        self._row -= max(0, self._row + 1 - rows)
        self.rows, self.columns = rows, columns
        self._lines = [line[:columns] for line in lines] + [[] for _ in range(rows - len(lines))]
        self._top, self._bottom = 0, rows - 1
        self._move(self._row, self._column)

    def render(self) -> str:
        """The lines, without what is empty at the end of each and of all."""
        return show_controls("\n".join("".join(line).rstrip() for line in self._lines).rstrip("\n"))

    def feed(self, data: bytes) -> None:
        text = self._pending + self._decoder.decode(data)
        self._pending = ""
        place = 0
        while place < len(text):
            if self._in_string:
                place = self._skip_string(text, place)
                continue
            token = _TOKEN.search(text, place)
            self._write(text[place : token.start() if token else len(text)])
            if token is None:
                return
            place = token.end()
            self._act(token)

    def _skip_string(self, text: str, place: int) -> int:
        end = _STRING_END.search(text, place)
        if end is None:
            self._pending = "\x1b" if text.endswith("\x1b") else ""
            return len(text)
        self._in_string = False
        return end.start() if end[0] == "\x1b" else end.end()

    def _act(self, token: re.Match[str]) -> None:
        if token["partial"] is not None:
            self._pending = token[0]
        elif token["string"] is not None:
            self._in_string = True
        elif token["csi"] is not None:
            self._control(token["csi"])
        elif token["escape"] is not None:
            self._escape(token["escape"])
        else:
            self._single(token["control"])

    # Writing.

    def _write(self, text: str) -> None:
        for character in text:
            if unicodedata.combining(character):
                continue
            width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if self._column + width > self.columns:
                self._column = 0
                self._line_feed()
            line = self._lines[self._row]
            line += " " * (self._column + width - len(line))
            line[self._column] = character
            if width == 2 and self._column + 1 < self.columns:
                line[self._column + 1] = ""
            self._column += width

    def _single(self, control: str) -> None:
        if control in "\n\v\f":
            self._line_feed()
        elif control == "\r":
            self._column = 0
        elif control == "\b":
            self._column = max(0, self._column - 1)
        elif control == "\t":
            self._column = min(self.columns - 1, (self._column // _TAB + 1) * _TAB)

    def _line_feed(self) -> None:
        if self._row == self._bottom:
            self._scroll(self._top, 1)
        else:
            self._row = min(self._row + 1, self.rows - 1)

    def _scroll(self, top: int, count: int) -> None:
        """Lines from `top` to the bottom of the region go up, or with a negative count down."""
        size = self._bottom + 1 - top
        count = max(-size, min(count, size))
        region = self._lines[top : self._bottom + 1]
        empty: list[list[str]] = [[] for _ in range(abs(count))]
        region = region[count:] + empty if count > 0 else empty + region[: size + count]
        self._lines[top : self._bottom + 1] = region

    # Moving and erasing.

    def _move(self, row: int, column: int) -> None:
        self._row = max(0, min(row, self.rows - 1))
        self._column = max(0, min(column, self.columns - 1))

    def _escape(self, code: str) -> None:
        if code == "7":
            self._saved = (self._row, self._column)
        elif code == "8":
            self._move(*self._saved)
        elif code == "c":
            self._clear()
        elif code in ("D", "E"):
            self._column = 0 if code == "E" else self._column
            self._line_feed()
        elif code == "M":
            if self._row == self._top:
                self._scroll(self._top, -1)
            else:
                self._move(self._row - 1, self._column)

    def _control(self, body: str) -> None:
        final, parameters = body[-1], body[:-1]
        if parameters.startswith("?"):
            if final in "hl" and parameters[1:] in ("47", "1047", "1049"):
                self._clear()  # another screen, or back: either is drawn anew
            return
        if not all(part == "" or (part.isdigit() and len(part) < 6) for part in parameters.split(";")):
            return
        numbers = [int(part or 0) for part in parameters.split(";")]
        first = max(numbers[0], 1)
        match final:
            case "A" | "B" | "C" | "D" | "E" | "F" | "G" | "`" | "d" | "H" | "f" | "a" | "e":
                self._jump(final, first, numbers)
            case "J" | "K" | "X" | "P" | "@":
                self._erase(final, numbers[0])
            case "L" | "M" if self._top <= self._row <= self._bottom:
                self._scroll(self._row, first if final == "M" else -first)
            case "S" | "T":
                self._scroll(self._top, first if final == "S" else -first)
            case "r":
                bottom = numbers[1] if len(numbers) > 1 and numbers[1] else self.rows
                if first < bottom <= self.rows:
                    self._top, self._bottom = first - 1, bottom - 1
                    self._move(0, 0)
            case "s":
                self._saved = (self._row, self._column)
            case "u":
                self._move(*self._saved)
            case _:
                pass

    def _jump(self, final: str, first: int, numbers: list[int]) -> None:
        row, column = self._row, min(self._column, self.columns - 1)
        second = max(numbers[1], 1) if len(numbers) > 1 else 1
        target = {
            "A": (row - first, column),
            "B": (row + first, column),
            "e": (row + first, column),
            "C": (row, column + first),
            "a": (row, column + first),
            "D": (row, column - first),
            "E": (row + first, 0),
            "F": (row - first, 0),
            "G": (row, first - 1),
            "`": (row, first - 1),
            "d": (first - 1, column),
        }.get(final, (first - 1, second - 1))
        self._move(*target)

    def _erase(self, final: str, number: int) -> None:
        line, column = self._lines[self._row], min(self._column, self.columns - 1)
        count = min(max(number, 1), self.columns)
        if final == "P":
            del line[column : column + count]
        elif final == "@":
            line += " " * (column - len(line))
            line[column:column] = " " * count
            del line[self.columns :]
        elif final == "X":
            line[column : column + count] = " " * len(line[column : column + count])
        else:
            if number == 0:
                del line[column:]
            elif number == 1:
                line[: column + 1] = " " * len(line[: column + 1])
            else:
                line.clear()
            if final == "J":
                before, after = number in (1, 2, 3), number in (0, 2, 3)
                for row in range(self.rows):
                    if (before and row < self._row) or (after and row > self._row):
                        self._lines[row].clear()
