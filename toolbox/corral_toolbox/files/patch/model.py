"""What a patch says, whichever format it came in: a list of file sections with chunks of lines."""

from __future__ import annotations

from enum import StrEnum

from corral_protocol.failure import WireError
from corral_toolbox.files.code import ErrorCode


class Action(StrEnum):
    """What a section does to its file."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


KEEP, DROP, PUT = 0x20, 0x2D, 0x2B  # space, minus, plus


class Chunk:
    """Lines that are there and what they become. Lines carry no line end."""

    def __init__(self, at_line: int) -> None:
        self.at_line = at_line
        """Line of the patch where it begins, for messages."""
        self.lines: list[tuple[int, bytes]] = []
        """(tag, text): tag is one of KEEP, DROP, PUT."""
        self.anchors: list[bytes] = []
        """Lines to seek to first (V4A)."""
        self.start: int | None = None
        """0-based line where the old lines should begin (unified diff)."""
        self.at_end = False
        """The old lines are the last ones of the file."""
        self.old_unterminated = False
        """The last old line has no line end (`\\ No newline at end of file`)."""
        self.new_unterminated = False

    @property
    def old(self) -> list[bytes]:
        """The lines that must be there."""
        return [text for tag, text in self.lines if tag != PUT]


class Section:
    """What a patch does to one file."""

    def __init__(
        self,
        action: Action,
        path: bytes,
        at_line: int,
        *,
        move_to: bytes | None = None,
        content: bytes | None = None,
        is_executable: bool | None = None,
        checks_content: bool = False,
    ) -> None:
        self.action = action
        self.path = path
        self.at_line = at_line
        self.move_to = move_to
        self.chunks: list[Chunk] = []
        self.content = content
        """For ADD: the whole file."""
        self.is_executable = is_executable
        """None: leave the mode alone."""
        self.checks_content = checks_content
        """For DELETE: the chunks must be the whole file."""


class ParsedPatch:
    """All sections, and what had to be tolerated to read them."""

    def __init__(self, sections: list[Section], notices: list[str]) -> None:
        self.sections = sections
        self.notices = notices


def refuse_patch(line: int, message: str, hint: str = "", code: ErrorCode = ErrorCode.PATCH_INVALID) -> WireError:
    """The error for a patch that cannot be read; the line is counted from one."""
    data: dict[str, object] = {"line": line}
    if hint:
        data["hint"] = hint
    return WireError(code, f"patch line {line}: {message}", data)
