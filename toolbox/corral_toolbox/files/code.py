"""The error codes by their names. `enum`, and what it imports, would take 0.9 MB of every file worker."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_protocol.error import ErrorCode
else:

    class _ErrorCodes:
        """Values as in corral_protocol.error.ErrorCode, which test_dispatch.py compares."""

        def __getattr__(self, name: str) -> str:
            return name.lower()

    ErrorCode = _ErrorCodes()

__all__ = ["ErrorCode"]
