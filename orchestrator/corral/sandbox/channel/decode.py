"""The attached stream of the engine, cut into control payloads and data pieces, incrementally and without copies.

Two layers: the engine's multiplexing of the container's stdout and stderr (8-byte headers), and on stdout the frames
of corral_protocol. Data is handed on as slices of what was received; only control payloads are put together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from corral.errors import SandboxProtocolError
from corral_protocol import CHUNK_TYPE, MAX_CHUNK_BYTES, MAX_CONTROL_BYTES

Piece = Callable[[memoryview], None]

_MUX = struct.Struct(">BHBI")
_MUX_STDOUT, _MUX_STDERR, _MUX_ENGINE = 1, 2, 3
_START = struct.Struct(">IB")  # length and type
_STREAM = struct.Struct(">I")
_CONTROL_TYPE = 0x7B


class FrameReader:
    """Frames out of any slicing of the byte stream. Holds at most one control payload.

    `open_chunk(stream, size)` judges a data chunk before any of it is taken, and returns who gets its pieces.
    """

    def __init__(self, on_control: Callable[[bytes], None], open_chunk: Callable[[int, int], Piece]) -> None:
        self._on_control = on_control
        self._open_chunk = open_chunk
        self._head = bytearray()
        self._control = bytearray()
        self._control_left = 0
        self._chunk_left = 0
        self._piece: Piece | None = None

    def feed(self, view: memoryview) -> None:
        """Take bytes. Raises SandboxProtocolError for a bad length or type."""
        position, end = 0, len(view)
        while position < end:
            if self._chunk_left:
                taken = min(self._chunk_left, end - position)
                self._chunk_left -= taken
                assert self._piece is not None
                self._piece(view[position : position + taken])
            elif self._control_left:
                taken = min(self._control_left, end - position)
                self._take_control(view[position : position + taken])
            else:
                taken = self._take_head(view[position:])
            position += taken

    def _take_control(self, view: memoryview) -> None:
        self._control_left -= len(view)
        if self._control_left or self._control:
            self._control += view
            if self._control_left:
                return
            payload = bytes(self._control)
            self._control.clear()
        else:
            payload = bytes(view)
        self._on_control(payload)

    def _take_head(self, view: memoryview) -> int:
        """Parse a frame's first bytes, kept until they are all there. Returns how many of `view` were used up."""
        head = self._head
        known = len(head)
        head += view[: 9 - known]
        if len(head) < _START.size:
            return len(head) - known
        length, kind = _START.unpack_from(head)
        if kind == CHUNK_TYPE:
            if not 5 < length <= 5 + MAX_CHUNK_BYTES:
                raise SandboxProtocolError(f"the box sent a data chunk of {length} bytes")
            if len(head) < 9:
                return len(head) - known
            used = 9
            self._piece = self._open_chunk(_STREAM.unpack_from(head, 5)[0], length - 5)
            self._chunk_left = length - 5
        elif kind == _CONTROL_TYPE:
            if not 2 <= length <= MAX_CONTROL_BYTES:
                raise SandboxProtocolError(f"the box sent a message of {length} bytes")
            used = 4  # never more than was kept: a control frame is known by its fifth byte
            self._control_left = length
        else:
            raise SandboxProtocolError(f"the box sent a frame of type {kind}")
        head.clear()
        return used - known


class StreamSplitter:
    """The engine's multiplexed stream: stdout to a FrameReader, stderr to the crash log."""

    def __init__(self, frames: FrameReader, on_stderr: Piece) -> None:
        self._frames = frames
        self._on_stderr = on_stderr
        self._head = bytearray()
        self._left = 0
        self._piece: Piece = frames.feed

    def feed(self, data: bytes) -> None:
        """Take what the socket gave. Raises SandboxProtocolError."""
        view = memoryview(data)
        position, end = 0, len(data)
        while position < end:
            if self._left:
                taken = min(self._left, end - position)
                self._left -= taken
                self._piece(view[position : position + taken])
                position += taken
                continue
            taken = min(_MUX.size - len(self._head), end - position)
            self._head += view[position : position + taken]
            position += taken
            if len(self._head) == _MUX.size:
                self._open(*_MUX.unpack(self._head))
                self._head.clear()

    def _open(self, kind: int, zero: int, zero_too: int, length: int) -> None:
        if zero or zero_too or kind not in (_MUX_STDOUT, _MUX_STDERR, _MUX_ENGINE):
            raise SandboxProtocolError("the engine's stream is not multiplexed as it should be")
        self._piece = self._frames.feed if kind == _MUX_STDOUT else self._on_stderr
        self._left = length
