"""One reader of the event log for all streams of a process.

```text
  store ──poll──▶ the newest events, encoded once ──▶ stream, stream, stream …
    └──────── a stream that is behind them reads for itself ───────┘
```

A stream is only a position in the log. It takes newer events from here, or from the store if they are too old to be here. So a slow
client costs no memory, and a client that reconnects with its position misses nothing. While there is no stream, nothing is read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from holdfast.app import Holdfast
from holdfast.engine.cloudevent import Subject
from holdfast.engine.events import LARGEST_EVENT
from holdfast.errors import StoreError
from holdfast.jobs.job import Event, JobId
from holdfast.jobs.machine import Clock
from holdfast.logging import Log
from holdfast.webhooks.envelope import event_body
from holdfast.webhooks.job_owners import JobOwners

log = Log("holdfast.server")

POLL_SECONDS = 0.2
BATCH = 1000
#: How many events a stream gets at a time.
PORTION = 500
#: How many of the newest events are kept, and how many bytes of them.
MOST_EVENTS, MOST_BYTES = 10_000, 16_000_000
#: How many streams may read from the store at a time.
READERS = 4


class StreamedEvent(NamedTuple):
    """An event as it is sent."""

    id: int
    kind: str
    job_id: JobId
    owner: str | None
    text: bytes


class NewEvents(NamedTuple):
    """What a stream gets next."""

    events: Sequence[StreamedEvent]
    position: int  #: where the next events begin
    reset: bool = False  #: events before this position were removed from the log, so some are missing


class EventReader:
    """Reads the event log while at least one stream listens."""

    def __init__(self, app: Holdfast, clock: Clock) -> None:
        self._events, self._clock = app.events, clock
        self._recent: list[StreamedEvent] = []
        self._bytes = 0
        self._low = 0  #: `_recent` has every event after this one
        self.position = 0
        self._is_begun = False
        self.polls = 0
        self._listening = 0
        self._poller: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._readers = asyncio.Semaphore(READERS)
        self.is_closed = False
        self._owners = JobOwners(app.jobs.list)

    def close(self) -> None:
        """End all streams, because the server stops."""
        self.is_closed = True
        self._wake()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Read the log inside the block."""
        self._listening += 1
        try:
            if self._poller is None:
                self._poller = asyncio.create_task(self._read_log(), name="event reader")
            yield
        finally:
            self._listening -= 1
            if self._listening == 0 and self._poller is not None:
                poller, self._poller, self._is_begun = self._poller, None, False
                poller.cancel()
                await asyncio.gather(poller, return_exceptions=True)

    async def newest(self) -> int:
        """Return the number of the newest event; a reader that continues from it sees what happens from now on."""
        return await self._events.newest()

    async def has(self, number: int) -> bool:
        """Return whether the event of this *number* is still in the log, so that none after it is missing."""
        if number > LARGEST_EVENT:
            return False
        found = await self._events.list(after=number - 1, limit=1)
        return bool(found) and found[0].id == number

    async def next_events(self, after: int, job_id: JobId | None = None, *, seconds: float) -> NewEvents:
        """Return the events after *after*, of every job or of one; wait up to *seconds* for the first."""
        if not self._is_begun or after >= self.position:
            moved = self._moved
            try:
                async with asyncio.timeout(seconds):
                    await moved.wait()
            except TimeoutError:
                return NewEvents((), after)
        if not self._is_begun or after >= self.position:
            return NewEvents((), after)
        if after >= self._low:
            first = bisect_right(self._recent, after, key=_number)
            found = self._recent[first : first + PORTION]
            return NewEvents(found, found[-1].id if len(found) == PORTION else self.position)
        async with self._readers:
            return await (self._read(after) if job_id is None else self._read_job(after, job_id))

    # -- from the store -----------------------------------------------------------------------------------------------
    async def _read(self, after: int) -> NewEvents:
        """Read a page. It includes the event *after* itself: if that was removed, others may have been too."""
        found = await self._events.list(after=max(after - 1, 0), limit=PORTION)
        if after > 0:
            if not found or found[0].id != after:
                return NewEvents((), self.position, reset=True)
            found = found[1:]
        if not found:  # the log is empty again
            return NewEvents((), self.position)
        return NewEvents(await self._encoded(found), found[-1].id)

    async def _read_job(self, after: int, job_id: JobId) -> NewEvents:
        """Read the events of one job up to where the log was read; after that they may be incomplete."""
        position = self.position
        if after > 0 and not await self.has(after):
            return NewEvents((), position, reset=True)
        found = await self._events.list(after=after, limit=PORTION, job_id=job_id)
        past = [event for event in found if event.id <= position]
        return NewEvents(await self._encoded(past), past[-1].id if len(past) == PORTION else position)

    async def _encoded(self, events: Sequence[Event]) -> list[StreamedEvent]:
        subjects = await self._owners.of(events)
        return [_encode(event, subjects[event.job_id]) for event in events]

    # -- the one reader -----------------------------------------------------------------------------------------------
    async def _read_log(self) -> None:
        while True:
            pause = POLL_SECONDS
            try:
                if not self._is_begun:
                    self._recent, self._bytes = [], 0
                    self._low = self.position = await self.newest()
                    self._is_begun = True
                    self._wake()
                if await self._poll():
                    pause = 0.0
            except StoreError as error:
                log.warning("event_reader.retrying", reason=str(error))
                pause = 1.0
            except Exception:
                log.exception("event_reader.failed")
                pause = 1.0
            await self._clock.sleep(pause)

    async def _poll(self) -> bool:
        """Read new events, and return whether there may be more."""
        self.polls += 1
        events = await self._events.list(after=self.position, limit=BATCH)
        if not events:
            return False
        encoded = await self._encoded(events)
        self._recent += encoded
        self._bytes += sum(len(event.text) for event in encoded)
        self._drop_oldest()
        self.position = encoded[-1].id
        self._wake()
        return len(events) == BATCH

    def _drop_oldest(self) -> None:
        drop = 0
        while len(self._recent) - drop > MOST_EVENTS or self._bytes > MOST_BYTES:
            self._bytes -= len(self._recent[drop].text)
            drop += 1
        if drop:
            self._low = self._recent[drop - 1].id
            del self._recent[:drop]

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _number(event: StreamedEvent) -> int:
    return event.id


def _encode(event: Event, subject: Subject) -> StreamedEvent:
    text = b"id: %d\ndata: %b\n\n" % (event.id, event_body(event, subject))
    return StreamedEvent(event.id, event.kind, event.job_id, subject.owner, text)
