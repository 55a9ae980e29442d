"""A record that tells somebody of each event as it is written: the live view is read from the record like any other."""

from __future__ import annotations

from collections.abc import Callable

from corral.record import RecordLog
from corral.schema.events import Event, Payload, Source

Watch = Callable[[Event], None]
"""Called after an event is in the record, on the event loop. Must not block."""


class WatchedRecord:
    """A RecordLog as the run uses it, with watchers. One that fails is not called again and does not end the run:
    `watch_error` keeps why."""

    def __init__(self, log: RecordLog, *watches: Watch) -> None:
        self._log = log
        self._watches = list(watches)
        self.watch_error: Exception | None = None

    @property
    def dropped(self) -> int:
        return self._log.dropped

    def append(self, payload: Payload, *, source: Source | None = None, durable: bool = True) -> Event:
        return self._tell(self._log.append(payload, source=source, durable=durable))

    async def append_async(
        self, *payloads: Payload, source: Source | None = None, durable: bool = True
    ) -> tuple[Event, ...]:
        events = await self._log.append_async(*payloads, source=source, durable=durable)
        for event in events:
            self._tell(event)
        return events

    async def sync_async(self) -> None:
        await self._log.sync_async()

    def claim(self, payload: Payload) -> Event | None:
        event = self._log.claim(payload)
        return event if event is None else self._tell(event)

    def _tell(self, event: Event) -> Event:
        for watch in tuple(self._watches):
            try:
                watch(event)
            except Exception as error:
                self._watches.remove(watch)
                self.watch_error = error
        return event
