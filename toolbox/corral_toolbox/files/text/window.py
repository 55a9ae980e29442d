"""Finds one window of lines in a text of any size, in one pass and with bounded memory."""

from __future__ import annotations

import codecs

from corral_toolbox.files.text.document import CR, CRLF, LF, UTF16, Encoding, name_newline
from corral_toolbox.files.text.visible import show_bytes, show_lines


class NotTextError(Exception):
    """A NUL or an impossible sequence: what looked like text is binary."""


class LineWindow:
    """Fed with a file's bytes in order; keeps the wanted lines and counts the rest."""

    def __init__(
        self, encoding: Encoding, head: bytes, *, first: int, limit: int | None, max_bytes: int, max_line: int
    ):
        self.encoding = encoding
        self.first = first
        self.last = None if limit is None else first + limit - 1
        self.max_bytes = max_bytes
        self.max_line = max_line
        self.starts: list[bytes] = []
        """The wanted lines, each as far as it is kept."""
        self._sizes: list[int] = []
        self.ends = 0
        """Line ends seen so far."""
        self.is_full = limit == 0
        """The window holds all that was asked for, or all that fits."""
        self.is_utf8 = True
        self.cut_short = False
        self.newlines = [0, 0, 0]
        self._separator = b"\r" if b"\n" not in _narrow(head, encoding) and b"\r" in head else b"\n"
        self._keep = 4 * max_line + 4  # bytes that surely hold max_line characters
        self._bytes = 0
        self._bom = len(encoding.bom)
        self._wide = codecs.getincrementaldecoder(encoding.name)() if encoding.name in UTF16 else None
        self._check = None if self._wide else codecs.getincrementaldecoder("utf-8")()
        self._tail = b""
        self._line_open = False

    def feed(self, raw: bytes, *, at_end: bool = False) -> None:
        """Take the next bytes. Raises NotTextError."""
        skip = min(self._bom, len(raw))
        self._bom -= skip
        data = self._to_utf8(raw[skip:], at_end=at_end)
        if b"\0" in data:
            raise NotTextError
        self._count_newlines(data)
        self._take_lines(data)
        self._tail = data[-1:] or self._tail

    @property
    def open_bytes(self) -> int:
        """Size so far of a wanted line whose end has not come yet."""
        return self._sizes[-1] if self._line_open and self._sizes else 0

    @property
    def total_lines(self) -> int:
        """Lines seen, the last one counted also when it has no line end."""
        return self.ends + (1 if self._tail and self._tail != self._separator else 0)

    @property
    def has_final_newline(self) -> bool:
        """Whether the bytes seen end with a line end."""
        return self._tail == self._separator

    @property
    def newline(self) -> str:
        """Newline style of what was seen."""
        return name_newline(bytearray(kind for kind in (LF, CRLF, CR) if self.newlines[kind]))

    def render(self) -> str:
        """The kept lines with their numbers, control characters visible, at most about max_bytes."""
        if self._separator == b"\n" and max(self._sizes, default=0) <= self.max_line:
            # The usual case in one go: no line is too long (bytes are never fewer than characters).
            raw = b"\n".join(self.starts).replace(b"\r\n", b"\n")
            shown = show_lines(raw if self._line_open else raw.removesuffix(b"\r"))
            lines = shown.split("\n") if self.starts else []
            text = "".join([f"{number:6d}\t{line}\n" for number, line in enumerate(lines, self.first)])
            if len(text.encode("utf-8")) <= self.max_bytes:
                return text
        return self._render_slowly()

    def _render_slowly(self) -> str:
        parts: list[str] = []
        room = self.max_bytes
        for number, (start, whole) in enumerate(zip(self.starts, self._sizes, strict=True), self.first):
            text = f"{number:6d}\t{self._render_line(start, whole)}\n"
            size = len(text.encode("utf-8"))
            if size > room:
                self.cut_short = True
                if parts:
                    break
                text = text.encode("utf-8")[:room].decode("utf-8", "ignore") + f"... [line cut: {whole} bytes]\n"
            parts.append(text)
            room -= size
        del self.starts[len(parts) :]
        return "".join(parts)

    def _render_line(self, start: bytes, size: int) -> str:
        if size == len(start) and start.endswith(b"\r") and self._separator == b"\n":
            start = start[:-1]
        text = start.decode("utf-8", "surrogateescape")
        if size <= self._keep and len(text) <= self.max_line:
            return show_bytes(start)
        self.cut_short = True
        kept = text[: self.max_line].encode("utf-8", "surrogateescape")
        return f"{show_bytes(kept)}... [line cut: {size} bytes]"

    def _to_utf8(self, raw: bytes, *, at_end: bool) -> bytes:
        if self._wide is not None:
            try:
                return self._wide.decode(raw, at_end).encode("utf-8")
            except UnicodeDecodeError:
                raise NotTextError from None
        if self._check is not None and self.is_utf8:
            try:
                self._check.decode(raw, at_end)
            except UnicodeDecodeError:
                self.is_utf8 = False
        return raw

    def _count_newlines(self, data: bytes) -> None:
        crlf = data.count(b"\r\n")
        split = self._tail == b"\r" and data.startswith(b"\n")
        self.newlines[CRLF] += crlf + split
        self.newlines[LF] += data.count(b"\n") - crlf - split
        if self._separator == b"\r":
            self.newlines[CR] += data.count(b"\r") - crlf - split

    def _take_lines(self, data: bytes) -> None:
        start, size = 0, len(data)
        if self.ends + 1 < self.first:
            start = self._skip(data)
        if not self._line_open and not self.is_full:
            start = self._take_whole_lines(data, start)
        while start < size and not self.is_full:
            end = data.find(self._separator, start)
            self._append(data, start, size if end < 0 else end)
            if end < 0:
                return
            self.ends += 1
            self._line_open = False
            start = end + 1
            self._judge_full()
        if start < size:
            self.ends += data.count(self._separator, start)
            # Only what follows a window that ran out of room was cut; what follows the last wanted line was not asked.
            if len(self.starts) + self.first - 1 != self.last:
                self.cut_short = True

    def _take_whole_lines(self, data: bytes, start: int) -> int:
        """The bulk of the lines in one split; the loop above does the rest."""
        end = data.rfind(self._separator, start, start + self.max_bytes - self._bytes)
        if end < 0:
            return start
        wanted = -1 if self.last is None else self.last - self.first + 1 - len(self.starts)
        lines = data[start:end].split(self._separator, wanted)
        if 0 <= wanted < len(lines):
            lines.pop()
        sizes = [len(line) for line in lines]
        self.starts += [line if len(line) <= self._keep else line[: self._keep] for line in lines]
        self._sizes += sizes
        taken = sum(sizes) + len(sizes)
        self.ends += len(lines)
        self._bytes += taken + 7 * len(lines)
        self._judge_full()
        return start + taken

    def _judge_full(self) -> None:
        self.is_full = len(self.starts) + self.first - 1 == self.last or self._bytes >= self.max_bytes

    def _skip(self, data: bytes) -> int:
        count = data.count(self._separator)
        if self.ends + count + 1 < self.first:
            self.ends += count
            return len(data)
        start = 0
        while self.ends + 1 < self.first:
            start = data.index(self._separator, start) + 1
            self.ends += 1
        return start

    def _append(self, data: bytes, start: int, end: int) -> None:
        if not self._line_open:
            self.starts.append(b"")
            self._sizes.append(0)
            self._line_open = True
            self._bytes += 8
        piece = min(end - start, self._keep - len(self.starts[-1]))
        self.starts[-1] += data[start : start + piece]
        self._sizes[-1] += end - start
        self._bytes += piece


def _narrow(head: bytes, encoding: Encoding) -> bytes:
    return head.replace(b"\0", b"") if encoding.name in UTF16 else head
