"""Control messages of the box: bytes to typed values.

Two passes: a hardened JSON parse that finds out what the message is, then a strict pydantic adapter over the wire
dataclass that was asked for. Whatever does not fit is a SandboxProtocolError.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from corral.errors import SandboxProtocolError, ToolError
from corral.schema.visible import visible
from corral_protocol.error import RPC_ERROR, ErrorCode
from corral_protocol.message import (
    FULL_PLACES,
    ExecResult,
    FetchReply,
    FileChanged,
    FileContent,
    ListEntry,
    Listing,
    ProcessEvent,
    RootEntry,
    Stats,
    TreeEntry,
)
from corral_protocol.name import decode_name

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_DEPTH = 32
ERROR_CODES = frozenset(code.value for code in ErrorCode)
MAX_MESSAGE_CHARS = 4096
_INT64_DIGITS = 20

T = TypeVar("T")


@dataclass(frozen=True)
class Empty:
    """The result `{}`."""


@dataclass(frozen=True)
class _Response(Generic[T]):
    jsonrpc: str
    id: int
    result: T


@dataclass(frozen=True)
class _Notification(Generic[T]):
    jsonrpc: str
    method: str
    params: T


def _parse_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key twice in one object")
    return result


def _parse_int(text: str) -> int:
    # A length check first: int() of a megabyte of digits is quadratic.
    if len(text) < _INT64_DIGITS - 1:  # all of these fit
        return int(text)
    if len(text) <= _INT64_DIGITS:
        value = int(text)
        if -(1 << 63) <= value < 1 << 63:
            return value
    raise ValueError("an integer of more than 64 bits")


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number that is not finite")
    return value


def _refuse_constant(text: str) -> object:
    raise ValueError(f"the constant {text}")


# SECURITY: plain json.loads takes duplicate keys, NaN and integers of any size (test_channel_json).
_DECODER = json.JSONDecoder(
    object_pairs_hook=_parse_object,
    parse_int=_parse_int,
    parse_float=_parse_float,
    parse_constant=_refuse_constant,
)
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{}]', re.DOTALL)


def _check_depth(text: str) -> None:
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        bracket = match[0]
        if bracket in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"nesting deeper than {MAX_DEPTH}")
        elif bracket in "}]":
            depth -= 1


def decode_message(payload: bytes) -> dict[str, object]:
    """One control payload to a JSON object. Raises SandboxProtocolError."""
    try:
        # Not json.loads(bytes): it guesses UTF-16 and UTF-32.
        text = payload.decode("utf-8")
        if text.count("{") + text.count("[") > MAX_DEPTH:
            _check_depth(text)
        message = _DECODER.decode(text)
        if _ESCAPED_SURROGATE.search(text):
            json.dumps(message, ensure_ascii=False).encode("utf-8")  # UnicodeEncodeError for a lone surrogate
    except UnicodeEncodeError:
        raise SandboxProtocolError("the box sent a message with half a surrogate pair") from None
    except ValueError as error:
        raise SandboxProtocolError(
            f"the box sent a message that is no clean JSON: {visible(str(error), limit=200)}"
        ) from None
    if not isinstance(message, dict):
        raise SandboxProtocolError("the box sent a message that is no JSON object")
    return message


def encode_params(params: Any) -> dict[str, object]:
    """A wire dataclass as the JSON object it travels as. Nothing is copied: dataclasses.asdict() would copy it all."""
    wire = dict(vars(params))
    for name, member in wire.items():
        if type(member) is list and member and is_dataclass(member[0]):
            wire[name] = [encode_params(element) for element in member]
    return wire


@cache
def _build_adapter(shape: Any, kind: type | None = None) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # late: start-up time

    return TypeAdapter(shape if kind is None else shape[kind])


def warm_adapters(*kinds: type) -> None:
    """Build the adapters that the first calls need, while something slower is waited for."""
    for kind in kinds:
        _build_adapter(_Response, kind)


def parse_result(payload: bytes, kind: type[T]) -> T:
    """The `result` of a response that decode_message() has passed, as `kind`."""
    response: _Response[T] = _validate(payload, kind, envelope=_Response)
    _check_claims(response.result)
    return response.result


def parse_params(payload: bytes, kind: type[T]) -> T:
    """The `params` of a notification that decode_message() has passed, as `kind`."""
    notification: _Notification[T] = _validate(payload, kind, envelope=_Notification)
    _check_claims(notification.params)
    return notification.params


def parse_value(payload: bytes, kind: type[T]) -> T:
    """One JSON value outside a message (a line of a scan) as `kind`."""
    decode_message(payload)
    value: T = _validate(payload, kind)
    _check_claims(value)
    return value


def _validate(payload: bytes, kind: type, *, envelope: Any = None) -> Any:
    from pydantic import ValidationError  # late: start-up time

    adapter = _build_adapter(kind) if envelope is None else _build_adapter(envelope, kind)
    try:
        # SECURITY: strict, or "1", 1.0 and true pass as integers; forbid, or unknown fields pass (test_channel_json).
        return adapter.validate_json(payload, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = visible(".".join(str(part) for part in first["loc"]), limit=200)
        reason = visible(first["msg"], limit=200)
        raise SandboxProtocolError(f"the box sent a bad {kind.__name__}: {where}: {reason}") from None


_NAMES: dict[type, tuple[str, ...]] = {
    ExecResult: ("cwd",),
    RootEntry: ("name",),
    FileContent: ("path",),
    FileChanged: ("path",),
    Listing: ("path",),
    ListEntry: ("path", "target"),
    FetchReply: ("path",),
    TreeEntry: ("path", "target"),
    ProcessEvent: ("path", "cwd", "host"),
}
_NAME_LISTS: dict[type, str] = {ProcessEvent: "argv"}
_INSIDE: dict[type, str] = {RootEntry: "name", ListEntry: "path", TreeEntry: "path"}
_NUMBER = (int, float)
_SIGNED = frozenset({"mtime_ns"})


def _check_claims(value: object) -> None:
    """What types cannot say: names decode, numbers are not negative, relative paths stay relative."""
    kind = type(value)
    for field, member in vars(value).items() if is_dataclass(kind) else ():
        if isinstance(member, str):
            continue
        if isinstance(member, list):
            for element in member:
                _check_claims(element)
        elif isinstance(member, _NUMBER):
            if member < 0 and field not in _SIGNED:
                raise SandboxProtocolError(f"the box sent a bad {kind.__name__}: {field} is {member}")
        elif is_dataclass(member):
            _check_claims(member)
    if isinstance(value, (ExecResult, Stats)) and not set(value.full) <= set(FULL_PLACES):
        raise SandboxProtocolError(f"the box sent a bad {kind.__name__}: full names a place that is none")
    for name in _NAMES.get(kind, ()):
        _check_name(kind, name, getattr(value, name), inside=_INSIDE.get(kind) == name)
    if (listed := _NAME_LISTS.get(kind)) is not None:
        for text in getattr(value, listed):
            _check_name(kind, listed, text, inside=False)


def _check_name(kind: type, field: str, text: str, *, inside: bool) -> None:
    try:
        raw = decode_name(text)
    except ValueError:
        raise SandboxProtocolError(f"the box sent a bad {kind.__name__}: {field} is no name") from None
    # SECURITY: a relative path that climbs would be joined to a host directory (test_channel_claims).
    if inside and (raw.startswith(b"/") or b".." in raw.split(b"/")):
        raise SandboxProtocolError(f"the box sent a bad {kind.__name__}: {field} leaves its directory")


def parse_error(error: object) -> ToolError:
    """The `error` member of a response as the ToolError to raise. Raises SandboxProtocolError for an unknown code."""
    if not isinstance(error, dict) or error.keys() != {"code", "message", "data"} or error["code"] != RPC_ERROR:
        raise SandboxProtocolError("the box sent an error that is none of ours")
    message, data = error["message"], error["data"]
    if not isinstance(message, str) or not isinstance(data, dict) or not data.keys() <= {"code", "details"}:
        raise SandboxProtocolError("the box sent an error with a bad message or data")
    name, details = data.get("code"), data.get("details", {})
    # SECURITY: a closed set; never an exception rebuilt by a name from the box (test_channel_replies).
    if not isinstance(name, str) or name not in ERROR_CODES or not isinstance(details, dict):
        raise SandboxProtocolError("the box sent an error with an unknown code")
    return ToolError(visible(message, limit=MAX_MESSAGE_CHARS), code=name, data=details)
