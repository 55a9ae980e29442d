"""A git configuration without the credentials in it; the rest, remotes included, stays usable."""

from __future__ import annotations

import re

MAX_BYTES = 1 << 20
_MASK = b"masked-by-corral"
_USER_INFO = re.compile(rb"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<user>[^/@\s\"']*)@")
_LOGIN = re.compile(rb"[^:]*")
_SECRET_KEY = re.compile(
    rb"(?i)(?:^|\])(?P<before>[\t ]*[a-z0-9-]*(?:extraheader|password|passwd|smtppass|token|secret|apikey|cookie)"
    rb"[\t ]*=[\t ]*)(?P<value>.*)$"
)
_HELPER = re.compile(rb"(?i)(?:^|\])(?P<before>[\t ]*helper[\t ]*=[\t ]*)(?P<value>\"?!.*)$")


def strip_credentials(text: bytes) -> bytes | None:
    """The configuration with user information in URLs, secret values and inline helpers taken out.

    None when there was nothing to take out. A value that goes on over the next line goes with all its lines.
    """
    lines: list[bytes] = []
    is_dropping = False
    for line in text.split(b"\n"):
        if is_dropping:
            is_dropping = _continues(line)
            continue
        match = _SECRET_KEY.search(line) or _HELPER.search(line)
        if match and match["value"].strip():
            is_dropping = _continues(line)
            line = line[: match.start("value")] + _MASK
        lines.append(_USER_INFO.sub(_without_user, line))
    stripped = b"\n".join(lines)
    return None if stripped == text else stripped


def _continues(line: bytes) -> bool:
    """Whether a backslash at the end, itself not escaped, carries the value on."""
    bare = line.rstrip(b"\r")
    return (len(bare) - len(bare.rstrip(b"\\"))) % 2 == 1


def _without_user(match: re.Match[bytes]) -> bytes:
    """`ssh://git@host` names an account, not a secret; over http the name alone may be a token."""
    scheme, user = match["scheme"], match["user"]
    if scheme.lower() in (b"http", b"https", b"ftp", b"ftps"):
        return scheme + b"://"
    login = _LOGIN.match(user)
    return scheme + b"://" + (login[0] if login else b"") + b"@"
