"""A record that tells somebody of each event as it is written: the live view is read from the record like any other."""

from __future__ import annotations

from collections.abc import Callable

from corral.record import RecordLog
from corral.schema.events import Event, Payload, Source

Watch = Callable[[Event], None]
"""Called after an event is in the record. Must not block, and its failures are its own."""


class WatchedRecord:
    """A RecordLog as the run uses it, with a watcher."""

    def __init__(self, log: RecordLog, watch: Watch) -> None:
        self._log = log
        self._watch = watch

    @property
    def dropped(self) -> int:
        return self._log.dropped

    def append(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event:
        event = self._log.append(payload, source=source, durable=durable)
        self._watch(event)
        return event

    async def append_async(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event:
        event = await self._log.append_async(payload, source=source, durable=durable)
        self._watch(event)
        return event
