"""Decides where a chunk belongs. One place, or an error that lists the places: never the first that happens to fit."""

from __future__ import annotations

from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.patch.lines import FileLines, Tolerance
from corral_toolbox.files.patch.model import KEEP, PUT, Chunk
from corral_toolbox.files.text.visible import cut, show_bytes

_MAX_BASES = 200


class Hit:
    """Where a chunk's old lines stand."""

    def __init__(
        self, start: int, tolerance: Tolerance, lines: list[tuple[int, bytes]], notices: tuple[str, ...] = ()
    ) -> None:
        self.start = start
        self.tolerance = tolerance
        self.lines = lines
        """The chunk's lines as they are used."""
        self.notices = notices

    @property
    def count(self) -> int:
        """How many lines of the file are covered."""
        return sum(tag != PUT for tag, _ in self.lines)

    @property
    def end(self) -> int:
        """The line after the last one covered."""
        return self.start + self.count


class ChunkError(Exception):
    """A chunk does not fit; the caller adds path and similar lines."""

    def __init__(
        self, code: ErrorCode, message: str, hint: str, places: list[int] | None = None, wanted: bytes = b""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.places = places or []
        self.wanted = wanted
        """The lines that were not found, to look for similar ones."""


def locate_chunk(file: FileLines, chunk: Chunk, after: int) -> Hit:
    """The one place of a chunk at or after a line. Raises ChunkError."""
    if chunk.old_unterminated and not file.is_unterminated:
        raise ChunkError(
            ErrorCode.NO_MATCH,
            "the patch says that the file has no line end at its end, but it has one",
            "read it again",
        )
    if not chunk.old:
        return Hit(_locate_insertion(file, chunk, after), Tolerance.NONE, chunk.lines)
    hit = _locate_old(file, chunk, chunk.lines, after)
    if hit is None and chunk.lines[-1] == (KEEP, b"") and chunk.start is None and len(chunk.old) > 1:
        hit = _locate_old(file, chunk, chunk.lines[:-1], after)  # models often add an empty line at the end
    if hit is None:
        raise _explain_miss(file, chunk, after)
    return hit


def _locate_old(file: FileLines, chunk: Chunk, lines: list[tuple[int, bytes]], after: int) -> Hit | None:
    old = [text for tag, text in lines if tag != PUT]
    bases = _find_bases(file, chunk, after)
    last = len(file) - len(old)
    must_end = chunk.at_end or chunk.old_unterminated or chunk.new_unterminated
    stated = chunk.start
    for tolerance in Tolerance:
        is_possible = stated is not None and stated >= after and (not must_end or stated == last)
        if stated is not None and is_possible and file.matches_at(old, tolerance, stated):
            return Hit(stated, tolerance, lines)
        if must_end:
            places = [last] if last >= after and file.matches_at(old, tolerance, last) else []
        else:
            places = file.find(old, tolerance, after)
        if chunk.anchors:
            places = _narrow(places, bases)
        if len(places) > 1:
            raise _explain_ambiguity(places, tolerance, chunk)
        if places:
            moved = () if stated is None else (f"applied at line {places[0] + 1}, the patch said {stated + 1}",)
            return Hit(places[0], tolerance, lines, moved)
    return None


def _find_bases(file: FileLines, chunk: Chunk, after: int) -> list[int]:
    """Lines from which to search: each place the anchors may mean, the anchor's own line included."""
    bases = [after]
    for number, anchor in enumerate(chunk.anchors):
        found = _find_anchor(file, anchor, bases[0])
        if number:
            firsts = (next((place for place in found if place >= base), None) for base in bases)
            bases = sorted({place for place in firsts if place is not None})
        else:
            bases = found
        if not bases:
            shown = cut(show_bytes(anchor), 100)
            raise ChunkError(
                ErrorCode.NO_MATCH,
                f"the line {shown!r} after `@@` does not occur from line {after + 1} on",
                "copy a whole line of the file after `@@`, and order chunks as in the file",
            )
    return bases[:_MAX_BASES]


def _find_anchor(file: FileLines, anchor: bytes, start: int) -> list[int]:
    for tolerance in Tolerance:
        if places := file.find([anchor], tolerance, start):
            return places
    return []


def _narrow(places: list[int], bases: list[int]) -> list[int]:
    """The first place after each base; the base's own line counts when the chunk repeats its anchor."""
    firsts = (next((place for place in places if place >= base), None) for base in bases)
    return sorted({place for place in firsts if place is not None})


def _locate_insertion(file: FileLines, chunk: Chunk, after: int) -> int:
    """Where a chunk goes that names no old lines."""
    if chunk.start is not None:
        must_end = chunk.new_unterminated
        if after <= chunk.start <= len(file) and (not must_end or chunk.start == len(file)):
            return chunk.start
        raise ChunkError(
            ErrorCode.NO_MATCH,
            f"lines are to be added after line {chunk.start}, but the file has {len(file)} lines",
            "add unchanged lines around the new ones",
        )
    if chunk.at_end or not len(file):
        return len(file)
    if not chunk.anchors:
        raise ChunkError(
            ErrorCode.PATCH_INVALID,
            "only new lines: it does not say where they go",
            "add unchanged lines before or after them, or `@@` with the line they follow",
        )
    bases = _find_bases(file, chunk, after)
    if len(bases) > 1:
        raise _explain_ambiguity(bases, Tolerance.NONE, chunk)
    return bases[0] + 1


def _explain_ambiguity(places: list[int], tolerance: Tolerance, chunk: Chunk) -> ChunkError:
    shown = ", ".join(str(place + 1) for place in places[:20])
    how = f" when ignoring {tolerance.words}" if tolerance is not Tolerance.NONE else ""
    hint = "add unchanged lines until it is unique"
    if chunk.start is None:
        hint += ", or put `@@` with an unrepeated line above it"
    return ChunkError(ErrorCode.AMBIGUOUS_MATCH, f"fits at several places{how}: lines {shown}", hint, places[:20])


def _explain_miss(file: FileLines, chunk: Chunk, after: int) -> ChunkError:
    for tolerance in Tolerance:
        if earlier := [place for place in file.find(chunk.old, tolerance) if place < after]:
            return ChunkError(
                ErrorCode.NO_MATCH,
                f"its lines stand at line {earlier[0] + 1}, before the end of the chunk above it",
                "order the chunks as in the file and do not let them overlap",
                earlier[:20],
            )
    first = next((line for line in chunk.old if line.strip()), b"")
    return ChunkError(
        ErrorCode.NO_MATCH,
        f"its lines are not in the file as they are; it begins with {cut(show_bytes(first), 100)!r}",
        "read the file again and copy the unchanged and removed lines exactly",
        wanted=b"\n".join(chunk.old),
    )
