"""Finds secrets in added lines by the prefixes their issuers give them, and shows them masked.

A first, cheap pass over the patch: exact values that corral knows are found elsewhere, and entropy is not guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Name, literals one of which every match contains, pattern. Searching for a literal runs at memory speed; patterns see
# only the lines that have one.
_RULES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("private key", ("PRIVATE KEY",), r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    ("PuTTY private key", ("PuTTY-User-Key-File-",), r"PuTTY-User-Key-File-[23]:"),
    ("age secret key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    ("AWS access key id", ("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("Google API key", ("AIza",), r"\bAIza[0-9A-Za-z_-]{35}"),
    ("Google OAuth secret", ("GOCSPX-",), r"\bGOCSPX-[0-9A-Za-z_-]{20,}"),
    ("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[0-9A-Za-z]{30,}"),
    ("GitHub fine-grained token", ("github_pat_",), r"\bgithub_pat_[0-9A-Za-z_]{40,}"),
    ("GitLab token", ("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-"), r"\bgl(?:pat|ptt|dt|rt|cbt)-[0-9A-Za-z_-]{20,}"),
    ("Anthropic key", ("sk-ant-",), r"\bsk-ant-[0-9A-Za-z_-]{20,}"),
    ("OpenAI-style key", ("sk-",), r"\bsk-[0-9A-Za-z_-]{20,}"),
    ("Stripe key", ("k_live_", "k_test_"), r"\b[rs]k_(?:live|test)_[0-9A-Za-z]{16,}"),
    ("Slack token", ("xox",), r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}"),
    ("Slack app token", ("xapp-",), r"\bxapp-[0-9]-[0-9A-Za-z-]{10,}"),
    ("Slack webhook", ("hooks.slack.com",), r"https://hooks\.slack\.com/(?:services|workflows)/[0-9A-Za-z/_-]{20,}"),
    ("Hugging Face token", ("hf_",), r"\bhf_[0-9A-Za-z]{30,}"),
    ("npm token", ("npm_",), r"\bnpm_[0-9A-Za-z]{36}\b"),
    ("PyPI token", ("pypi-AgE",), r"\bpypi-AgE[0-9A-Za-z_-]{50,}"),
    ("RubyGems key", ("rubygems_",), r"\brubygems_[0-9a-f]{40,}"),
    ("DigitalOcean token", ("_v1_",), r"\bdo[opr]_v1_[0-9a-f]{64}"),
    ("SendGrid key", ("SG.",), r"\bSG\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,}"),
    ("Shopify token", ("shp",), r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("Databricks token", ("dapi",), r"\bdapi[0-9a-f]{32}\b"),
    ("Docker Hub token", ("dckr_pat_",), r"\bdckr_pat_[0-9A-Za-z_-]{20,}"),
    ("Vault token", ("hvs.", "hvb."), r"\bhv[sb]\.[0-9A-Za-z_-]{24,}"),
    ("Telegram bot token", (":AA",), r"\b[0-9]{8,10}:AA[0-9A-Za-z_-]{33}\b"),
    ("JSON web token", ("eyJ",), r"\beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}"),
    (
        "password in a URL",
        ("://",),
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"<>{}$]{1,64}:[^\s/:@'\"<>{}$]{3,128}@[\w.-]+",
    ),
    ("netrc password", ("password",), r"^machine\s+\S{1,255}\s+login\s+\S{1,255}\s+password\s+\S+"),
)
_PATTERNS = tuple((name, re.compile(pattern.encode())) for name, _, pattern in _RULES)
_LITERALS = tuple({literal.encode() for _, literals, _ in _RULES for literal in literals})
_MAX_LINE = 4096
_MAX_LINES = 100_000  # with a literal in them; a text that has more is generated


def find_secrets(data: bytes, start: int, end: int) -> Iterator[tuple[int, str, str]]:
    """Offset of the line, kind and masked text of each secret in the added lines of one hunk.

    Of a longer line only the first 4,096 bytes are read.
    """
    lines = set[int]()
    for literal in _LITERALS:
        place = data.find(literal, start, end)
        while place >= 0 and len(lines) < _MAX_LINES:
            line = data.rfind(b"\n", start, place) + 1 or start
            if data[line : line + 1] == b"+":
                lines.add(line)
            stop = data.find(b"\n", place, end)
            place = -1 if stop < 0 else data.find(literal, stop, end)
    for line in sorted(lines):
        stop = data.find(b"\n", line, end)
        for name, masked in _in_line(data[line + 1 : min(stop if stop >= 0 else end, line + _MAX_LINE)]):
            yield line, name, masked


def _in_line(line: bytes) -> Iterator[tuple[str, str]]:
    taken = list[tuple[int, int]]()
    for name, pattern in _PATTERNS:
        for found in pattern.finditer(line):
            if all(found.end() <= start or found.start() >= end for start, end in taken):
                taken.append(found.span())
                yield name, mask(found[0])


def mask(secret: bytes) -> str:
    """The first characters, enough to know which secret it is, and nothing of the rest."""
    text = secret.decode("ascii", "replace")
    shown = "".join(char if char.isprintable() else "?" for char in text[: min(8, len(text) // 4)])
    return f"{shown}… ({len(text)} characters)"
