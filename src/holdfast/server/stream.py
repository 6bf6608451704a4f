"""`/events/stream`: live events as server-sent events.

Each event is a CloudEvent with its number as `id`. A client that reconnects sends the number of the last event it has seen, in
`Last-Event-ID` as browsers do or as `?after=`, and gets what it missed. If that event was removed from the log, the client gets
`event: reset` and continues with new events; it must read again what it shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from starlette.types import Receive, Scope, Send

from holdfast.engine.access import Action
from holdfast.errors import StoreError
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind
from holdfast.logging import Log
from holdfast.server import types
from holdfast.server.connection import connection_of
from holdfast.server.event_reader import StreamedEvent
from holdfast.server.jobs import JobIdPath, visible_job
from holdfast.server.problems import Problem
from holdfast.server.routing import allows, caller_of, context_of, router

log = Log("holdfast.server")

HEARTBEAT_SECONDS = 15.0
#: How often the caller's key is checked again.
CHECK_SECONDS = 2.0
#: How long a client may leave unread what was sent to it.
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


@routes.get("/events/stream", response_class=Response, responses=_RESPONSES, **allows(Action.SEE))
async def stream_events(
    request: Request,
    kind: KINDS = [],  # noqa: B006 - FastAPI copies it
    owner: Annotated[types.Word | None, Query()] = None,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream live events."""
    only, kinds = caller_of(request).own(owner), _kinds(kind)

    def wanted(event: StreamedEvent) -> bool:
        return (only is None or event.owner == only) and (not kinds or event.kind in kinds)

    return await _open(request, wanted, last_event_id or after)


@routes.get(
    "/jobs/{job_id}/events/stream", response_class=Response, responses=_RESPONSES, **allows(Action.SEE)
)
async def stream_job_events(
    request: Request,
    job_id: JobIdPath,
    kind: KINDS = [],  # noqa: B006
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream live events of one job."""
    row, kinds = await visible_job(request, job_id), _kinds(kind)

    def wanted(event: StreamedEvent) -> bool:
        return event.job_id == row.id and (not kinds or event.kind in kinds)

    return await _open(request, wanted, last_event_id or after, row.id)


def _kinds(names: list[str]) -> frozenset[str]:
    unknown = [name for name in names if name not in Kind.__members__]
    if unknown:
        raise Problem("INVALID", f"no event {unknown[0][:40]!r}; there are: {', '.join(Kind.__members__)}")
    return frozenset(names)


async def _open(
    request: Request,
    wanted: Callable[[StreamedEvent], bool],
    after: str | None,
    job_id: JobId | None = None,
) -> Response:
    """Return the stream. Errors are raised here, while another response can still be sent."""
    reader = context_of(request).event_reader
    place = None if after is None else int(after)
    is_lost = place is not None and place > 0 and not await reader.has(place)
    begin = await reader.newest() if place is None or is_lost else place
    return Stream(request, wanted, job_id, begin, is_lost)


class Stream(Response):
    """A response that lasts until the client leaves or the server stops."""

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
        self._context, self._request, self._wanted = context_of(request), request, wanted
        self._job_id, self._position, self._is_lost = job_id, begin, is_lost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        following = asyncio.create_task(self._follow(send), name="stream")
        leaving = asyncio.create_task(_disconnected(receive), name="stream: disconnected")
        try:
            await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (following, leaving):
                task.cancel()
            ended, _ = await asyncio.gather(following, leaving, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended

    async def _follow(self, send: Send) -> None:
        async def write(text: bytes, more: bool = True) -> None:
            async with asyncio.timeout(STALLED_SECONDS):
                await send({"type": "http.response.body", "body": text, "more_body": more})

        try:
            async with self._context.event_reader.listening():
                await write(b"retry: %d\n%b" % (RETRY_MILLISECONDS, self._heartbeat()))
                if self._is_lost:
                    await write(self._reset())
                await self._send_events(write)
            await write(b"", more=False)
        except TimeoutError:  # the client does not read; it may reconnect with its position
            log.info("stream.stalled")
            connection = connection_of(self._request.scope)
            if connection is not None:  # an orderly close would wait for it to read
                connection.abort()

    async def _send_events(self, write: Callable[[bytes], Any]) -> None:
        clock = self._context.clock
        heartbeat_at, check_at = clock.monotonic() + HEARTBEAT_SECONDS, clock.monotonic() + CHECK_SECONDS
        while not self._context.event_reader.is_closed:
            now = clock.monotonic()
            if now >= check_at:
                if not await self._has_valid_key():
                    return
                check_at = now + CHECK_SECONDS
            if now >= heartbeat_at:
                await write(self._heartbeat())
                heartbeat_at = now + HEARTBEAT_SECONDS
            try:
                new = await self._context.event_reader.next_events(
                    self._position, self._job_id, seconds=max(0.0, min(heartbeat_at, check_at) - now)
                )
            except StoreError:  # the client reconnects with its position
                return
            self._position = new.position
            text = b"".join(event.text for event in new.events if self._wanted(event))
            if new.reset:
                text = self._reset()
            if text:
                await write(text)
                heartbeat_at = clock.monotonic() + HEARTBEAT_SECONDS

    async def _has_valid_key(self) -> bool:
        try:
            await self._context.keys.caller(self._request)
        except Problem:
            return False
        except StoreError:  # unknown; it was valid when the stream began
            return True
        return True

    def _heartbeat(self) -> bytes:
        """Return a comment that keeps the connection open, with the position, which also passes events of other owners."""
        return b": beat\nid: %d\n\n" % self._position

    def _reset(self) -> bytes:
        return (
            b'event: reset\nid: %d\ndata: {"reason": "events were removed; read again what you show"}\n\n'
            % (self._position)
        )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
