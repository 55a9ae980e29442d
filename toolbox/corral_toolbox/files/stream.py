"""The two ends of a stream to and from the host. Types only: `typing` would cost every worker 0.7 MB."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Reader(Protocol):
        """A stream from the host."""

        def read(self, size: int, /) -> bytes:
            """At most size bytes, waiting for at least one; nothing means the end."""
            ...

    class Writer(Protocol):
        """A stream to the host."""

        def write(self, data: bytes, /) -> object:
            """Send all bytes, waiting while the host is slow."""
            ...
