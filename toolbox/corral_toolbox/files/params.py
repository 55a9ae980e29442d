"""Reading a request's parameters: each function checks one type and says which parameter is wrong."""

from __future__ import annotations

import binascii

from corral_protocol.failure import WireError
from corral_protocol.name import decode_name
from corral_toolbox.files.code import ErrorCode

Params = dict[str, object]


def take_str(params: Params, key: str, default: str | None = None) -> str:
    """A text parameter."""
    value = params.get(key, default)
    if not isinstance(value, str):
        raise invalid(f"parameter {key!r} must be text")
    return value


def take_int(params: Params, key: str, default: int | None = None) -> int:
    """A whole number."""
    value = params.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(f"parameter {key!r} must be a whole number")
    return value


def take_count(params: Params, key: str) -> int | None:
    """A whole number from zero up, or nothing."""
    if params.get(key) is None:
        return None
    value = take_int(params, key)
    if value < 0:
        raise invalid(f"parameter {key!r} must not be negative, it is {value}")
    return value


def take_bool(params: Params, key: str, *, default: bool) -> bool:
    """True or false."""
    value = params.get(key, default)
    if not isinstance(value, bool):
        raise invalid(f"parameter {key!r} must be true or false")
    return value


def take_mode(params: Params) -> int | None:
    """Permission bits, without set-id and sticky bits."""
    mode = take_count(params, "mode")
    if mode is not None and mode > 0o777:
        raise invalid(f"mode {mode:o} has bits beyond 777")
    return mode


def take_bytes(params: Params, key: str) -> bytes:
    """Base64 text as bytes."""
    text = take_str(params, key)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise invalid(f"parameter {key!r} is not base64: {error}") from None


def take_name(params: Params, key: str, *, may_be_empty: bool = False) -> bytes:
    """A path in its wire form as bytes."""
    text = take_str(params, key, "" if may_be_empty else None)
    try:
        raw = decode_name(text)
    except ValueError as error:
        raise invalid(f"parameter {key!r} is not a path: {error}") from None
    if not raw and not may_be_empty:
        raise invalid(f"parameter {key!r} is empty; name a file")
    return raw


def invalid(message: str, **data: object) -> WireError:
    """The error for a request that can never succeed as it is."""
    return WireError(ErrorCode.INVALID_ARGUMENT, message, data)
