"""A text file taken apart so that it can be put together again byte for byte.

The body is UTF-8 (or the file's own bytes where they are not UTF-8) with LF line ends; what each line end really was
is kept beside it, one byte per line end. Edits and patches work on the body and never see encodings or line ends.
"""

from __future__ import annotations

import codecs

LF, CRLF, CR = 0, 1, 2
_ENDS = (b"\n", b"\r\n", b"\r")
_KEEP_ENDS = bytes(set(range(256)) - {0, 10})
UTF16 = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}


class Encoding:
    """How a file's bytes are to be read."""

    __slots__ = ("bom", "name")

    def __init__(self, name: str, bom: bytes = b"") -> None:
        self.name = name
        """utf-8, utf-16-le, utf-16-be, latin-1? (8 bits per character, which set is unknown), binary."""
        self.bom = bom


BINARY = Encoding("binary")


class Document:
    """The content of a text file."""

    __slots__ = ("body", "encoding", "kinds")

    def __init__(self, body: bytes, kinds: bytearray, encoding: Encoding) -> None:
        self.body = body
        self.kinds = kinds
        """For the n-th LF of the body: LF, CRLF or CR in the file."""
        self.encoding = encoding

    def encode(self) -> bytes:
        """The file's bytes."""
        raw = self._restore_ends()
        if self.encoding.name in UTF16:
            raw = raw.decode("utf-8", "surrogatepass").encode(self.encoding.name, "surrogatepass")
        return self.encoding.bom + raw

    def _restore_ends(self) -> bytes:
        kinds = self.kinds
        if not kinds or kinds.count(LF) == len(kinds):
            return self.body
        if kinds.count(kinds[0]) == len(kinds):
            return self.body.replace(b"\n", _ENDS[kinds[0]])
        lines = self.body.split(b"\n")
        last = lines.pop()
        return b"".join([line + _ENDS[kind] for line, kind in zip(lines, kinds, strict=True)]) + last


def detect_encoding(head: bytes) -> Encoding:
    """Guess from the first bytes of a file. A NUL in what is not UTF-16 makes it binary."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return BINARY
    if head.startswith(codecs.BOM_UTF8):
        return BINARY if b"\0" in head else Encoding("utf-8", codecs.BOM_UTF8)
    for name, bom in UTF16.items():
        if head.startswith(bom):
            return Encoding(name, bom) if _decodes(head[2:], name) else BINARY
    if b"\0" not in head:
        return Encoding("utf-8")
    return _guess_utf16(head)


def _guess_utf16(head: bytes) -> Encoding:
    """UTF-16 without a BOM: Western text has its NULs nearly all on one side."""
    pairs = len(head) // 2
    even, odd = head[0::2].count(0), head[1::2].count(0)
    for name, zeros, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if pairs >= 2 and zeros >= 0.4 * pairs and others == 0 and _decodes(head, name) and _is_texty(head, name):
            return Encoding(name)
    return BINARY


def _decodes(data: bytes, name: str) -> bool:
    try:
        text = codecs.getincrementaldecoder(name)("strict").decode(data)
    except UnicodeDecodeError:
        return False
    return "\0" not in text


def _is_texty(data: bytes, name: str) -> bool:
    text = codecs.getincrementaldecoder(name)("strict").decode(data[:4096])
    return sum(char.isprintable() or char in "\t\n\r" for char in text) >= 0.95 * len(text)


def parse_document(raw: bytes) -> Document | None:
    """A file's bytes as a document that encodes back to exactly these bytes; None for a binary file."""
    encoding = detect_encoding(raw[: 64 << 10])
    if encoding is BINARY:
        return None
    content = raw[len(encoding.bom) :]
    if encoding.name in UTF16:
        try:
            content = content.decode(encoding.name).encode("utf-8")
        except UnicodeDecodeError:
            return None
    if b"\0" in content:
        return None
    if encoding.name == "utf-8" and not is_utf8(content):
        encoding = Encoding("latin-1?", encoding.bom)
    body, kinds = _take_ends(content)
    return Document(body, kinds, encoding)


def is_utf8(data: bytes) -> bool:
    """Whether all bytes are UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _take_ends(content: bytes) -> tuple[bytes, bytearray]:
    lines = content.count(b"\n")
    if not lines:
        if b"\r" in content:  # the old Macintosh way; a CR beside LFs is just a character
            return content.replace(b"\r", b"\n"), bytearray([CR]) * content.count(b"\r")
        return content, bytearray()
    crlfs = content.count(b"\r\n")
    if not crlfs:
        return content, bytearray(lines)
    body = content.replace(b"\r\n", b"\n")
    if crlfs == lines:
        return body, bytearray([CRLF]) * lines
    # NUL cannot occur here (binary files never come this far), so it can stand for CRLF while the rest is dropped.
    ends = content.replace(b"\r\n", b"\0").translate(None, _KEEP_ENDS)
    return body, bytearray(ends.translate(bytes([CRLF]) + bytes(9) + bytes([LF]) + bytes(245)))


def name_newline(kinds: bytearray) -> str:
    """The newline style for the wire: lf, crlf, cr, mixed, or nothing for a single line."""
    used = {kind for kind in (LF, CRLF, CR) if kind in kinds}
    if len(used) > 1:
        return "mixed"
    return ("lf", "crlf", "cr")[used.pop()] if used else ""


def choose_kinds(kinds: bytearray, first: int, removed: int, added: int) -> bytearray:
    """Line ends for text that replaces `removed` line ends from number `first` on: the same, then the nearest one's."""
    kept = kinds[first : first + min(removed, added)]
    missing = added - len(kept)
    if missing <= 0:
        return kept
    if kept:
        fill = kept[-1]
    elif first < len(kinds):
        fill = kinds[first]
    else:
        fill = kinds[-1] if kinds else LF
    return kept + bytearray([fill]) * missing
