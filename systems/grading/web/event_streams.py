"""Server-sent events of submissions: past events, then new ones until the submission has ended.

One reader of the event log serves all streams.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from holdfast import Holdfast, StoreError
from holdfast.logging import Log
from systems.grading.views import show_event

log = Log("grading.web")

POLL_SEC, KEEPALIVE_SEC = 0.2, 15.0
_ENDS = {"complete", "failed", "timed_out", "cancelled"}
_PAGE = 1000


class EventStreams:
    """The open streams. While there are any, a task reads the event log and wakes those with new events."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._last_read = 0  #: the id of the last event that was read

    async def close(self) -> None:
        """Stop the reader."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def follow(self, submission_id: str, after: int) -> AsyncIterator[bytes]:
        """Yield the events after number *after* as text, until the submission ends.

        A client that wants a later event, such as a late result, asks again.
        """
        wakeup = asyncio.Event()
        self._waiting.setdefault(submission_id, set()).add(wakeup)
        try:
            yield b"retry: 2000\n\n"  # a disconnected client asks again, from the last event it has
            while True:
                wakeup.clear()
                ended = False
                try:
                    events = await self._app.events.list(after=after, limit=_PAGE, job_id=submission_id)
                except StoreError:
                    return
                for event in events:
                    after = event.id
                    ended = event.kind in _ENDS or (ended and event.kind in ("late_result", "stale_write"))
                    if (view := show_event(event)) is not None:
                        yield b"id: %d\nevent: %b\ndata: %b\n\n" % (
                            event.id,
                            event.kind.encode(),
                            json.dumps(view).encode(),
                        )
                if ended:
                    return
                self._start_reader(after)
                try:
                    async with asyncio.timeout(KEEPALIVE_SEC):
                        await wakeup.wait()
                except TimeoutError:
                    yield b": keep-alive\n\n"
        finally:
            waiting = self._waiting[submission_id]
            waiting.discard(wakeup)
            if not waiting:
                del self._waiting[submission_id]

    def _start_reader(self, after: int) -> None:
        if self._reader is None or self._reader.done():
            self._last_read = max(self._last_read, after)
            self._reader = asyncio.create_task(self._read(), name="event reader")

    async def _read(self) -> None:
        """Read new events and wake their streams, as long as any stream is open."""
        while self._waiting:
            try:
                events = await self._app.events.list(after=self._last_read, limit=_PAGE)
            except StoreError as error:
                log.warning("event_reader.retrying", reason=str(error))
                events = []
            if events:
                self._last_read = events[-1].id
                self._wake({event.job_id for event in events})
            if len(events) < _PAGE:
                await asyncio.sleep(POLL_SEC)

    def _wake(self, submissions: set[str]) -> None:
        for name in submissions & self._waiting.keys():
            for wakeup in self._waiting[name]:
                wakeup.set()
