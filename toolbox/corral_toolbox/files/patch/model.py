"""What a patch says, whichever format it came in: a list of file sections with chunks of lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from corral_protocol.error import ErrorCode, WireError


class Action(StrEnum):
    """What a section does to its file."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(slots=True)
class Chunk:
    """Lines that are there and what they become. Lines carry no line end."""

    at_line: int
    """Line of the patch where it begins, for messages."""
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    """(tag, text): tag is one of KEEP, DROP, PUT."""
    anchors: list[bytes] = field(default_factory=list)
    """Lines to seek to first (V4A)."""
    start: int | None = None
    """0-based line where the old lines should begin (unified diff)."""
    at_end: bool = False
    """The old lines are the last ones of the file."""
    old_unterminated: bool = False
    """The last old line has no line end (`\\ No newline at end of file`)."""
    new_unterminated: bool = False

    @property
    def old(self) -> list[bytes]:
        """The lines that must be there."""
        return [text for tag, text in self.lines if tag != PUT]


KEEP, DROP, PUT = 0x20, 0x2D, 0x2B  # space, minus, plus


@dataclass(slots=True)
class Section:
    """What a patch does to one file."""

    action: Action
    path: bytes
    at_line: int
    move_to: bytes | None = None
    chunks: list[Chunk] = field(default_factory=list)
    content: bytes | None = None
    """For ADD: the whole file."""
    is_executable: bool | None = None
    """None: leave the mode alone."""
    checks_content: bool = False
    """For DELETE: the chunks must be the whole file."""


@dataclass(slots=True)
class ParsedPatch:
    """All sections, and what had to be tolerated to read them."""

    sections: list[Section]
    notices: list[str] = field(default_factory=list)


def refuse_patch(line: int, message: str, hint: str = "", code: ErrorCode = ErrorCode.PATCH_INVALID) -> WireError:
    """The error for a patch that cannot be read; the line is counted from one."""
    data: dict[str, object] = {"line": line}
    if hint:
        data["hint"] = hint
    return WireError(code, f"patch line {line}: {message}", data)
