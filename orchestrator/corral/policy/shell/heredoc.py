"""Here-documents, read by the shell's own rule: the parser library is believed only where it found the same end."""

from __future__ import annotations

import re
from dataclasses import dataclass

import tree_sitter

_EXPANSION = re.compile(r"(?<!\\)(?:\\\\)*(\$[({\[A-Za-z_0-9@*#?$!-]|`)")
_NESTED = re.compile(rb"(?<!\\)(?:\\\\)*\$[({\[]")
_ESCAPED = re.compile(r"\\([$`\\\n])")
_WORD_END = (b" ", b"\t", b"\n", b";", b"|", b"&", b"<", b">", b"(", b")")
_QUOTES = re.compile(rb"['\"\\]")


@dataclass(frozen=True, slots=True)
class Heredoc:
    """The body of one here-document."""

    text: str | None  # None: expansions make it known at run time only
    raw: bytes
    expands: bool  # the delimiter is not quoted


def read_heredoc(node: tree_sitter.Node, source: bytes) -> Heredoc | None:
    """The document of one `heredoc_redirect`; None where the tree and the shell would not agree on it."""
    parts = {child.type: child for child in node.children}
    start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
    first = source.find(b"\n", start.end_byte) + 1 if start is not None else 0
    if start is None or end is None or not first:
        return None
    rest = source[start.end_byte : first]
    # A quotation or another document that begins on this line moves the place where the body begins.
    if rest.count(b"'") % 2 or rest.count(b'"') % 2 or b"<<" in rest.replace(b"<<<", b"") or rest.endswith(b"\\\n"):
        return None
    word = source[start.start_byte : start.end_byte]
    # The delimiter is a whole word to the shell: what touches it belongs to it.
    if rest[:1] not in _WORD_END or word.count(b"'") % 2 or word.count(b'"') % 2 or b"\n" in word:
        return None
    delimiter = _QUOTES.sub(b"", word)
    strip_tabs = source[node.start_byte : start.start_byte].strip().endswith(b"<<-")
    last = _find_end(source, first, delimiter, strip_tabs, literal=delimiter != word)
    if last is None or source.rfind(b"\n", 0, end.start_byte) + 1 != last:
        return None
    raw = source[first:last]
    if strip_tabs:
        raw = re.sub(rb"(?m)^\t+", b"", raw)
    body = parts.get("heredoc_body")
    if delimiter == word and not _is_covered(body, source, first, last):
        return None
    return Heredoc(_expand(raw, literal=delimiter != word), raw, delimiter == word)


def _find_end(source: bytes, first: int, delimiter: bytes, strip_tabs: bool, *, literal: bool) -> int | None:
    """Where the line of the delimiter begins."""
    at, continued = first, False
    while at < len(source):
        stop = source.find(b"\n", at)
        stop = len(source) if stop < 0 else stop
        line = source[at:stop]
        if (line.lstrip(b"\t") if strip_tabs else line) == delimiter:
            # Behind a `\` at the end of a line, this one belongs to the text.
            return None if continued else at
        continued = not literal and (len(line) - len(line.rstrip(b"\\"))) % 2 == 1
        at = stop + 1
    return None


def _is_covered(body: tree_sitter.Node | None, source: bytes, first: int, last: int) -> bool:
    """Every `$(`, `${` and `$[` of the body is a node of the tree."""
    found = [(child.start_byte, child.end_byte) for child in body.named_children] if body is not None else []
    nodes = [(start, end) for start, end in found if source[start : start + 1] == b"$"]
    place = 0
    for match in _NESTED.finditer(source, first, last):
        at = match.end() - 2
        while place < len(nodes) and nodes[place][1] <= at:
            place += 1
        if place == len(nodes) or not nodes[place][0] <= at:
            return False
    return True


def _expand(raw: bytes, *, literal: bool) -> str | None:
    text = raw.decode("utf-8", "replace")
    if literal:
        return text
    if _EXPANSION.search(text):
        return None
    return _ESCAPED.sub(lambda match: "" if match[1] == "\n" else match[1], text)


def find_backquotes(text: str) -> tuple[list[str], bool]:
    """The code between backquotes, as the shell cuts it, and whether each one is closed."""
    found: list[str] = []
    start: int | None = None
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == "`":
            if start is None:
                start = at + 1
            else:
                found.append(unescape_backquoted(text[start:at]))
                start = None
        at += 1
    return found, start is None


def unescape_backquoted(text: str) -> str:
    """Between backquotes, `\\` loses its meaning before anything but these three."""
    return re.sub(r"\\([$`\\])", r"\1", text)
