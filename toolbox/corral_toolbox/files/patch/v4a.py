"""Reads the `*** Begin Patch` format. Stricter than its origin: nothing is guessed, every doubt names its line."""

from __future__ import annotations

import re

from corral_toolbox.files.patch.model import KEEP, Action, Chunk, ParsedPatch, Section, refuse_patch
from corral_toolbox.files.patch.source import split_patch
from corral_toolbox.files.text.visible import cut, show_bytes

_BEGIN = b"*** Begin Patch"
_END = b"*** End Patch"
_ADD = b"*** Add File: "
_DELETE = b"*** Delete File: "
_UPDATE = b"*** Update File: "
_MOVE = b"*** Move to: "
_END_OF_FILE = b"*** End of File"
_HEADERS = "`*** Add File: `, `*** Update File: ` or `*** Delete File: `"


def is_v4a(text: bytes) -> bool:
    """Whether a patch is in this format."""
    # In a diff every line of a file has a tag before it, so there the marker never begins a line.
    return text.lstrip().startswith(_BEGIN) or any(line.rstrip() == _BEGIN for line in text.split(b"\n"))


def parse_v4a(text: bytes) -> ParsedPatch:
    """Parse; raises patch_invalid with the line."""
    return _Parser(split_patch(text)).parse()


class _Parser:
    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.at = 0
        self.notices: list[str] = []

    def parse(self) -> ParsedPatch:
        while self.at < len(self.lines) and not self.lines[self.at].strip():
            self.at += 1
        if self.at == len(self.lines) or self.lines[self.at].strip() != _BEGIN:
            raise refuse_patch(self.at + 1, f"the first line must be {_BEGIN.decode()!r}")
        self.at += 1
        sections: list[Section] = []
        while not self._is_end():
            if not self.lines[self.at].strip():
                self.at += 1
                continue
            sections.append(self._parse_section())
        rest = next((n for n, line in enumerate(self.lines[self.at + 1 :], self.at + 2) if line.strip()), None)
        if rest is not None:
            raise refuse_patch(rest, "there is text after `*** End Patch`")
        if not sections:
            raise refuse_patch(self.at + 1, "the patch is empty", f"add a section: {_HEADERS}")
        return ParsedPatch(sections, self.notices)

    def _is_end(self) -> bool:
        if self.at >= len(self.lines):
            raise refuse_patch(len(self.lines), "the patch ends without `*** End Patch`", "send the whole patch")
        return self.lines[self.at].strip() == _END

    def _parse_section(self) -> Section:
        line, number = self.lines[self.at], self.at + 1
        self.at += 1
        for header, action in ((_ADD, Action.ADD), (_DELETE, Action.DELETE), (_UPDATE, Action.UPDATE)):
            if line.startswith(header):
                section = Section(action, _take_path(line, header, number), number)
                if action is Action.ADD:
                    section.content = self._parse_content()
                elif action is Action.UPDATE:
                    self._parse_update(section)
                return section
        raise refuse_patch(number, f"expected a file header, found {_quote(line)}", f"start a section with {_HEADERS}")

    def _parse_content(self) -> bytes:
        start = self.at
        while self.at < len(self.lines) and self.lines[self.at].startswith(b"+"):
            self.at += 1
        content = self.lines[start : self.at]
        if self.at < len(self.lines) and self._is_stray():
            raise refuse_patch(
                self.at + 1, f"a line of a new file must start with `+`, found {_quote(self.lines[self.at])}"
            )
        return b"".join(line[1:] + b"\n" for line in content)

    def _is_stray(self) -> bool:
        """Not a header and not just blank space before one."""
        if self.lines[self.at].startswith(b"*** "):
            return False
        following = next((line for line in self.lines[self.at :] if line.strip()), b"*** ")
        return not following.startswith(b"*** ")

    def _parse_update(self, section: Section) -> None:
        if self.at < len(self.lines) and self.lines[self.at].startswith(_MOVE):
            section.move_to = _take_path(self.lines[self.at], _MOVE, self.at + 1)
            self.at += 1
        while not self._is_end():
            line = self.lines[self.at]
            if line.startswith(b"*** ") and not line.startswith(_END_OF_FILE):
                break
            if not line.strip() and (section.chunks or self._is_blank_before_marker()):
                self.at += 1
                continue
            section.chunks.append(self._parse_chunk(is_first=not section.chunks))
        if not section.chunks and section.move_to is None:
            raise refuse_patch(section.at_line, "an update without any change", "add a chunk, or leave the section out")

    def _is_blank_before_marker(self) -> bool:
        following = next((line for line in self.lines[self.at :] if line.strip()), b"")
        return following.startswith((b"@@", b"*** "))

    def _parse_chunk(self, *, is_first: bool) -> Chunk:
        chunk = Chunk(self.at + 1)
        marked = False
        while self.at < len(self.lines) and self.lines[self.at].startswith(b"@@"):
            marked = True
            anchor = self.lines[self.at][2:].removeprefix(b" ")
            if anchor.strip() and not re.fullmatch(rb"\s*-\d+(,\d+)? \+\d+(,\d+)? @@.*", anchor):
                chunk.anchors.append(anchor)
            self.at += 1
        if not marked and not is_first:
            raise refuse_patch(self.at + 1, f"expected `@@` or a file header, found {_quote(self.lines[self.at])}")
        self._parse_lines(chunk)
        if not chunk.lines:
            found = _quote(self.lines[self.at]) if self.at < len(self.lines) else "the end"
            raise refuse_patch(
                self.at + 1,
                f"a chunk needs lines that start with space, `-` or `+`; found {found}",
                "unchanged lines start with one extra space",
            )
        return chunk

    def _parse_lines(self, chunk: Chunk) -> None:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith(_END_OF_FILE) and line.strip() == _END_OF_FILE:
                chunk.at_end = True
                self.at += 1
                return
            if line[:1] in (b" ", b"-", b"+"):
                chunk.lines.append((line[0], line[1:]))
            elif not line.strip() and not self._is_blank_before_marker() and self._has_lines_below():
                chunk.lines.append((KEEP, b""))
            elif line.startswith((b"@@", b"*** ")) or not line.strip():
                return
            else:
                raise refuse_patch(
                    self.at + 1,
                    f"a line of a chunk must start with space, `-` or `+`; found {_quote(line)}",
                    "unchanged lines start with one extra space",
                )
            self.at += 1

    def _has_lines_below(self) -> bool:
        return any(line.strip() for line in self.lines[self.at :])


def _take_path(line: bytes, header: bytes, number: int) -> bytes:
    path = line[len(header) :].removesuffix(b"\r")
    if not path.strip():
        raise refuse_patch(number, "the header names no file")
    return path


def _quote(line: bytes) -> str:
    return repr(cut(show_bytes(line), 100))
