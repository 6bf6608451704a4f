"""The web app of grading: its routes and their handlers.

| request | response |
|---|---|
| `POST /submissions` | 201 with the submission: JSON `{"skill": "writing", "text": …}`, or a form with `skill=speaking` and `audio` |
| `GET /` | the page; `/session`, `/changes` and `/samples` are its own |
| `GET /submissions` | the caller's submissions, newest first |
| `GET /submissions/{id}` | the status, the result if there is one, and late results |
| `GET /submissions/{id}/events` | server-sent events, until it has ended |
| `GET /progress` | the caller's graded submissions, by skill |
| `POST /submissions/{id}/retry` | send a failed submission again |
| `GET /outbox`, `GET /dlq`, `POST /dlq/{requestId}/recover`, `DELETE /dlq/{requestId}` | for operators |
| `GET /healthz` | 200 if the store answers |
| `/holdfast/api/v1/…` | Holdfast's own API; needs an API key |
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from holdfast import JobRow, State
from holdfast.records import LateResult
from holdfast.server import api
from systems.grading import dlq
from systems.grading.progress import progress_of
from systems.grading.submissions import send_again, submit
from systems.grading.tasks import Grading
from systems.grading.views import show, show_listed, show_message
from systems.grading.web.callers import Callers
from systems.grading.web.event_streams import EventStreams
from systems.grading.web.intake import read_submission
from systems.grading.web.page import Page
from systems.grading.web.problems import Refused, handle_errors, no_such_submission

MAX_ROWS = 200
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def make_site(grading: Grading) -> FastAPI:
    """Return grading's web app. The store is open for its lifespan."""
    routes = _Routes(grading)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with grading.app:
            yield
            routes.page.changes.close()
            await routes.streams.close()

    site = FastAPI(title="Grading", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    site.add_api_route("/submissions", routes.create, methods=["POST"])
    site.add_api_route("/submissions", routes.list, methods=["GET"])
    site.add_api_route("/submissions/{submission_id}", routes.read, methods=["GET"])
    site.add_api_route("/submissions/{submission_id}/events", routes.events, methods=["GET"])
    site.add_api_route("/submissions/{submission_id}/retry", routes.retry, methods=["POST"])
    site.add_api_route("/progress", routes.progress, methods=["GET"])
    site.add_api_route("/outbox", routes.outbox, methods=["GET"])
    site.add_api_route("/dlq", routes.dead, methods=["GET"])
    site.add_api_route("/dlq/{request_id}/recover", routes.recover, methods=["POST"])
    site.add_api_route("/dlq/{request_id}", routes.discard, methods=["DELETE"])
    site.add_api_route("/healthz", routes.healthz, methods=["GET"])
    site.router.routes.extend(routes.page.routes())
    site.state.on_stop = routes.page.changes.close
    site.mount("/holdfast", api(grading.app))
    handle_errors(site)
    return site


class _Routes:
    def __init__(self, grading: Grading) -> None:
        self._grading, self._app = grading, grading.app
        self._callers, self.streams = Callers(grading.app), EventStreams(grading.app)
        self.page = Page(grading, self._callers)

    async def create(self, request: Request) -> Response:
        caller = await self._callers.of(request)
        caller.must_change()
        submission = await read_submission(request)
        row = await submit(
            self._grading, submission.skill, text=submission.text, audio=submission.audio, owner=caller.owner
        )
        return JSONResponse(show(row), 201, {"location": f"/submissions/{row.id}"})

    async def list(self, request: Request, after: str | None = None, limit: int = 50) -> Response:
        caller = await self._callers.of(request)
        most = max(1, min(limit, MAX_ROWS))
        page = await self._app.jobs.list(task="grade", owner=caller.owner, after=after, limit=most)
        found = [show_listed(row, await self._late_results(row)) for row in page.rows]
        return JSONResponse({"submissions": found, "next": page.next})

    async def read(self, request: Request, submission_id: str) -> Response:
        row = await self._submission(request, submission_id)
        return JSONResponse(show(row, await self._app.jobs.late_results(row.id)))

    async def events(self, request: Request, submission_id: str) -> Response:
        row = await self._submission(request, submission_id)
        after = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        if not (after.isascii() and after.isdigit() and len(after) <= 18):
            raise Refused(422, "INVALID", "Last-Event-ID must be the id of an event of this stream.")
        stream = self.streams.follow(row.id, int(after))
        return StreamingResponse(stream, headers=_STREAM_HEADERS, media_type="text/event-stream")

    async def retry(self, request: Request, submission_id: str) -> Response:
        row = await self._submission(request, submission_id)
        caller = await self._callers.of(request)
        caller.must_operate()
        return JSONResponse(show(await send_again(self._grading, row.id, by=caller.name)))

    async def progress(self, request: Request) -> Response:
        caller = await self._callers.of(request)
        return JSONResponse(await progress_of(self._app, caller.owner))

    async def outbox(self, request: Request, submission: str | None = None, limit: int = 50) -> Response:
        await self._operator(request)
        messages = await self._app.outbox.list(key=submission, limit=max(1, min(limit, MAX_ROWS)))
        return JSONResponse({"messages": [show_message(one) for one in messages]})

    async def dead(self, request: Request, limit: int = 50) -> Response:
        await self._operator(request)
        letters = await dlq.list_dead(self._grading, limit=max(1, min(limit, MAX_ROWS)))
        return JSONResponse({"deadLetters": [msgspec.to_builtins(one) for one in letters]})

    async def recover(self, request: Request, request_id: str) -> Response:
        by = await self._operator(request)
        return JSONResponse(show(await dlq.recover(self._grading, request_id, by=by)))

    async def discard(self, request: Request, request_id: str) -> Response:
        by = await self._operator(request)
        return JSONResponse({"discarded": await dlq.discard(self._grading, request_id, by=by)})

    async def healthz(self) -> Response:
        await self._app.jobs.counts(internal=True)
        return JSONResponse({"status": "ok"})

    async def _late_results(self, row: JobRow) -> builtins.list[LateResult]:
        # A result comes late only to a submission that has ended without one.
        may_have_one = row.state in (State.FAILED, State.CANCELLED)
        return await self._app.jobs.late_results(row.id) if may_have_one else []

    async def _operator(self, request: Request) -> str:
        caller = await self._callers.of(request)
        caller.must_operate()
        return caller.name

    async def _submission(self, request: Request, submission_id: str) -> JobRow:
        caller = await self._callers.of(request)
        if not 1 <= len(submission_id) <= 100 or not submission_id.isprintable():
            raise no_such_submission()
        row = await self._app.jobs.get(submission_id)
        caller.must_reach(row)
        return row
