"""Reads a patch as data: strict, by our own rules, before anything acts on it.

Hunk bodies are counted by their headers, so text inside a file can never pass for a header. Accepted are git's patches
(with or without binary parts) and plain unified diffs with `a/` and `b/` in front of the names; anything a name or mode
could do outside the tree is refused here, whatever git thinks of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from corral.errors import PatchInvalid
from corral.patch.name import refuse_reason
from corral.schema.visible import visible

MAX_FILES = 100_000

_HUNK = re.compile(rb"@@ -(\d{1,10})(?:,(\d{1,10}))? \+(\d{1,10})(?:,(\d{1,10}))? @@")
_INDEX = re.compile(rb"index ([0-9a-f]{4,40})\.\.([0-9a-f]{4,40})(?: (\d{6}))?\Z")
_MODES = {b"100644": 0o100644, b"100755": 0o100755, b"120000": 0o120000}
_ESCAPES = {ord(key): value for key, value in zip('abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True)}
_DEV_NULL = b"/dev/null"


@dataclass(frozen=True)
class Hunk:
    """One hunk. `start` and `end` are offsets of its lines in the patch, header excluded."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    start: int
    end: int


@dataclass
class FilePatch:
    """What a patch does to one file. `None` paths: the file is created or deleted."""

    line: int  # of the patch, for messages
    start: int = 0  # offsets of everything about this file in the patch
    end: int = 0
    old_path: bytes | None = None
    new_path: bytes | None = None
    old_mode: int | None = None
    new_mode: int | None = None
    old_blob: str | None = None  # hexadecimal, perhaps shortened; all zeros where there is no file
    new_blob: str | None = None
    renamed: bool = False
    copied: bool = False
    binary: bool = False
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def path(self) -> bytes:
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path


@dataclass(frozen=True)
class ParsedPatch:
    data: bytes
    files: tuple[FilePatch, ...]

    def lines(self, hunk: Hunk) -> Iterator[bytes]:
        """The lines of a hunk, markers included, without their newline."""
        yield from self.data[hunk.start : hunk.end].split(b"\n")[:-1]


def parse_patch(data: bytes) -> ParsedPatch:
    """Parse and judge a patch. Raises PatchInvalid with the line that is wrong."""
    if data and not data.endswith(b"\n"):
        raise PatchInvalid(
            "the patch does not end with a newline: it was cut or stripped on the way",
            hint="get the file again, whole and unchanged",
        )
    files = tuple(_Parser(data).run())
    if data.strip() and not files:
        raise PatchInvalid("this is not a patch: it names no file", hint="give a file made by corral, or by git diff")
    for file in files:
        _check_file(file)
    _check_together(files)
    return ParsedPatch(data, files)


class _Parser:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0
        self.number = 0  # of the line that was read last

    def run(self) -> Iterator[FilePatch]:
        count = 0
        while (line := self.next()) is not None:
            if line.startswith(b"diff --git "):
                file = FilePatch(self.number, self.offset - len(line) - 1)
                self.headers(file, line)
            elif line.startswith(b"--- ") and self.peek().startswith(b"+++ "):
                file = FilePatch(self.number, self.offset - len(line) - 1)
                self.plain(file, line)
            elif _HUNK.match(line) or line.startswith((b"+++ ", b"GIT binary patch")):
                raise self.wrong("a hunk without a file in front of it")
            else:
                continue  # mail headers and other prose between files mean nothing
            file.end = self.offset
            count += 1
            if count > MAX_FILES:
                raise PatchInvalid(f"the patch names more than {MAX_FILES:,} files")
            yield file

    def next(self) -> bytes | None:
        if self.offset >= len(self.data):
            return None
        end = self.data.find(b"\n", self.offset)
        end = len(self.data) if end < 0 else end
        line, self.offset = self.data[self.offset : end], end + 1
        self.number += 1
        return line

    def peek(self) -> bytes:
        end = self.data.find(b"\n", self.offset)
        return self.data[self.offset : len(self.data) if end < 0 else end]

    def wrong(self, text: str) -> PatchInvalid:
        return PatchInvalid(f"line {self.number}: {text}", hint="the patch is damaged or was not made by git")

    def headers(self, file: FilePatch, line: bytes) -> None:
        """The extended headers of git, then the body."""
        created = deleted = False
        names = _git_names(line[len(b"diff --git ") :])
        while True:
            ahead = self.peek()
            key, _, value = ahead.partition(b" ")
            if ahead.startswith((b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode ")):
                word, _, mode = ahead.rpartition(b" ")
                created, deleted = created or word == b"new file mode", deleted or word == b"deleted file mode"
                self.mode(file, word, mode)
            elif ahead.startswith((b"rename from ", b"copy from ")):
                file.renamed, file.copied = key == b"rename", key == b"copy"
                file.old_path = self.name(value.partition(b" ")[2])
            elif ahead.startswith((b"rename to ", b"copy to ")):
                file.new_path = self.name(value.partition(b" ")[2])
            elif found := _INDEX.match(ahead):
                file.old_blob, file.new_blob = found[1].decode(), found[2].decode()
                if found[3] is not None:
                    self.mode(file, b"index", found[3])
            elif not ahead.startswith((b"similarity index ", b"dissimilarity index ")):
                break
            self.next()
        self.body(file)
        self.settle_names(file, names, created=created, deleted=deleted)

    def settle_names(self, file: FilePatch, names: bytes | None, *, created: bool, deleted: bool) -> None:
        """Names come from rename headers, else from `---`/`+++`, else from the first line."""
        given = {path for path in (file.old_path, file.new_path) if path is not None}
        if not file.renamed and not file.copied:
            if len(given) > 1:
                raise self.wrong("two names in one file's headers, and no rename")
            path = next(iter(given), names)
            if path is None or (names is not None and path != names):
                raise self.wrong("the names of a file do not agree")
            file.old_path, file.new_path = (None if created else path), (None if deleted else path)
        elif file.old_path is None or file.new_path is None or created or deleted:
            raise self.wrong("an incomplete rename")
        if created and deleted:
            raise self.wrong("a file that is both new and deleted")

    def mode(self, file: FilePatch, word: bytes, text: bytes) -> None:
        mode = _MODES.get(text)
        if mode is None:
            raise self.wrong(f"mode {visible(text)!r}; only 100644, 100755 and 120000 are files")
        if word in (b"old mode", b"deleted file mode", b"index"):
            file.old_mode = mode
        if word in (b"new mode", b"new file mode", b"index"):
            file.new_mode = mode

    def name(self, text: bytes) -> bytes:
        return _unquote(text, self)

    def body(self, file: FilePatch) -> None:
        ahead = self.peek()
        if ahead.startswith(b"--- "):
            old = self.side(self.next() or b"", b"--- ")
            new = self.side(self.next() or b"", b"+++ ")
            for path, known in ((old, file.old_path), (new, file.new_path)):
                if path is not None and known is not None and path != known:
                    raise self.wrong("the names of a file do not agree")
            file.old_path, file.new_path = file.old_path or old, file.new_path or new
            self.hunks(file)
        elif ahead == b"GIT binary patch":
            self.next()
            file.binary = True
            self.binary()
        elif ahead.startswith(b"Binary files "):
            raise self.wrong("a binary change without its content: make the patch with `git diff --binary`")

    def side(self, line: bytes, marker: bytes) -> bytes | None:
        if not line.startswith(marker):
            raise self.wrong(f"expected {marker.decode().strip()!r}")
        text = line[len(marker) :]
        text = text if text.startswith(b'"') else text.partition(b"\t")[0]
        path = self.name(text.rstrip(b"\t"))
        if path == _DEV_NULL:
            return None
        head, _, rest = path.partition(b"/")
        # SECURITY: a name without a prefix is never guessed at (test_blocks_paths_that_leave_the_tree).
        if head != {b"--- ": b"a", b"+++ ": b"b"}[marker] or not rest:
            raise self.wrong(f"name {visible(path)!r} does not start with a/ or b/")
        return rest

    def plain(self, file: FilePatch, line: bytes) -> None:
        """A unified diff without git's headers."""
        file.old_path = self.side(line, b"--- ")
        file.new_path = self.side(self.next() or b"", b"+++ ")
        if file.old_path is None and file.new_path is None:
            raise self.wrong("a file with no name")
        if file.old_path is not None and file.new_path is not None and file.old_path != file.new_path:
            raise self.wrong("two names in one file's headers, and no rename")
        self.hunks(file)
        if not file.hunks:
            raise self.wrong("a file without a hunk")

    def hunks(self, file: FilePatch) -> None:
        while found := _HUNK.match(self.peek()):
            self.next()
            old_count = 1 if found[2] is None else int(found[2])
            new_count = 1 if found[4] is None else int(found[4])
            start = self.offset
            self.hunk_lines(old_count, new_count)
            file.hunks.append(Hunk(int(found[1]), old_count, int(found[3]), new_count, start, self.offset))

    def hunk_lines(self, old: int, new: int) -> None:
        while old or new or self.peek().startswith(b"\\"):
            line = self.next()
            mark = b"" if line is None else line[:1]
            if mark == b"+" and new:
                new -= 1
            elif mark == b"-" and old:
                old -= 1
            elif mark == b" " and old and new:
                old, new = old - 1, new - 1
            elif mark != b"\\" or line == b"":
                raise self.wrong("a hunk that does not have the lines its header counts")

    def binary(self) -> None:
        """One or two parts, each a head, lines of base 85, and an empty line. Only git decodes them."""
        parts = 0
        while parts < 2 and re.match(rb"(literal|delta) \d+\Z", self.peek()):
            self.next()
            while (line := self.next()) is not None and line:
                if len(line) < 2 or len(line) > 66 or not line[:1].isalpha():
                    raise self.wrong("a damaged binary part")
            parts += 1
        if not parts:
            raise self.wrong("a binary change without content")


def _git_names(text: bytes) -> bytes | None:
    """The one name in `a/NAME b/NAME`, or None when it cannot be told (renames name both elsewhere)."""
    if text.startswith(b'"') or text.endswith(b'"'):
        found = re.match(rb'("(?:[^"\\]|\\.)*"|[^"]*?) ("(?:[^"\\]|\\.)*"|[^"]*)\Z', text, re.S)
        sides = [_unquote_plain(part) for part in found.groups()] if found else []
    else:
        half = len(text) // 2
        sides = [text[:half], text[half + 1 :]] if text[half : half + 1] == b" " else []
    if len(sides) == 2 and sides[0][:2] == b"a/" and sides[1][:2] == b"b/" and sides[0][2:] == sides[1][2:]:
        return sides[0][2:]
    return None


def _unquote(text: bytes, parser: _Parser) -> bytes:
    if not text.startswith(b'"'):
        return text
    if not re.fullmatch(rb'"(?:[^"\\]|\\(?:[abtnvfr"\\]|[0-3][0-7]{2}))*"', text):
        raise parser.wrong("a damaged quoted name")
    return _unquote_plain(text)


def _unquote_plain(text: bytes) -> bytes:
    """C-style quoting undone; what is not quoted is as it is."""
    if not text.startswith(b'"'):
        return text

    def plain(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes((int(code, 8) & 0xFF,)) if code[:1].isdigit() else bytes((_ESCAPES.get(code[0], code[0]),))

    return re.sub(rb"\\([0-3][0-7]{2}|.)", plain, text[1:-1], flags=re.S)


def _check_file(file: FilePatch) -> None:
    """Refuse what no patch may do, by name and mode."""
    for path, mode in ((file.old_path, file.old_mode), (file.new_path, file.new_mode)):
        reason = None if path is None else refuse_reason(path, link=mode == 0o120000)
        if path is not None and reason is not None:
            raise PatchInvalid(f"the patch names {visible(path)!r}: {reason}", hint="this patch is not applied")
    if file.copied:
        raise PatchInvalid(f"the patch copies to {visible(file.path)!r}", hint="make it without copy detection (-C)")
    kinds = {mode == 0o120000 for mode in (file.old_mode, file.new_mode) if mode is not None}
    if len(kinds) > 1:
        raise PatchInvalid(f"the patch turns {visible(file.path)!r} from a file into a symlink in one step")


def _check_together(files: tuple[FilePatch, ...]) -> None:
    """Each path has one old and one new state, and no new file lies below another new file."""
    for paths in ([f.old_path for f in files], [f.new_path for f in files]):
        seen = set[bytes]()
        for path in paths:
            if path is not None and path in seen:
                raise PatchInvalid(f"the patch names {visible(path)!r} twice", hint="this patch is not applied")
            seen.update(() if path is None else (path,))
    made = sorted(file.new_path + b"/" for file in files if file.new_path is not None)
    for above, below in pairwise(made):
        if below.startswith(above):
            raise PatchInvalid(f"the patch has {visible(above[:-1])!r} both as a file and as a directory")
