"""One reader of the log for all streams of this process.

```text
  store ──poll──▶ the newest events, written once ──▶ stream, stream, stream …
    └──────── a stream that is behind them reads for itself ───────┘
```

A stream is nothing but a number: how far it has come. What is newer it takes from here, or from the store where that is too long
ago. So a slow client costs no memory, and a client that comes back with its number misses nothing. While nobody listens,
nobody reads.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from holdfast.app import Holdfast
from holdfast.domain.cloudevent import Subject
from holdfast.domain.job import Event, JobId
from holdfast.engine.ports import Clock, Store
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.webhooks.envelope import enveloped
from holdfast.webhooks.job_owners import JobOwners

log = Log("holdfast.server")

POLL_SECONDS = 0.2
BATCH = 1000
#: No event has a larger number: none can be asked for.
LARGEST = 2**63 * 1000
#: How many events a stream is given at a time.
PORTION = 500
#: What is kept of the newest events.
MOST_EVENTS, MOST_BYTES = 10_000, 16_000_000
#: How many streams may read the store by themselves at a time.
READERS = 4


class StreamedEvent(NamedTuple):
    """An event as it is sent."""

    id: int
    kind: str
    job_id: JobId
    owner: str | None
    text: bytes


class NewEvents(NamedTuple):
    events: Sequence[StreamedEvent]
    position: int  #: how far this goes; what is behind it was not looked at yet
    reset: bool = False  #: what came before was removed from the log: something is missing


class EventReader:
    def __init__(self, app: Holdfast, clock: Clock) -> None:
        self._app, self._clock = app, clock
        self._recent: list[StreamedEvent] = []
        self._bytes = 0
        self._low = 0  #: of what is newer, all is in `_recent`
        self.position = 0
        self._is_begun = False
        self.polls = 0
        self._listening = 0
        self._poller: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._readers = asyncio.Semaphore(READERS)
        self.is_closed = False
        self._subjects: JobOwners | None = None

    def close(self) -> None:
        """Let all streams end: the server stops."""
        self.is_closed = True
        self._wake()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Inside the block the log is read."""
        self._listening += 1
        try:
            if self._poller is None:
                self._poller = asyncio.create_task(self._read_on(), name="feed")
            yield
        finally:
            self._listening -= 1
            if self._listening == 0 and self._poller is not None:
                poller, self._poller, self._is_begun = self._poller, None, False
                poller.cancel()
                await asyncio.gather(poller, return_exceptions=True)

    async def newest(self) -> int:
        """Return the number of the newest event; a reader that continues from it sees what happens from now on."""
        return await (await self._store()).newest_event()

    async def knows(self, number: int) -> bool:
        """Whether the event of this *number* is still in the log, so that nothing behind it is missing."""
        if number > LARGEST:
            return False
        found = await (await self._store()).events(after=number - 1, limit=1)
        return bool(found) and found[0].id == number

    async def news(self, after: int, job_id: JobId | None = None, *, seconds: float) -> NewEvents:
        """What happened behind *after*, to any job or to this one; nothing, if that takes longer than *seconds*."""
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
        """A page from the store. The event that *after* names is asked for too: where it is gone, so may others be."""
        store = await self._store()
        found = await store.events(after=max(after - 1, 0), limit=PORTION)
        if after > 0:
            if not found or found[0].id != after:
                return NewEvents((), self.position, reset=True)
            found = found[1:]
        if not found:  # of a log that is empty again
            return NewEvents((), self.position)
        return NewEvents(await self._written(found), found[-1].id)

    async def _read_job(self, after: int, job_id: JobId) -> NewEvents:
        """All that happened to this job, up to where the log has been read: behind that, it may not be complete."""
        store, position = await self._store(), self.position
        if after > 0 and not await self.knows(after):
            return NewEvents((), position, reset=True)
        found = await store.events(after=after, limit=PORTION, job_id=job_id)
        past = [event for event in found if event.id <= position]
        return NewEvents(await self._written(past), past[-1].id if len(past) == PORTION else position)

    async def _store(self) -> Store:
        return (await self._app.engine()).store

    async def _written(self, events: Sequence[Event]) -> list[StreamedEvent]:
        if self._subjects is None:
            self._subjects = JobOwners(await self._store())
        known = await self._subjects.of(events)
        return [_write(event, known[event.job_id]) for event in events]

    # -- the one reader -----------------------------------------------------------------------------------------------
    async def _read_on(self) -> None:
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
        """Take in what is new; whether there may be more."""
        self.polls += 1
        events = await (await self._store()).events(after=self.position, limit=BATCH)
        if not events:
            return False
        told = await self._written(events)
        self._recent += told
        self._bytes += sum(len(one.text) for one in told)
        self._forget()
        self.position = told[-1].id
        self._wake()
        return len(events) == BATCH

    def _forget(self) -> None:
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


def _number(told: StreamedEvent) -> int:
    return told.id


def _write(event: Event, subject: Subject) -> StreamedEvent:
    text = b"id: %d\ndata: %b\n\n" % (event.id, enveloped(event, subject))
    return StreamedEvent(event.id, event.kind, event.job_id, subject.owner, text)
