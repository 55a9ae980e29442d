"""A text file as lines that can be searched under growing tolerance, at a cost linear in the file's size."""

from __future__ import annotations

from enum import IntEnum

from corral_toolbox.files.text.document import CRLF, Document

MAX_PLACES = 50  # more matches than anybody wants to read


class Tolerance(IntEnum):
    """What is ignored when lines are compared. Each level includes the ones before it."""

    NONE = 0
    LINE_ENDS = 1
    TRAILING = 2
    BLANKS = 3
    LOOKALIKES = 4

    @property
    def words(self) -> str:
        """For notices."""
        return (
            "nothing",
            "the kind of line end",
            "blanks at the end of lines",
            "blanks at the start and end of lines (indentation)",
            "blanks around lines and the form of dashes, quotes and spaces",
        )[self]


_FOLD = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)


class FileLines:
    """The lines of a document, without line ends, and what their line ends are."""

    def __init__(self, document: Document) -> None:
        self.lines = document.body.split(b"\n")
        self.kinds = document.kinds
        self.has_final_newline = self.lines[-1] == b""
        if self.has_final_newline:
            self.lines.pop()
        self._texts: dict[Tolerance, bytes] = {}

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def is_unterminated(self) -> bool:
        """There is a last line, and it has no line end."""
        return bool(self.lines) and not self.has_final_newline

    def find(self, wanted: list[bytes], tolerance: Tolerance, start: int = 0) -> list[int]:
        """Where these lines stand, from a line on; at most MAX_PLACES."""
        if len(wanted) > len(self.lines) - start:
            return []
        text = self._load_text(tolerance)
        needle = b"\n" + b"".join(reduce_line(line, tolerance) + b"\n" for line in wanted)
        places: list[int] = []
        at, line, counted = text.find(needle), 0, 0
        while at >= 0 and len(places) < MAX_PLACES:
            line += text.count(b"\n", counted, at)
            counted = at
            if line >= start:
                places.append(line)
            at = text.find(needle, at + 1)
        return places

    def matches_at(self, wanted: list[bytes], tolerance: Tolerance, start: int) -> bool:
        """Whether these lines stand exactly there."""
        if start < 0 or start + len(wanted) > len(self.lines):
            return False
        return all(
            self._reduce_own(start + offset, tolerance) == reduce_line(line, tolerance)
            for offset, line in enumerate(wanted)
        )

    def _load_text(self, tolerance: Tolerance) -> bytes:
        """The whole file as one text to search in: bytes.find is linear, also for hostile repetition."""
        if tolerance not in self._texts:
            reduced = [self._reduce_own(index, tolerance) for index in range(len(self.lines))]
            self._texts[tolerance] = b"\n" + b"".join(line + b"\n" for line in reduced)
        return self._texts[tolerance]

    def _reduce_own(self, index: int, tolerance: Tolerance) -> bytes:
        line = self.lines[index]
        if tolerance is Tolerance.NONE:
            return line + b"\r" if index < len(self.kinds) and self.kinds[index] == CRLF else line
        return reduce_line(line, tolerance)


def reduce_line(line: bytes, tolerance: Tolerance) -> bytes:
    """A line without what is to be ignored."""
    if tolerance is Tolerance.NONE:
        return line
    if tolerance is Tolerance.LINE_ENDS:
        return line.removesuffix(b"\r")
    if tolerance is Tolerance.TRAILING:
        return line.rstrip()
    if tolerance is Tolerance.LOOKALIKES and not line.isascii():
        line = line.decode("utf-8", "surrogateescape").translate(_FOLD).encode("utf-8", "surrogateescape")
    return line.strip()
