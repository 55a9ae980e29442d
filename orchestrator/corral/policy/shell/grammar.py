"""The one door to the parser library: text to tree, within bounds.

The library reads bash fast, and not always as bash does. Where it is known to differ, the text is put right before
(`\\` at the end of a line inside a word), or the tree is mistrusted afterwards (`reader`, `heredoc`).
"""

from __future__ import annotations

import re

import tree_sitter
import tree_sitter_bash

# Here-documents are looked for again and again by the library's scanner: 32,000 of them cost seconds.
MAX_HEREDOCS = 200
# The library reports every hundred steps. A usual 64 KB takes 800 reports, a very dense one 1,500; one that is made to
# be slow (`a|a|a|...` is quadratic) would never end.
_STEPS = 500
# The text is asked for at its start and its end, and each time the library goes back, at up to 0.1 ms. Usual are two.
MAX_READS = 2_000
# Up to this size the worst that is known takes 0.1 s, and counting would only cost.
UNBOUNDED = 4_096
_BYTES_PER_STEP = 32

_PLAIN_CONTEXT = frozenset(
    ("raw_string", "string", "string_content", "comment", "heredoc_body", "heredoc_content", "ansi_c_string")
)
_LOST = re.compile(rb"(?<!\\)(?:\\\\)*\n[ \t]*\\")
_BLANK = b" \t\n"


class Grammar:
    """A parser of bash. Its tree is None where the bounds were passed."""

    def __init__(self) -> None:
        self._language = tree_sitter.Language(tree_sitter_bash.language())

    def parse(self, source: bytes) -> tuple[tree_sitter.Node | None, bytes]:
        """The root of the tree and the text it belongs to."""
        tree = self._parse(source)
        if tree is not None and b"\\\n" in source:
            # A second round sees what the first has put together.
            for _ in range(2):
                joined = _join_lines(tree, source)
                if joined == source:
                    break
                source = joined
                tree = self._parse(source)
                if tree is None:
                    break
        return (None if tree is None else tree.root_node), source

    def _parse(self, source: bytes) -> tree_sitter.Tree | None:
        if source.count(b"<<") > MAX_HEREDOCS:
            return None
        # A parser that was stopped keeps its place, and one is made in a microsecond.
        parser = tree_sitter.Parser(self._language)
        if len(source) <= UNBOUNDED:
            return parser.parse(source)
        bounds = _Bounds(source)
        try:
            tree = parser.parse(bounds.read, progress_callback=bounds.stop)
        except ValueError:  # stopped
            return None
        return None if bounds.is_over else tree


class _Bounds:
    """Hands out the text, and counts."""

    def __init__(self, source: bytes) -> None:
        self._view = memoryview(source)
        self._reads = MAX_READS
        self._steps = _STEPS + len(source) // _BYTES_PER_STEP
        self.is_over = False

    def read(self, offset: int, _: object) -> memoryview:
        self._reads -= 1
        if self._reads < 0:
            self.is_over = True
            return self._view[:0]
        return self._view[offset:]

    def stop(self, _offset: int, _has_error: bool) -> bool:
        self._steps -= 1
        self.is_over = self.is_over or self._steps < 0
        return self.is_over


def loses_line(root: tree_sitter.Node, source: bytes) -> bool:
    """Whether a line begins with `\\` outside quotes: the library then takes it for a part of the line before."""
    # SECURITY: `ls`, newline, `\\rm x` would be `ls` with two arguments;
    # test_a_line_that_begins_with_a_backslash_is_not_taken_for_understood
    for match in _LOST.finditer(source):
        node = root.descendant_for_byte_range(match.start(), match.start() + 1)
        if node is None or node.type not in _PLAIN_CONTEXT:
            return True
    return False


def _join_lines(tree: tree_sitter.Tree, source: bytes) -> bytes:
    """Take out each `\\`-newline that stands inside a word, where the library ends the word and the shell does not."""
    kept = bytearray()
    start = 0
    at = source.find(b"\\\n")
    while at >= 0:
        before = source[:at]
        escaped = (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
        glued = at > 0 and source[at - 1] not in _BLANK and at + 2 < len(source) and source[at + 2] not in _BLANK
        if glued and not escaped:
            node = tree.root_node.descendant_for_byte_range(at, at + 1)
            if node is not None and node.type not in _PLAIN_CONTEXT:
                kept += source[start:at]
                start = at + 2
        at = source.find(b"\\\n", at + 2)
    return bytes(kept + source[start:]) if start else source
