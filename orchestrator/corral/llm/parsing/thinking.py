"""Reasoning that a model put into its answer's text: taken out, so that it does not pass for the answer."""

from __future__ import annotations

import re

_OPEN = re.compile(r"\A\s*<think(?:ing)?>", re.IGNORECASE)
_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
# Marks of an end of turn that some servers leave in the text.
_END_TOKENS = re.compile(
    r"(?:\s*(?:<\|im_end\|>|<\|endoftext\|>|<\|eot_id\|>|<\|eom_id\|>|<｜end▁of▁sentence｜>))+\s*\Z"
)


def split_thinking(text: str) -> tuple[str, str]:
    """(reasoning, answer). A start tag without an end makes all of it reasoning; an end without a start, all before."""
    text = _END_TOKENS.sub("", text)
    opened = _OPEN.match(text)
    closed = _CLOSE.search(text)
    if opened and closed is None:
        return text[opened.end() :].strip(), ""
    # An end tag quoted in the middle of an answer, behind a start tag, is the answer's own.
    if closed is None or (not opened and "<think" in text[: closed.start()].lower()):
        return "", text
    start = opened.end() if opened else 0
    return text[start : closed.start()].strip(), text[closed.end() :].lstrip()


def strip_end_tokens(text: str) -> str:
    return _END_TOKENS.sub("", text)
