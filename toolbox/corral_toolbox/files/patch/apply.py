"""Applies located chunks to a document in memory. Lines that are kept stay the file's own, byte for byte."""

from __future__ import annotations

from corral_toolbox.files.patch.lines import FileLines, Tolerance
from corral_toolbox.files.patch.locate import ChunkError, Hit, locate_chunk
from corral_toolbox.files.patch.model import DROP, PUT, Chunk
from corral_toolbox.files.text.document import CR, CRLF, LF, Document


class _Result:
    """The new file as it grows: lines and their line ends; None is an end still to be chosen."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.kinds: list[int | None] = []
        self.is_unterminated = False

    def copy(self, file: FileLines, start: int, end: int) -> None:
        """Take lines of the old file as they are."""
        if start >= end:
            return
        self.lines += file.lines[start:end]
        kinds = list(file.kinds[start:end])
        self.kinds += [*kinds, *([None] * (end - start - len(kinds)))]
        self.is_unterminated = end == len(file) and file.is_unterminated

    def put(self, line: bytes, kind: int | None) -> None:
        """Add a new line."""
        self.lines.append(line)
        self.kinds.append(kind)
        self.is_unterminated = False

    def build(self, document: Document) -> Document:
        """The finished document, in the old one's encoding."""
        kinds = _choose_missing(self.kinds)
        body = b"\n".join(self.lines)
        if self.lines and not self.is_unterminated:
            body += b"\n"
        elif kinds:
            kinds.pop()
        return Document(body, kinds, document.encoding)


def apply_chunks(document: Document, chunks: list[Chunk]) -> tuple[Document, list[str]]:
    """The document with all chunks applied, and the tolerances that were used. Raises ChunkError."""
    file = FileLines(document)
    result = _Result()
    notices: list[str] = []
    done = 0
    for number, chunk in enumerate(chunks, 1):
        where = f"chunk {number} (patch line {chunk.at_line})"
        try:
            hit = locate_chunk(file, chunk, done)
        except ChunkError as error:
            raise ChunkError(error.code, f"{where}: {error}", error.hint, error.places, error.wanted) from error
        notices += [f"{where}: {notice}" for notice in _tell_tolerance(hit)]
        result.copy(file, done, hit.start)
        _apply_one(result, file, chunk, hit)
        done = hit.end
    result.copy(file, done, len(file))
    return result.build(document), notices


def _tell_tolerance(hit: Hit) -> list[str]:
    notices = list(hit.notices)
    if hit.tolerance is not Tolerance.NONE:
        notices.append(f"found by ignoring {hit.tolerance.words}; unchanged lines keep the file's own bytes")
    return notices


def _apply_one(result: _Result, file: FileLines, chunk: Chunk, hit: Hit) -> None:
    is_literal = _is_literal(file, hit)
    at = hit.start
    for tag, text in hit.lines:
        if tag == PUT:
            if is_literal:
                result.put(text.removesuffix(b"\r"), CRLF if text.endswith(b"\r") else _own_lf(file))
            else:
                result.put(text.removesuffix(b"\r"), None)
            continue
        if tag != DROP:
            result.copy(file, at, at + 1)
        at += 1
    if hit.end == len(file) and chunk.new_unterminated:
        result.is_unterminated = True


def _is_literal(file: FileLines, hit: Hit) -> bool:
    """Whether a CR at the end of a line in the patch is meant as written.

    It is when the patch shows the file's line ends as they are, or when the file has no one style to follow.
    """
    if hit.tolerance is not Tolerance.NONE:
        return False
    if any(index < len(file.kinds) for index in range(hit.start, hit.end)):
        return True
    return set(file.kinds) not in ({CRLF}, {CR})


def _own_lf(file: FileLines) -> int:
    return CR if file.kinds and file.kinds[0] == CR else LF


def _choose_missing(kinds: list[int | None]) -> bytearray:
    """Line ends that nobody named are like the line before, or the first one after."""
    previous = next((kind for kind in kinds if kind is not None), LF)
    chosen = bytearray()
    for kind in kinds:
        previous = previous if kind is None else kind
        chosen.append(previous)
    return chosen
