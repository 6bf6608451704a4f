"""`/events/stream`: what happens, as it happens, by server-sent events.

Each event is a CloudEvent with its number as `id`. A client that was cut off comes back with the last one it has seen, in
`Last-Event-ID` as browsers do it or as `?after=`, and gets what it missed. Where that is not in the log any more, it is told so
(`event: reset`) and goes on from now: what it knows is to be read anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from starlette.types import Receive, Scope, Send

from holdfast.domain.access import Action
from holdfast.domain.job import JobId
from holdfast.domain.moves import Kind
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.server import types
from holdfast.server.connection import connection_of
from holdfast.server.event_reader import StreamedEvent
from holdfast.server.jobs import JobIdPath, readable
from holdfast.server.problems import Problem
from holdfast.server.routing import allows, caller_of, context_of, router

log = Log("holdfast.server")

BEAT_SECONDS = 15.0
#: How often it is asked whether the caller's key is still good.
CHECK_SECONDS = 2.0
#: How long a client may leave what it was sent unread.
STALLED_SECONDS = 30.0
RETRY_MILLISECONDS = 2000
_HEADERS = {"X-Accel-Buffering": "no"}
MEDIA_TYPE = "text/event-stream"
_DIGITS = 30

After = Annotated[
    str | None,
    Query(
        max_length=_DIGITS,
        pattern="^[0-9]+$",
        description="The `id` of the last event you have; without it, from now on.",
    ),
]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=_DIGITS, pattern="^[0-9]+$", description="The same.")
]
KINDS = Annotated[list[str], Query(alias="kind", max_length=50, description="Only these kinds of events.")]
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events as they happen, each a CloudEvent.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}


routes = router("events")


@routes.get(
    "/events/stream",
    response_class=Response,
    responses=_RESPONSES,
    summary="What happens, as it happens",
    **allows(Action.SEE),
)
async def stream_events(
    request: Request,
    kind: KINDS = [],  # noqa: B006 - FastAPI copies it
    owner: Annotated[types.Word | None, Query()] = None,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    whose, kinds = caller_of(request).own(owner), _kinds(kind)

    def wanted(told: StreamedEvent) -> bool:
        return (whose is None or told.owner == whose) and (not kinds or told.kind in kinds)

    return await _open(request, wanted, last_event_id or after)


@routes.get(
    "/jobs/{job_id}/events/stream",
    response_class=Response,
    responses=_RESPONSES,
    summary="What happens to one job, as it happens",
    **allows(Action.SEE),
)
async def stream_job_events(
    request: Request,
    job_id: JobIdPath,
    kind: KINDS = [],  # noqa: B006
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    row, kinds = await readable(request, job_id), _kinds(kind)

    def wanted(told: StreamedEvent) -> bool:
        return told.job_id == row.id and (not kinds or told.kind in kinds)

    return await _open(request, wanted, last_event_id or after, row.id)


def _kinds(given: list[str]) -> frozenset[str]:
    unknown = [kind for kind in given if kind not in Kind.__members__]
    if unknown:
        raise Problem("INVALID", f"no event {unknown[0][:40]!r}; there are: {', '.join(Kind.__members__)}")
    return frozenset(given)


async def _open(
    request: Request,
    wanted: Callable[[StreamedEvent], bool],
    after: str | None,
    job_id: JobId | None = None,
) -> Response:
    """All that may go wrong does so here, while there is still an answer to be given."""
    feed = context_of(request).feed
    place = None if after is None else int(after)
    is_lost = place is not None and place > 0 and not await feed.knows(place)
    begin = await feed.newest() if place is None or is_lost else place
    return Stream(request, wanted, job_id, begin, is_lost)


class Stream(Response):
    """An answer that does not end by itself."""

    def __init__(
        self,
        request: Request,
        wanted: Callable[[StreamedEvent], bool],
        job_id: JobId | None,
        begin: int,
        is_lost: bool,
    ) -> None:
        super().__init__(headers=_HEADERS, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._door, self._request, self._wanted = context_of(request), request, wanted
        self._job_id, self._position, self._is_lost = job_id, begin, is_lost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        following = asyncio.create_task(self._follow(send), name="stream")
        leaving = asyncio.create_task(_left(receive), name="stream: left")
        try:
            await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (following, leaving):
                task.cancel()
            ended, _ = await asyncio.gather(following, leaving, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended

    async def _follow(self, send: Send) -> None:
        async def say(text: bytes, more: bool = True) -> None:
            async with asyncio.timeout(STALLED_SECONDS):
                await send({"type": "http.response.body", "body": text, "more_body": more})

        try:
            async with self._door.feed.listening():
                await say(b"retry: %d\n%b" % (RETRY_MILLISECONDS, self._mark()))
                if self._is_lost:
                    await say(self._reset())
                await self._tell(say)
            await say(b"", more=False)
        except TimeoutError:  # it does not read: it may come back with its number
            log.info("stream.stalled")
            connection = connection_of(self._request.scope)
            if connection is not None:  # closing in order would wait for it to read
                connection.abort()

    async def _tell(self, say: Callable[[bytes], Any]) -> None:
        clock = self._door.clock
        beat_at, check_at = clock.monotonic() + BEAT_SECONDS, clock.monotonic() + CHECK_SECONDS
        while not self._door.feed.is_closed:
            now = clock.monotonic()
            if now >= check_at:
                if not await self._may_stay():
                    return
                check_at = now + CHECK_SECONDS
            if now >= beat_at:
                await say(self._mark())
                beat_at = now + BEAT_SECONDS
            try:
                news = await self._door.feed.news(
                    self._position, self._job_id, seconds=max(0.0, min(beat_at, check_at) - now)
                )
            except StoreError:  # it comes back with its number
                return
            self._position = news.position
            text = b"".join(told.text for told in news.events if self._wanted(told))
            if news.reset:
                text = self._reset()
            if text:
                await say(text)
                beat_at = clock.monotonic() + BEAT_SECONDS

    async def _may_stay(self) -> bool:
        try:
            await self._door.keys.caller(self._request)
        except Problem:
            return False
        except StoreError:  # nobody can say; it was let in
            return True
        return True

    def _mark(self) -> bytes:
        """A sign of life, and how far this has come: events that were not for this client are behind it too."""
        return b": beat\nid: %d\n\n" % self._position

    def _reset(self) -> bytes:
        return (
            b'event: reset\nid: %d\ndata: {"reason": "events were removed; read anew what you know"}\n\n'
            % (self._position)
        )


async def _left(receive: Receive) -> None:
    """Until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
