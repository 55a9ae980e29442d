"""Reads unified diffs, plain or as git writes them. Wrong counts are tolerated and told; lost lines are not."""

from __future__ import annotations

import re

from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.patch.model import DROP, KEEP, PUT, Action, Chunk, ParsedPatch, Section, refuse_patch
from corral_toolbox.files.patch.source import split_patch, unquote_name
from corral_toolbox.files.text.visible import cut, show_bytes

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_PREFIXES = {(b"a/", b"b/"), (b"i/", b"w/"), (b"c/", b"i/"), (b"c/", b"w/"), (b"o/", b"w/"), (b"w/", b"i/")}
_BETWEEN = (b"diff ", b"Index: ", b"=====", b"Only in ", b"index ")
_BINARY_HINT = "send the content with write_file, or make the file with the shell"


class _Header:
    """What the lines before the first hunk of a file say."""

    def __init__(self, at_line: int) -> None:
        self.at_line = at_line
        self.git_names: tuple[bytes, bytes] | None = None
        self.old: bytes | None = None
        self.new: bytes | None = None
        self.has_names = False
        self.rename_from: bytes | None = None
        self.rename_to: bytes | None = None
        self.is_new = False
        self.is_deleted = False
        self.mode = b""


def is_unified(text: bytes) -> bool:
    """Whether a patch looks like a unified diff."""
    return re.search(rb"^(diff --git |@@ -\d|--- [^\n]*\n\+\+\+ )", text, re.MULTILINE) is not None


def parse_unified(text: bytes) -> ParsedPatch:
    """Parse; raises patch_invalid with the line, or unsupported for binary patches, links and submodules."""
    return _Parser(split_patch(text)).parse()


class _Parser:
    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.at = 0
        self.sections: list[Section] = []
        self.notices: list[str] = []

    def parse(self) -> ParsedPatch:
        is_loose = True  # before the first header, and after a mail's signature, any text may stand
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith(b"diff --git ") or self._is_file_header(self.at):
                self.sections.append(self._parse_section())
                is_loose = False
            elif line.startswith(b"@@ "):
                raise refuse_patch(
                    self.at + 1, "a hunk without file names", "put `--- a/PATH` and `+++ b/PATH` before it"
                )
            elif line.rstrip() == b"--" or line.startswith(b"From "):
                is_loose = True
                self.at += 1
            elif is_loose or not line.strip() or line.startswith(_BETWEEN):
                self.at += 1
            else:
                raise refuse_patch(
                    self.at + 1,
                    f"expected a hunk or a file header, found {_quote(line)}",
                    "every line of a hunk starts with space, `-` or `+`",
                )
        if not self.sections:
            raise refuse_patch(1, "the patch changes no file", "put `--- a/PATH` and `+++ b/PATH` before the hunks")
        return ParsedPatch(self.sections, self.notices)

    def _is_file_header(self, at: int) -> bool:
        lines = self.lines
        return lines[at].startswith(b"--- ") and at + 1 < len(lines) and lines[at + 1].startswith(b"+++ ")

    def _parse_section(self) -> Section:
        header = _Header(self.at + 1)
        if self.lines[self.at].startswith(b"diff --git "):
            header.git_names = _split_git_names(self.lines[self.at][11:], self.at + 1)
            self.at += 1
            while self.at < len(self.lines) and self._parse_extended(header):
                self.at += 1
        if self.at < len(self.lines) and self._is_file_header(self.at):
            header.old = _take_name(self.lines[self.at][4:], self.at + 1)
            header.new = _take_name(self.lines[self.at + 1][4:], self.at + 2)
            header.has_names = True
            self.at += 2
        section = _make_section(header)
        while self.at < len(self.lines) and self.lines[self.at].startswith(b"@@"):
            section.chunks.append(self._parse_hunk())
        _complete(section)
        return section

    def _parse_extended(self, header: _Header) -> bool:
        """One line between `diff --git` and the names; False when it is none."""
        line = self.lines[self.at].removesuffix(b"\r")
        number = self.at + 1
        if line.startswith((b"GIT binary patch", b"Binary files ")):
            raise refuse_patch(number, "binary patches are not applied", _BINARY_HINT, ErrorCode.UNSUPPORTED)
        key, _, value = line.partition(b" mode ")
        if key in (b"old", b"new", b"new file", b"deleted file") and re.fullmatch(rb"[0-7]{6}", value):
            if not value.startswith(b"100"):
                kind = "symbolic links" if value.startswith(b"12") else "submodules"
                raise refuse_patch(number, f"{kind} are not patched", "use the shell for them", ErrorCode.UNSUPPORTED)
            header.is_new = header.is_new or key == b"new file"
            header.is_deleted = header.is_deleted or key == b"deleted file"
            header.mode = value if key in (b"new", b"new file") else header.mode
        elif line.startswith(b"rename from "):
            header.rename_from = _take_plain_name(line[12:], number)
        elif line.startswith(b"rename to "):
            header.rename_to = _take_plain_name(line[10:], number)
        elif line.startswith(b"copy "):
            raise refuse_patch(number, "copies are not applied", "make the diff without copies", ErrorCode.UNSUPPORTED)
        else:
            return line.startswith((b"index ", b"similarity index ", b"dissimilarity index "))
        return True

    def _parse_hunk(self) -> Chunk:
        chunk = Chunk(self.at + 1)
        match = _HUNK.match(self.lines[self.at])
        self.at += 1
        body = self.at
        if match:
            old_start, old_count, new_count = int(match[1]), int(match[2] or 1), int(match[4] or 1)
            chunk.start = max(0, old_start - 1) if old_count else old_start
            if self._read_counted(chunk, old_count, new_count):
                return chunk
            self.notices.append(
                f"patch line {chunk.at_line}: the line counts of the hunk are wrong; its lines were used"
            )
            chunk.lines.clear()
            chunk.old_unterminated = chunk.new_unterminated = False
        self.at = body
        self._read_tagged(chunk)
        if not chunk.lines:
            raise refuse_patch(chunk.at_line, "a hunk without lines")
        return chunk

    def _read_counted(self, chunk: Chunk, old: int, new: int) -> bool:
        """Read as many lines as the header says; False when that cannot be what was meant."""
        while old > 0 or new > 0:
            line = self.lines[self.at] if self.at < len(self.lines) else b"?"
            tag = line[0] if line else KEEP
            old -= tag != PUT
            new -= tag != DROP
            if tag not in (KEEP, DROP, PUT) or old < 0 or new < 0:
                return False
            self._take_line(chunk, tag, line)
        following = next((at for at in range(self.at, len(self.lines)) if self.lines[at].strip()), None)
        if following is None or self.lines[following].rstrip() == b"--" or self._is_file_header(following):
            return True
        return self.lines[following][0] not in (KEEP, DROP, PUT)

    def _read_tagged(self, chunk: Chunk) -> None:
        """Read while lines look like lines of a hunk; blank lines at its end are not part of it."""
        while self.at < len(self.lines) and not self._is_file_header(self.at):
            line = self.lines[self.at]
            if line.rstrip() == b"--" or (line and line[0] not in (KEEP, DROP, PUT)):
                break
            self._take_line(chunk, line[0] if line else KEEP, line)
        while chunk.lines and chunk.lines[-1] == (KEEP, b"") and not self.lines[self.at - 1]:
            chunk.lines.pop()
            self.at -= 1

    def _take_line(self, chunk: Chunk, tag: int, line: bytes) -> None:
        chunk.lines.append((tag, line[1:]))
        self.at += 1
        if self.at < len(self.lines) and self.lines[self.at].startswith(b"\\"):
            chunk.old_unterminated = chunk.old_unterminated or tag != PUT
            chunk.new_unterminated = chunk.new_unterminated or tag != DROP
            self.at += 1


def _make_section(header: _Header) -> Section:
    old, new = _choose_names(header)
    number = header.at_line
    executable = header.mode.endswith(b"755") if header.mode else None
    if header.is_new or (header.has_names and header.old is None):
        if new is None:
            raise refuse_patch(number, "a new file without a name")
        return Section(Action.ADD, new, number, is_executable=executable)
    if header.is_deleted or (header.has_names and header.new is None):
        if old is None:
            raise refuse_patch(number, "a deleted file without a name")
        return Section(Action.DELETE, old, number, checks_content=True)
    if old is None or new is None:
        raise refuse_patch(
            number, "the file's name cannot be read", "put `--- a/PATH` and `+++ b/PATH` before the hunks"
        )
    if header.rename_from is not None and header.rename_to is not None:
        return Section(Action.UPDATE, old, number, move_to=new, is_executable=executable)
    return Section(Action.UPDATE, new, number, is_executable=executable)


def _choose_names(header: _Header) -> tuple[bytes | None, bytes | None]:
    if header.rename_from is not None and header.rename_to is not None:
        return header.rename_from, header.rename_to
    git = header.git_names
    if git is not None and git[0] == git[1]:
        return git  # made with --no-prefix
    if header.has_names:
        return _strip_prefixes(header.old, header.new)
    return _strip_prefixes(*git) if git is not None else (None, None)


def _strip_prefixes(old: bytes | None, new: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Take off git's a/ and b/ (or its mnemonic forms), only where both names agree that they are there."""
    if old is not None and new is not None:
        return (old[2:], new[2:]) if (old[:2], new[:2]) in _PREFIXES else (old, new)
    if old is not None:
        return (old[2:] if any(old[:2] == pair[0] for pair in _PREFIXES) else old), None
    if new is not None:
        return None, new[2:] if any(new[:2] == pair[1] for pair in _PREFIXES) else new
    return None, None


def _complete(section: Section) -> None:
    """Check that the hunks fit the kind of section; take a new file's content together."""
    if section.action is Action.ADD:
        lines = [(tag, text) for chunk in section.chunks for tag, text in chunk.lines]
        if len(section.chunks) > 1 or any(tag != PUT for tag, _ in lines):
            raise refuse_patch(section.at_line, "a new file has only `+` lines, in one hunk")
        section.content = b"".join(text + b"\n" for _, text in lines)
        if section.chunks and section.chunks[0].new_unterminated:
            section.content = section.content[:-1]
        section.chunks = []
    elif section.action is Action.DELETE:
        if any(tag == PUT for chunk in section.chunks for tag, _ in chunk.lines):
            raise refuse_patch(section.at_line, "a deleted file has no `+` lines")
    elif not section.chunks and section.move_to is None and section.is_executable is None:
        raise refuse_patch(section.at_line, "an update without any hunk", "leave the file out, or add its hunks")


def _split_git_names(text: bytes, number: int) -> tuple[bytes, bytes] | None:
    """The two names of a `diff --git` line; None when they cannot be told apart (then other lines name them)."""
    text = text.removesuffix(b"\r")
    if text.startswith(b'"'):
        first, rest = unquote_name(text, number)
        rest = rest.removeprefix(b" ")
        return first, unquote_name(rest, number)[0] if rest.startswith(b'"') else rest
    if text.endswith(b'"'):
        at = text.find(b' "')
        return text[:at], unquote_name(text[at + 1 :], number)[0]
    middle = len(text) // 2
    first, second = text[:middle], text[middle + 1 :]
    if text[middle : middle + 1] != b" ":
        return None
    if first == second or ((first[:2], second[:2]) in _PREFIXES and first[2:] == second[2:]):
        return first, second
    return None


def _take_name(text: bytes, number: int) -> bytes | None:
    """The name of a `---` or `+++` line; None for /dev/null."""
    text = text.removesuffix(b"\r")
    name = unquote_name(text, number)[0] if text.startswith(b'"') else text.split(b"\t")[0]
    if not name:
        raise refuse_patch(number, "the file's name is missing")
    return None if name == b"/dev/null" else name


def _take_plain_name(text: bytes, number: int) -> bytes:
    return unquote_name(text, number)[0] if text.startswith(b'"') else text


def _quote(line: bytes) -> str:
    return repr(cut(show_bytes(line), 100))
