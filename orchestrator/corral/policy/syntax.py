"""Cedar text cut into tokens and statements, with lines: cedarpy tells what is wrong, but never where."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*|[0-9]+)
    |(?P<mark>::|==|!=|<=|>=|&&|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    text: str
    line: int  # 1-based, of the file
    end: int  # offset behind it, of the file


@dataclass(frozen=True)
class Statement:
    """One policy: its tokens, and the text from the first to the last of them."""

    tokens: tuple[Token, ...]
    start: int
    text: str

    @property
    def line(self) -> int:
        return self.tokens[0].line

    def prefix(self, count: int) -> str:
        """The text up to and with the first `count` tokens."""
        return self.text[: self.tokens[count - 1].end - self.start] if count else ""


def parse_statements(source: str) -> list[Statement]:
    """Cut at every `;`: Cedar has no other use for it outside strings and comments."""
    statements: list[Statement] = []
    tokens: list[Token] = []
    start, line = 0, 1
    for match in _TOKEN.finditer(source):
        text = match.group()
        if match.lastgroup != "skip":
            if not tokens:
                start = match.start()
            tokens.append(Token(text, line, match.end()))
        line += text.count("\n")
        if text == ";":
            statements.append(Statement(tuple(tokens), start, source[start : match.end()]))
            tokens = []
    if tokens:
        statements.append(Statement(tuple(tokens), start, source[start : tokens[-1].end]))
    return statements
