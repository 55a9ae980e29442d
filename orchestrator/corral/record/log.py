"""The one writer of a run's record: a locked, append-only, hash-chained file of events.

`append` returns when the event is on the disk: the caller may then let the effect happen. Events that cause nothing
(reads, claims of the box) are written at once, so that a killed process loses none, and share a sync: the next durable
event's, or one at most a second later.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from corral.errors import RecordError
from corral.record.line import MAX_LINE_BYTES, build_line, encode_payload, format_time
from corral.record.mask import mask_payload
from corral.record.recovery import Tail, find_tail, move_tail_aside
from corral.record.verify import Head
from corral.redact import Redactor
from corral.schema.events import Event, GuardTripped, LogRecovered, Payload, Source
from corral.schema.text import bound

GROUP_COMMIT_S = 1.0
_QUIET_ROUNDS = 60  # a model may think for a minute between two calls
MAX_CLAIMS = 100_000  # about 40 MB: a box that forks in a loop must not fill the host's disk
_INLINE_SYNC_S = 0.001  # a sync that is quicker costs less than a hop to a thread and back
_LOCK_TRIES = 20
_LOCK_WAIT_S = 0.01


class RecordLog:
    """Open with `RecordLog.open`; safe to use from several threads. Use as a context manager, or close it."""

    def __init__(
        self,
        descriptor: int,
        path: Path,
        tail: Tail,
        clock_ns: Callable[[], int],
        max_claims: int,
        redactor: Redactor | None,
    ) -> None:
        self.path = path
        self.dropped = 0
        self._descriptor = descriptor
        self._head = tail.head
        self._size = tail.good_bytes
        self._clock_ns = clock_ns
        self._claims_left = max_claims
        self._redactor = redactor
        self._write_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._committer: threading.Thread | None = None
        self._leaving = threading.Event()
        self._unsynced = False
        self._sync_s = 0.0
        self._failure: str | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        max_claims: int = MAX_CLAIMS,
        redactor: Redactor | None = None,
    ) -> RecordLog:
        """Make the record, or go on with the one that is there. With a redactor every event is masked before it is
        written, and so for whoever is told of it.

        A torn end is moved aside and told in a `log.recovered` event. Raises RecordError when the directory cannot be
        written, another process writes this record, or it is damaged anywhere but at its end.
        """
        descriptor = _open_file(path)
        try:
            _lock(descriptor, path)
            tail = find_tail(path)
            torn_file = move_tail_aside(path, descriptor, tail)
            log = cls(descriptor, path, tail, clock_ns, max_claims, redactor)
            if tail.torn_bytes or tail.newline_missing:
                log._complete_last_line(tail)
                log.append(
                    LogRecovered(
                        kept_events=tail.head.seq,
                        torn_bytes=tail.torn_bytes,
                        torn_sha256=tail.torn_sha256,
                        torn_file=torn_file,
                    )
                )
        except OSError as error:
            os.close(descriptor)
            raise _explain(error, path) from None
        except BaseException:
            os.close(descriptor)
            raise
        return log

    def head(self) -> Head:
        """Sequence and hash of the last event; who keeps it elsewhere can prove nothing before it was touched."""
        return self._head

    def append(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event:
        """Write an event; with `durable`, return only when it is on the disk. Raises RecordError.

        After a RecordError nothing of this event stays in the file; when the disk itself failed, the log takes no more.
        """
        (event,) = self._write((payload,), source, durable)
        if durable:
            self.sync()
        return event

    async def append_async(
        self, *payloads: Payload, source: Source | None = None, durable: bool = True
    ) -> tuple[Event, ...]:
        """`append` for the event loop, which a slow disk does not block: there the sync moves to a thread.

        Several events are one write, and stay all or none.
        """
        events = self._write(payloads, source, durable)
        if durable:
            await self.sync_async()
        return events

    def claim(self, payload: Payload) -> Event | None:
        """A bulk event in the box's word, not durable by itself. Over the cap it is only counted in `dropped`."""
        if self._claims_left <= 0:
            self.dropped += 1
            if self.dropped == 1:
                reason = "the box's claims reached their cap; the rest is counted, not kept"
                self.append(GuardTripped(guard="record_claims", action="drop", reason=reason), durable=False)
            return None
        self._claims_left -= 1
        return self.append(payload, source=Source.BOX, durable=False)

    def sync(self) -> None:
        """Bring everything written so far to the disk. Raises RecordError; after that the log takes no more."""
        with self._sync_lock:
            if self._failure is not None:
                raise RecordError(self._failure)
            if self._closed or not self._unsynced:
                return
            self._unsynced = False
            started = time.perf_counter()
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                # A failed sync may have dropped the pages: a later success would prove nothing.
                self._failure = f"the disk refused the record: {error.strerror}"
                raise RecordError(self._failure, hint="look at the disk and the kernel's log") from None
            # Moving average: one slow sync does not send every later one to a thread.
            self._sync_s += (time.perf_counter() - started - self._sync_s) / 4

    async def sync_async(self) -> None:
        """`sync` for the event loop."""
        if self._sync_s < _INLINE_SYNC_S:
            self.sync()
        else:
            await asyncio.to_thread(self.sync)

    def close(self) -> None:
        """Sync and let the record go. Idempotent. Raises RecordError when the last events could not be kept."""
        with self._write_lock:
            if self._closed:
                return
        self._leaving.set()
        try:
            self.sync()
        finally:
            with self._write_lock, self._sync_lock:
                self._closed = True
                os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, payloads: Sequence[Payload], source: Source | None, durable: bool) -> tuple[Event, ...]:
        with self._write_lock:
            if self._failure is not None or self._closed:
                raise RecordError(self._failure or f"the record {str(self.path)!r} is closed")
            lines, events, head = bytearray(), list[Event](), self._head
            for payload in payloads:
                line, event = self._link(payload, source or payload.source, head)
                lines += line
                events.append(event)
                head = Head(event.seq, event.hash)
            self._write_bytes(lines)
            self._head = head
            self._unsynced = True
            if not durable and self._committer is None:
                self._committer = threading.Thread(target=self._commit, name="corral-record", daemon=True)
                self._committer.start()
            return tuple(events)

    def _link(self, payload: Payload, source: Source, head: Head) -> tuple[bytes, Event]:
        """The line that follows `head`, and the event it holds."""
        kept, encoded = _fit(payload, self._redactor)
        seq, at = head.seq + 1, format_time(self._clock_ns())
        line, digest = build_line(
            seq=seq, at=at, prev=head.hash, kind=kept.kind.value, source=source.value, payload=encoded
        )
        return line, Event(seq=seq, at=at, prev=head.hash, kind=kept.kind, source=source, payload=kept, hash=digest)

    def _write_bytes(self, data: bytes | bytearray) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            # Half a line must not stay: the next one would be joined to it.
            try:
                os.ftruncate(self._descriptor, self._size)
            except OSError:
                self._failure = "the record could not be brought back to its last whole event"
            raise _explain(error, self.path) from None
        self._size += written

    def _complete_last_line(self, tail: Tail) -> None:
        if tail.newline_missing:
            self._write_bytes(b"\n")

    def _commit(self) -> None:
        """Sync every second while events come, and for a while after: a thread or a wake-up per burst costs the call
        that begins it more than the sync is worth."""
        seen, quiet = 0, 0
        while not self._leaving.wait(GROUP_COMMIT_S):
            with self._write_lock:
                quiet = quiet + 1 if self._head.seq == seen else 0
                if quiet == _QUIET_ROUNDS:
                    self._committer = None  # from here on an event needs a thread of its own
                    return
                seen = self._head.seq
            try:
                self.sync()
            except RecordError:
                return  # kept in _failure: the next append raises it


def _encode(payload: Payload) -> bytes:
    return encode_payload(vars(payload))  # validated: text, numbers, tuples and parts made of them


def _fit(payload: Payload, redactor: Redactor | None) -> tuple[Payload, bytes]:
    """The payload, masked, and cut further where all its capped parts together are still more than one line may hold;
    encoded."""
    room = MAX_LINE_BYTES - 1024
    encoded = _encode(payload)
    # SECURITY: nothing is written before it is masked; test_no_secret_gets_into_the_record
    if redactor is not None and redactor.find(encoded):
        payload = mask_payload(redactor, payload)
        encoded = _encode(payload)
    if len(encoded) <= room:
        return payload, encoded
    for max_chars, max_items in ((64 << 10, 1000), (4096, 256), (512, 64), (160, 16)):
        smaller: dict[str, Any] = bound(payload.model_dump(mode="json"), max_chars, max_items)
        kept = type(payload).model_validate(smaller)
        encoded = _encode(kept)
        if len(encoded) <= room:
            return kept, encoded
    raise RecordError(f"an event of kind {payload.kind.value!r} is too large for the record")


def _open_file(path: Path) -> int:
    # O_NOFOLLOW: a link in its place would lead our writes elsewhere.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise _explain(error, path) from None
    try:
        # SECURITY: owner only, whatever the umask and whoever made it; test_record_is_readable_by_its_owner_only
        os.fchmod(descriptor, 0o600)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        os.close(descriptor)
        raise _explain(error, path) from None
    return descriptor


def _lock(descriptor: int, path: Path) -> None:
    for attempt in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A reader that asks whether the run is alive holds it for an instant.
            if attempt < _LOCK_TRIES - 1:
                time.sleep(_LOCK_WAIT_S)
        else:
            return
    raise RecordError(
        f"another process is writing the record {str(path)!r}", hint="the run is still going on; follow it instead"
    )


_HINTS = {
    errno.ENOSPC: "free some space; the record goes on from its last whole event",
    errno.EDQUOT: "free some space; the record goes on from its last whole event",
    errno.EFBIG: "the process may not write files this large (ulimit -f)",
    errno.EACCES: "make the directory writable, or point XDG_DATA_HOME elsewhere",
    errno.EPERM: "make the directory writable, or point XDG_DATA_HOME elsewhere",
    errno.EROFS: "the file system is read-only; point XDG_DATA_HOME elsewhere",
    errno.ENOENT: "the run's directory is missing",
    errno.ELOOP: "a symbolic link stands in its place; remove it",
}


def _explain(error: OSError, path: Path) -> RecordError:
    hint = _HINTS.get(error.errno or 0)
    return RecordError(f"the record {str(path)!r} cannot be written: {error.strerror}", hint=hint)
