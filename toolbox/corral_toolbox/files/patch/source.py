"""The text of a patch as lines: wrappers that models put around it are taken off, names are unquoted."""

from __future__ import annotations

import re

from corral_toolbox.files.patch.model import refuse_patch

_HEREDOC = re.compile(
    rb"\A\s*(?:(cd)\s[^\n]*&&\s*)?(?:apply_patch\s+)?<<-?\s*(['\"]?)(\w+)\2[ \t]*\n(.*?)\n\3\s*\Z", re.DOTALL
)
_ESCAPES = {ord("a"): 7, ord("b"): 8, ord("t"): 9, ord("n"): 10, ord("v"): 11, ord("f"): 12, ord("r"): 13}
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)", re.DOTALL)


def split_patch(text: bytes) -> list[bytes]:
    """The patch's lines without line feeds; a CR stays with its line unless the whole patch was converted."""
    lines = _unwrap(text).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    # A patch whose every line ends in CRLF was converted on the way: headers never end in CR by themselves.
    if len(lines) > 1 and all(line.endswith(b"\r") for line in lines[:-1]):
        lines = [line.removesuffix(b"\r") for line in lines]
    return lines


def _unwrap(text: bytes) -> bytes:
    """Take off a shell here-document or a Markdown fence."""
    heredoc = _HEREDOC.match(text)
    if heredoc:
        if heredoc.group(1):
            raise refuse_patch(1, "the patch changes the directory first", "write paths relative to the workspace")
        return bytes(heredoc.group(4)) + b"\n"
    lines = text.strip(b"\n").split(b"\n")
    if len(lines) > 2 and lines[0].startswith(b"```") and lines[-1].strip() == b"```":
        return b"\n".join(lines[1:-1]) + b"\n"
    return text


def unquote_name(text: bytes, number: int) -> tuple[bytes, bytes]:
    """A C-quoted name at the start of a text, and what follows it."""
    match = _QUOTED.match(text)
    if match is None:
        raise refuse_patch(number, "a quoted name has no closing quote")

    def decode(escape: re.Match[bytes]) -> bytes:
        code = escape.group(1)
        if len(code) == 3:
            return bytes([int(code, 8)])
        return bytes([_ESCAPES.get(code[0], code[0])])

    return _ESCAPE.sub(decode, match.group(1)), text[match.end() :]
