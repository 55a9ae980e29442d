"""The exception that carries an error code; apart from the codes, because the box does without their `enum`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_protocol.error import ErrorCode


class WireError(Exception):
    """A failure that becomes the `error` member of a JSON-RPC response.

    `data` holds small, JSON-safe details (paths as wire names); its meaning depends on the code.
    """

    def __init__(self, code: ErrorCode, message: str, data: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data or {}
