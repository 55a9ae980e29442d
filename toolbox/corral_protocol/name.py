"""File names on the wire.

A POSIX name is bytes. A name that is valid UTF-8 travels as that text; any other travels as NUL followed by the
base64 of its bytes. NUL cannot occur in a name, so the two never meet, and no lone surrogate ever enters JSON.
"""

from __future__ import annotations

import binascii

_MARK = "\0"


def encode_name(raw: bytes) -> str:
    """Bytes of a path to its wire form."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _MARK + binascii.b2a_base64(raw, newline=False).decode("ascii")


def decode_name(text: str) -> bytes:
    """Wire form to the bytes of a path. Raises ValueError for a NUL elsewhere, bad base64 or a lone surrogate."""
    raw = binascii.a2b_base64(text[1:], strict_mode=True) if text.startswith(_MARK) else text.encode("utf-8")
    if b"\0" in raw:
        raise ValueError("NUL byte in a name")
    return raw
