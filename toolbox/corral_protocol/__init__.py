"""The wire contract between orchestrator and toolbox: names, messages, framing. Standard library only, no logic."""

from corral_protocol.framing import (
    CHUNK_TYPE,
    HEADER,
    MAX_CHUNK_BYTES,
    MAX_CONTROL_BYTES,
    FrameDecoder,
    FrameError,
    encode_chunk,
    encode_control,
)
from corral_protocol.name import decode_name, encode_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_protocol.error import ErrorCode, WireError

PROTOCOL_VERSION = 1
"""Raised by one whenever a message changes in a way the other side must know about."""


def __getattr__(name: str) -> object:
    """ErrorCode and WireError on first use: `enum` costs the toolbox's first process 2 ms it does not need."""
    if name in {"ErrorCode", "WireError"}:
        from corral_protocol import error

        return getattr(error, name)
    raise AttributeError(name)


__all__ = [
    "CHUNK_TYPE",
    "HEADER",
    "MAX_CHUNK_BYTES",
    "MAX_CONTROL_BYTES",
    "PROTOCOL_VERSION",
    "ErrorCode",
    "FrameDecoder",
    "FrameError",
    "WireError",
    "decode_name",
    "encode_chunk",
    "encode_control",
    "encode_name",
]
