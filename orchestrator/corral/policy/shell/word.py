"""A word of the tree as the shell would see it after quoting, or the knowledge that only a run could tell."""

from __future__ import annotations

import re

import tree_sitter

from corral.policy.shell.model import UNKNOWN_WORD, UNKNOWN_WORDS, Word

_SPECIAL = re.compile(r"[\\*?\[\]{}$`#!~]")
SUBSTITUTION = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[({\[])")
_PLAIN = frozenset(("word", "number", "variable_name"))
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r"\\([$`\"\\\n])")
_ANSI = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ANSI_NAMED = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SINGLE_VALUED = frozenset(("arithmetic_expansion", "process_substitution"))


def read_word(node: tree_sitter.Node, source: bytes) -> Word:
    """The word that `node` stands for."""
    kind = node.type
    if kind in _PLAIN:
        text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
        return _read_special(text) if _SPECIAL.search(text) else Word(text)
    if kind == "raw_string":
        return Word(source[node.start_byte + 1 : node.end_byte - 1].decode("utf-8", "replace"))
    if kind in ("string", "translated_string"):
        return _read_string(node, source)
    if kind == "concatenation":
        return _read_concatenation(node, source)
    if kind == "ansi_c_string":
        return _read_ansi(source[node.start_byte + 2 : node.end_byte - 1].decode("utf-8", "replace"))
    if kind == "command_name" and node.child_count == 1:
        return read_word(node.children[0], source)
    if kind == "brace_expression":
        return Word(source[node.start_byte : node.end_byte].decode("utf-8", "replace"), many=True)
    return UNKNOWN_WORD if kind in _SINGLE_VALUED else UNKNOWN_WORDS


def _read_special(text: str) -> Word:
    plain = _ESCAPED.sub("", text)
    many = any(character in plain for character in "*?[{")
    if "$" in plain.rstrip("$") or "`" in plain:
        return UNKNOWN_WORDS
    return Word(_ESCAPED.sub(lambda match: "" if match[1] == "\n" else match[1], text), many=many)


def _read_string(node: tree_sitter.Node, source: bytes) -> Word:
    if node.type == "translated_string":
        node = node.children[-1]
    if any(child.type != "string_content" for child in node.named_children):
        return UNKNOWN_WORD
    text = source[node.start_byte + 1 : node.end_byte - 1].decode("utf-8", "replace")
    if SUBSTITUTION.search(text):  # and the tree has not seen it
        return UNKNOWN_WORD
    if "\\" in text:
        text = _ESCAPED_IN_QUOTES.sub(lambda match: "" if match[1] == "\n" else match[1], text)
    return Word(text)


def _read_concatenation(node: tree_sitter.Node, source: bytes) -> Word:
    known, many, texts = True, False, []
    end = node.start_byte
    for part in node.children:
        if part.start_byte != end:  # a gap inside one word: not read as the shell would
            return UNKNOWN_WORDS
        end = part.end_byte
        if part.type == "$":
            # `$` before `"` marks a text to be translated; anything else behind it was an expansion.
            word = Word("" if source[end : end + 1] == b'"' else "$")
            known = known and (end == node.end_byte or word.text == "")
        else:
            word = read_word(part, source)
        many = many or word.many
        if word.text is None:
            known = False
        else:
            texts.append(word.text)
    return Word("".join(texts) if known else None, many)


def _read_ansi(text: str) -> Word:
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] in "xuU" and len(escape) > 1:
            return _character(int(escape[1:], 16))
        if escape[0] in "01234567":
            return _character(int(escape, 8) & 0xFF)
        if escape[0] == "c":
            return chr(ord(escape[1]) & 0x1F) if len(escape) == 2 else "\\c"
        return _ANSI_NAMED.get(escape, escape if escape in "\\'\"?" else f"\\{escape}")

    # The shell ends such a word at a NUL.
    return Word(_ANSI.sub(replace, text).split("\0")[0])


def _character(code: int) -> str:
    return chr(code) if code < 0x110000 else "\ufffd"
