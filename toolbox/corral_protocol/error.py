"""The closed set of error codes that may travel. The host maps them; it never rebuilds an exception by name.

On the wire: `"error": {"code": -32000, "message": text, "data": {"code": ErrorCode, "details": {...}}}`.
"""

from __future__ import annotations

from enum import StrEnum

from corral_protocol.failure import WireError

RPC_ERROR = -32000
"""The numeric `code` of every JSON-RPC error object; the real code is `data.code`."""


class ErrorCode(StrEnum):
    """Why a request failed. Every code has a row in docs/reference/errors.md."""

    INVALID_ARGUMENT = "invalid_argument"
    UNKNOWN_METHOD = "unknown_method"
    NOT_FOUND = "not_found"
    EXISTS = "exists"
    NOT_A_REGULAR_FILE = "not_a_regular_file"
    IS_A_DIRECTORY = "is_a_directory"
    NOT_A_DIRECTORY = "not_a_directory"
    NOT_EMPTY = "not_empty"
    OUTSIDE_WORKSPACE = "outside_workspace"
    READ_ONLY = "read_only"
    PERMISSION_DENIED = "permission_denied"
    NO_MATCH = "no_match"
    AMBIGUOUS_MATCH = "ambiguous_match"
    NO_CHANGE = "no_change"
    BINARY_FILE = "binary_file"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    TOO_LARGE = "too_large"
    NO_SPACE = "no_space"
    PIDS_EXHAUSTED = "pids_exhausted"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    PATCH_INVALID = "patch_invalid"
    PATCH_CONFLICT = "patch_conflict"
    BUSY = "busy"
    UNSUPPORTED = "unsupported"
    IO_ERROR = "io_error"
    INTERNAL = "internal"


__all__ = ["RPC_ERROR", "ErrorCode", "WireError"]
