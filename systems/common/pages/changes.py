"""Server-sent events for pages: they say that jobs of an owner have changed, and the page reads them again.

One reader of the event log serves all open pages of a process. While none is open, nothing is read. A page
that gets no stream asks every few seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass, field

from starlette.responses import Response, StreamingResponse

from holdfast import Holdfast, StoreError
from holdfast.logging import Log
from holdfast.records import Event

log = Log("systems.pages")

POLL_SEC, KEEPALIVE_SEC = 0.3, 15.0
#: How many pages may follow the changes of one process, and of one owner there. The others ask.
MOST_PAGES, MOST_OF_OWNER = 300, 12
_PAGE, _LOOKUP = 500, 100
#: Events of a queue or a dependency. Each page may show them.
_OF_QUEUES = frozenset({"paused", "resumed", "breaker_opened", "breaker_half_open", "breaker_closed"})
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}


@dataclass(eq=False, slots=True)
class _Listener:
    owner: str | None  #: None for the jobs of all owners
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Changes:
    """The open pages of a process."""

    def __init__(self, app: Holdfast, tasks: Collection[str]) -> None:
        """*tasks* names the tasks whose jobs the pages show."""
        self._app, self._tasks = app, tuple(tasks)
        self._listeners: set[_Listener] = set()
        self._reader: asyncio.Task[None] | None = None
        self._is_closed = False

    def close(self) -> None:
        """End all streams, because the server stops."""
        self._is_closed = True
        self._wake(self._listeners)
        if self._reader is not None:
            self._reader.cancel()

    def answer(self, owner: str | None) -> Response:
        """Return the stream of an owner's changes, or of all; 503 where too many pages are open."""
        open_pages = Counter(one.owner for one in self._listeners)
        if open_pages.total() >= MOST_PAGES or open_pages[owner] >= MOST_OF_OWNER:
            return Response(status_code=503, headers=_HEADERS | {"retry-after": "30"})
        return StreamingResponse(self.follow(owner), headers=_HEADERS, media_type="text/event-stream")

    async def follow(self, owner: str | None) -> AsyncGenerator[bytes]:
        """Yield an event as soon as the stream has begun, and after each change."""
        listener = _Listener(owner)
        self._listeners.add(listener)
        try:
            await self._start_reader()
            yield b"retry: 2000\n\n"
            text: bytes = b"event: changed\ndata: {}\n\n"
            while not self._is_closed:
                yield text
                try:
                    async with asyncio.timeout(KEEPALIVE_SEC):
                        await listener.changed.wait()
                    listener.changed.clear()
                    text = b"event: changed\ndata: {}\n\n"
                except TimeoutError:
                    text = b": keep-alive\n\n"
        except StoreError:
            return  # the page connects again
        finally:
            self._listeners.discard(listener)

    async def _start_reader(self) -> None:
        """Read the log from its present end, unless a reader runs.

        The end is read before the page reads its jobs, so no change falls between the two.
        """
        if self._reader is None or self._reader.done():
            newest = await self._app.events.newest()
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._read(newest), name="changes")

    async def _read(self, position: int) -> None:
        while self._listeners:
            try:
                events = await self._app.events.list(after=position, limit=_PAGE)
                self._wake(await self._concerned(events))
            except StoreError as error:
                log.warning("event_reader.retrying", reason=str(error))
                events = []
            if events:
                position = events[-1].id
            if len(events) < _PAGE:
                await asyncio.sleep(POLL_SEC)

    async def _concerned(self, events: Sequence[Event]) -> Collection[_Listener]:
        """Return the pages that show a job of *events*. In a flood of events that is each of them."""
        if len(events) == _PAGE or any(event.kind in _OF_QUEUES for event in events):
            return self._listeners
        owners: set[str | None] = set()
        ids = list({event.job_id for event in events})
        for start in range(0, len(ids), _LOOKUP):
            page = await self._app.jobs.list(
                ids=ids[start : start + _LOOKUP], task=self._tasks, contents=False, limit=_LOOKUP
            )
            owners |= {row.owner for row in page.rows}
        return {one for one in self._listeners if owners and (one.owner is None or one.owner in owners)}

    def _wake(self, listeners: Collection[_Listener]) -> None:
        for listener in listeners:
            listener.changed.set()
