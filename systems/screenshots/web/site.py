"""The API.

| request | who | answer |
|---|---|---|
| `GET /` | anybody | the page, which asks for a key; `/session` and `/changes` are its own |
| `POST /api/v1/screenshots` | owner | 202 with the job; an `Idempotency-Key` makes a repeated request the same one |
| `GET /api/v1/screenshots`, `GET …/{id}` | owner | their status |
| `GET …/{id}/image` | owner | the picture |
| `POST …/{id}/retry` | owner | its queue position (S2) |
| `GET …/{id}/audit` | owner | who did what with it, and when (S8) |
| `GET /api/v1/credits` | owner | its account |
| `GET /api/v1/admin/analytics`, `…/sla/breaches`, `…/sla/report`, `…/hosts`, `…/retry-scheduler` | viewer, operator, admin | figures, promises, failing places, maintenance |
| everything else under `/api/v1`, `/metrics`, `/livez`, `/readyz` | the engine's own rules | the engine's API: `admin/workers/status`, `admin/jobs/stuck`, `admin/retry-scheduler/pause` … (S4, S5) |
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread
import msgspec
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response

from holdfast import HoldfastError, JobRow, State
from holdfast.server import api
from systems.screenshots.analytics import analyse
from systems.screenshots.failures import ShotFailed
from systems.screenshots.guard import Rules
from systems.screenshots.hosts import Hosts
from systems.screenshots.images import picture_of
from systems.screenshots.records import Books, open_books
from systems.screenshots.records.books import TYPES, retry_priority
from systems.screenshots.shot import MEDIA_TYPES, Shot
from systems.screenshots.sla import BreachCursor, Sla
from systems.screenshots.sla_report import Month, report
from systems.screenshots.tasks import Screenshots
from systems.screenshots.web.accounts import show_account
from systems.screenshots.web.bodies import AskRetry, AskShot, read_body
from systems.screenshots.web.callers import Caller, Callers
from systems.screenshots.web.page import Page
from systems.screenshots.web.problems import Refused, refusal_of
from systems.screenshots.web.retries import retry
from systems.screenshots.web.scheduler import scheduler_status
from systems.screenshots.web.views import audit, show

MOST_ROWS = 200
_LONGEST_NAME = 200
_NAMES = uuid.UUID("f2bb2d7b-5a4e-5d58-8f1e-2a9d1f6f3a77")
_SAFE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "cache-control": "no-store",
}


def make_site(screenshots: Screenshots) -> FastAPI:
    """Return the API of *screenshots*. Its lifespan opens and closes the stores."""
    routes = _Routes(screenshots)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with screenshots.app, open_books(screenshots.settings.database_url) as routes.books:
            yield
            routes.page.changes.close()

    site = FastAPI(title="Screenshots", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    shots, admin = "/api/v1/screenshots", "/api/v1/admin"
    site.add_api_route(shots, routes.ask, methods=["POST"])
    site.add_api_route(shots, routes.list, methods=["GET"])
    site.add_api_route(f"{shots}/{{job_id}}", routes.one, methods=["GET"])
    site.add_api_route(f"{shots}/{{job_id}}/image", routes.image, methods=["GET"])
    site.add_api_route(f"{shots}/{{job_id}}/retry", routes.retry, methods=["POST"])
    site.add_api_route(f"{shots}/{{job_id}}/audit", routes.audit, methods=["GET"])
    site.add_api_route("/api/v1/credits", routes.credits, methods=["GET"])
    site.add_api_route(f"{admin}/analytics", routes.analytics, methods=["GET"])
    site.add_api_route(f"{admin}/sla/breaches", routes.breaches, methods=["GET"])
    site.add_api_route(f"{admin}/sla/report", routes.report, methods=["GET"])
    site.add_api_route(f"{admin}/hosts", routes.hosts, methods=["GET"])
    site.add_api_route(f"{admin}/retry-scheduler", routes.scheduler, methods=["GET"])
    site.router.routes.extend(routes.page.routes())
    site.state.on_stop = routes.page.changes.close
    site.mount("", api(screenshots.app))
    _add_error_handlers(site)
    return site


class _Routes:
    books: Books  #: set by the site's lifespan

    def __init__(self, screenshots: Screenshots) -> None:
        self._screenshots, self._app = screenshots, screenshots.app
        self._callers = Callers(screenshots.app)
        self.page = Page(screenshots, self._callers)
        self._rules = Rules.read(os.environ)

    # -- for owners ---------------------------------------------------------------------------------------------------
    async def ask(self, request: Request) -> Response:
        caller = await self._callers.of(request)
        caller.must_ask()
        body = await read_body(request, AskShot)
        shot = body.shot(self._rules)
        idempotency_key = request.headers.get("idempotency-key", "")
        if len(idempotency_key) > _LONGEST_NAME:
            raise Refused(
                "VALIDATION_ERROR", f"An Idempotency-Key has up to {_LONGEST_NAME} characters.", status=422
            )
        job_id = str(uuid.uuid5(_NAMES, f"{caller.owner}\n{idempotency_key}")) if idempotency_key else None
        task = self._screenshots.task_for(shot)
        handle = await task.options(owner=caller.owner, id=job_id, priority=body.priority.lower()).enqueue(
            shot
        )
        row = await handle.job()
        if idempotency_key and not _is_same(row, shot):
            raise Refused(
                "VALIDATION_ERROR", "This Idempotency-Key was used for another request.", status=422
            )
        return _json(show(row) | {"creditsReserved": task.policy.extra["price"]}, 202)

    async def list(
        self, request: Request, owner: str | None = None, after: str | None = None, limit: int = 50
    ) -> Response:
        """List the caller's screenshots, or those of *owner*, if the caller may read them.

        Operators get all by default.
        """
        caller = await self._callers.of(request)
        if owner is not None:
            await self._callers.must_reach(caller, owner)
        elif caller.role == "owner":
            owner = caller.owner
        most = max(1, min(limit, MOST_ROWS))
        page = await self._app.jobs.list(task=TYPES, owner=owner, after=after, limit=most)
        return _json({"screenshots": [show(row) for row in page.rows], "next": page.next})

    async def one(self, request: Request, job_id: str) -> Response:
        return _json(show(await self._find(await self._callers.of(request), job_id)))

    async def image(self, request: Request, job_id: str) -> Response:
        row = await self._find(await self._callers.of(request), job_id)
        if row.state is not State.COMPLETE:
            shown = show(row)
            reason = shown["lastFailureReason"] if row.state is State.FAILED else ""
            raise Refused("NOT_READY", reason or "", jobId=row.id, status=409)
        path = await anyio.to_thread.run_sync(picture_of, self._screenshots.settings.images_dir, row)
        if path is None:
            raise Refused("EXPIRED")
        kind = path.suffix.removeprefix(".")
        name = f'inline; filename="{row.id}.{kind}"'
        return FileResponse(path, headers=_SAFE | {"content-disposition": name}, media_type=MEDIA_TYPES[kind])

    async def retry(self, request: Request, job_id: str) -> Response:
        caller = await self._callers.of(request)
        caller.must_ask()
        body = await read_body(request, AskRetry)
        row = await self._find(caller, job_id)
        requested_by = "".join(char for char in body.requested_by if char.isprintable())
        by = f"{caller.name} for {requested_by}" if requested_by else caller.name
        priority = await retry_priority(self._app, self.books, self._screenshots.promises, row)
        place = await retry(self._app, row, by=by, priority=priority)
        return _json({"jobId": row.id, "message": "Job queued for manual retry", "queuePosition": place})

    async def audit(self, request: Request, job_id: str) -> Response:
        row = await self._find(await self._callers.of(request), job_id)
        return _json({"jobId": row.id, "trail": audit(row, await self._app.events.list(job_id=row.id))})

    async def credits(self, request: Request) -> Response:
        caller = await self._callers.of(request)
        return _json(await show_account(self._app, caller.owner))

    # -- for operators ------------------------------------------------------------------------------------------------
    async def analytics(self, request: Request, hours: int = 168) -> Response:
        (await self._callers.of(request)).must_operate()
        return _json(await analyse(self.books, since=time.time() - max(1, min(hours, 8_784)) * 3600))

    async def breaches(self, request: Request, limit: int = 50, after: str | None = None) -> Response:
        (await self._callers.of(request)).must_operate()
        place, most = None if after is None else BreachCursor.read(after), max(1, min(limit, MOST_ROWS))
        if after is not None and place is None:
            raise Refused("VALIDATION_ERROR", "`after` is not the `next` of another page.", status=422)
        found = await Sla(self._app, self.books, self._screenshots.promises).breaches(limit=most, after=place)
        next_cursor = str(found[-1].cursor) if len(found) == most else None
        return _json({"breaches": [one.as_json() for one in found], "next": next_cursor})

    async def report(self, request: Request, month: str | None = None) -> Response:
        (await self._callers.of(request)).must_operate()
        found = Month.of(datetime.now(UTC)) if month is None else Month.read(month)
        if found is None:
            raise Refused("VALIDATION_ERROR", "`month` is a calendar month such as 2026-11.", status=422)
        return _json(await report(self.books, found))

    async def hosts(self, request: Request, limit: int = 100) -> Response:
        (await self._callers.of(request)).must_operate()
        return _json({"hosts": await Hosts(self.books).failing(max(1, min(limit, MOST_ROWS)))})

    async def scheduler(self, request: Request) -> Response:
        (await self._callers.of(request)).must_operate()
        return _json(await scheduler_status(self._app, self._screenshots.settings))

    # -- parts --------------------------------------------------------------------------------------------------------
    async def _find(self, caller: Caller, job_id: str) -> JobRow:
        row = await self._app.jobs.get(job_id)
        if row.task not in TYPES:
            raise Refused("NOT_FOUND")
        await self._callers.must_reach(caller, row.owner)
        return row


def _is_same(row: JobRow, shot: Shot) -> bool:
    stored = row.payload.get("shot") if isinstance(row.payload, dict) else None
    try:
        return msgspec.convert(stored, Shot) == shot
    except (msgspec.ValidationError, ShotFailed):
        return False


def _json(body: Any, status: int = 200) -> Response:
    return JSONResponse(body, status, _SAFE)


def _add_error_handlers(site: FastAPI) -> None:
    async def respond(_: Request, error: Exception) -> Response:
        if isinstance(error, RequestValidationError):
            return Refused("VALIDATION_ERROR", "A part of the query cannot be read.", status=422).answer()
        if isinstance(error, HTTPException):
            return Refused(
                "NOT_FOUND", "There is nothing at this path for this method.", status=error.status_code
            ).answer()
        return refusal_of(error).answer()

    for kind in (Refused, ShotFailed, HoldfastError, HTTPException, RequestValidationError, Exception):
        site.add_exception_handler(kind, respond)
