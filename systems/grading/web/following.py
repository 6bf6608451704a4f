"""Server-sent events of a submission: what was, then what happens, until it has ended. One reader of the log for all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from holdfast import Holdfast, StoreError
from holdfast.logs import Log
from systems.grading.views import show_event

log = Log("grading.web")

LOOK_SEC, BEAT_SEC = 0.2, 15.0
_ENDS = {"complete", "failed", "timed_out", "cancelled"}
_PAGE = 1000


class Following:
    """Wakes the streams that wait for news of a submission. It reads the log only while there are some."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._place = 0  #: up to here the log was read

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def follow(self, submission_id: str, after: int) -> AsyncIterator[bytes]:
        """Events behind number *after*, as text. Ends with the end of the submission; a late result is read by the next who
        asks."""
        bell = asyncio.Event()
        self._waiting.setdefault(submission_id, set()).add(bell)
        try:
            yield b"retry: 2000\n\n"  # a client that is cut off comes back with the last number
            while True:
                bell.clear()
                ended = False
                try:
                    news = await self._app.events(after=after, limit=_PAGE, job_id=submission_id)
                except StoreError:
                    return
                for event in news:
                    after = event.id
                    ended = event.kind in _ENDS or (ended and event.kind in ("late_result", "stale_write"))
                    if (told := show_event(event)) is not None:
                        yield b"id: %d\nevent: %b\ndata: %b\n\n" % (
                            event.id,
                            event.kind.encode(),
                            json.dumps(told).encode(),
                        )
                if ended:
                    return
                self._look(after)
                try:
                    async with asyncio.timeout(BEAT_SEC):
                        await bell.wait()
                except TimeoutError:
                    yield b": beat\n\n"
        finally:
            waiting = self._waiting[submission_id]
            waiting.discard(bell)
            if not waiting:
                del self._waiting[submission_id]

    def _look(self, place: int) -> None:
        if self._looking is None or self._looking.done():
            self._place = max(self._place, place)
            self._looking = asyncio.create_task(self._read(), name="following")

    async def _read(self) -> None:
        """From the last event that the first of them knows: what is newer may be news for somebody."""
        while self._waiting:
            try:
                news = await self._app.events(after=self._place, limit=_PAGE)
            except StoreError as error:
                log.warning("event_reader.retrying", reason=str(error))
                news = []
            if news:
                self._place = news[-1].id
                self._wake({event.job_id for event in news})
            if len(news) < _PAGE:
                await asyncio.sleep(LOOK_SEC)

    def _wake(self, submissions: set[str]) -> None:
        for name in submissions & self._waiting.keys():
            for bell in self._waiting[name]:
                bell.set()
