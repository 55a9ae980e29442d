"""The queue to the host: whole frames, control before data, never blocking.

Data is bounded because nothing reads a command's output while `is_congested`; control is bounded because every
message answers or follows something the host sent.
"""

import os

from corral_protocol.framing import encode_chunk
from corral_toolbox.lean import deque

_BATCH_BYTES = 128 << 10
"""Data handed to the kernel at once: what a control message may have to wait behind."""
_CONGESTED_BYTES = 512 << 10
_CONGESTED_CONTROL_BYTES = 8 << 20
_MAX_CONTROL_BYTES = 64 << 20
_MAX_VECTOR = 64


class HostGone(Exception):
    """Nobody will ever read the queue: the box ends."""


class Outbox:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._control: deque[bytes] = deque()
        self._data: deque[bytes] = deque()
        self._inflight: deque[bytes | memoryview] = deque()  # order fixed, the first may be partly written
        self._control_bytes = 0
        self._data_bytes = 0
        self.is_blocked = False

    @property
    def is_congested(self) -> bool:
        return self._data_bytes > _CONGESTED_BYTES

    @property
    def is_control_congested(self) -> bool:
        """The host is so far behind that what it never asked for must not be added."""
        return self.is_blocked and self._control_bytes + sum(map(len, self._inflight)) > _CONGESTED_CONTROL_BYTES

    @property
    def is_busy(self) -> bool:
        """More waits than goes out at once: bulk that nobody waits for stays where it is."""
        return self._data_bytes > _BATCH_BYTES

    @property
    def is_empty(self) -> bool:
        return not (self._inflight or self._control or self._data)

    def put_control(self, frame: bytes) -> None:
        self._control.append(frame)
        self._control_bytes += len(frame)
        if self._control_bytes > _MAX_CONTROL_BYTES:
            raise HostGone("the host asks and does not read")

    def put_data(self, stream: int, data: "bytes | memoryview") -> None:
        self.put_behind_data(encode_chunk(stream, data))

    def put_behind_data(self, frame: bytes) -> None:
        """A frame that must not overtake data, such as the end of a stream."""
        self._data.append(frame)
        self._data_bytes += len(frame)

    def _fill(self) -> None:
        inflight = self._inflight
        while self._control:
            inflight.append(self._control.popleft())
        self._control_bytes = 0
        room = _BATCH_BYTES - sum(map(len, inflight))
        while self._data and room > 0:
            frame = self._data.popleft()
            self._data_bytes -= len(frame)
            room -= len(frame)
            inflight.append(frame)

    def flush(self) -> None:
        """Write what the kernel takes now. Raises HostGone when nobody reads any more."""
        inflight = self._inflight
        while True:
            if self._control or (self._data and len(inflight) < 2):
                self._fill()
            if not inflight:
                self.is_blocked = False
                return
            try:
                if len(inflight) == 1:
                    written = os.write(self.fd, inflight[0])
                else:
                    written = os.writev(self.fd, [inflight[i] for i in range(min(len(inflight), _MAX_VECTOR))])
            except BlockingIOError:
                self.is_blocked = True
                return
            except OSError as error:
                raise HostGone(f"writing to the host: {error}") from None
            self._forget(written)

    def _forget(self, written: int) -> None:
        inflight = self._inflight
        while written:
            first = inflight[0]
            if written < len(first):
                inflight[0] = memoryview(first)[written:]
                return
            written -= len(first)
            inflight.popleft()
