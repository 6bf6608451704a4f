"""The web app: the page, the routes of the API, and the mapping of exceptions to error responses.

| request | response |
|---|---|
| `GET /` | the queue page; `GET /changes` is its stream: the caller's jobs have changed |
| `POST /api/upload`, a form with `file`, `mapping` and `priority` | 201 with the job, or 200 with the job of an equal upload |
| `GET /api/jobs` | the caller's jobs, newest first, and whether the converter is held |
| `GET /api/jobs/{id}` | one job |
| `GET /api/jobs/{id}/download` | the XML |
| `POST /api/jobs/{id}/retry` | the job, queued again; or the job of a later upload of the same file |
| `POST /api/jobs/{id}/cancel` | the job, cancelled |
| `DELETE /api/jobs/{id}` | 204: the PDF and the XML are deleted, and the job is not listed any more |
| `GET /healthz` | 200 if the store answers |
| `/holdfast/api/v1/…` | Holdfast's own API, for operators; needs an API key |
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from holdfast import Conflict, HoldfastError, JobRow, State, StoreError, UnknownJob, UsageError
from holdfast.logging import Log
from holdfast.server import dashboard, rate_limit
from systems.common.pages.changes import Changes
from systems.common.pages.files import page_routes
from systems.converter.codes import Code
from systems.converter.samples import article
from systems.converter.tasks import Converter
from systems.converter.web.actions import Actions
from systems.converter.web.busy import BANNER, Busy
from systems.converter.web.callers import Caller, Callers
from systems.converter.web.headers import Headers
from systems.converter.web.problems import TRY_AGAIN, Refused, no_such_job, too_many_uploads
from systems.converter.web.sessions import Sessions, read_key
from systems.converter.web.uploads import Uploader
from systems.converter.web.views import show

log = Log("converter.web")

_CHUNK = 256 * 1024
MAX_ROWS = 200


def make_site(converter: Converter) -> FastAPI:
    """Return the converter's web app. The store is open for its lifespan."""
    app = converter.app

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with app:
            yield
            routes.changes.close()

    site = FastAPI(title="Converter", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    settings = converter.settings
    sessions = Sessions(read_key(settings.session_key_file))
    routes = _Routes(converter, Callers(app, sessions, settings.cookie_secure))
    site.add_api_route("/api/upload", routes.upload, methods=["POST"])
    site.add_api_route("/api/jobs", routes.jobs, methods=["GET"])
    site.add_api_route("/api/jobs/{job_id}", routes.job, methods=["GET"])
    site.add_api_route("/api/jobs/{job_id}/download", routes.download, methods=["GET"])
    site.add_api_route("/api/jobs/{job_id}/retry", routes.retry, methods=["POST"])
    site.add_api_route("/api/jobs/{job_id}/cancel", routes.cancel, methods=["POST"])
    site.add_api_route("/api/jobs/{job_id}", routes.remove, methods=["DELETE"])
    site.add_api_route("/changes", routes.follow, methods=["GET"])
    site.add_api_route("/healthz", routes.healthz, methods=["GET"])
    samples = {"sample.pdf": (article(), "application/pdf")}
    names = ("queue.html", "queue.css", "queue.js", "icon.svg")
    # A visit begins the session, so that the first request of the page's script has a cookie.
    page = page_routes("systems.converter.web", *names, samples=samples, on_visit=routes.callers.of)
    site.router.routes.extend(page)
    site.state.on_stop = routes.changes.close
    site.mount("/holdfast", dashboard(app))
    _handle_errors(site)
    site.add_middleware(Headers)
    return site


class _Routes:
    def __init__(self, converter: Converter, callers: Callers) -> None:
        self._converter, self._app, self.callers = converter, converter.app, callers
        self._uploader, self._busy = Uploader(converter), Busy(converter)
        self._actions = Actions(converter, self._uploader)
        self.changes = Changes(converter.app, ["convert"])
        self._may_upload = rate_limit(converter.app, "upload", converter.settings.upload_rate)

    async def upload(self, request: Request) -> Response:
        caller = await self.callers.of(request)
        caller.must_change()
        if wait := await self._may_upload(caller.scope):
            raise too_many_uploads(wait)
        handle = await self._uploader.take(request, caller)
        view = await self._view(await handle.job())
        return JSONResponse(view | {"duplicate": handle.duplicate}, 200 if handle.duplicate else 201)

    async def jobs(self, request: Request, after: str | None = None, limit: int = 50) -> Response:
        caller = await self.callers.of(request)
        owner = None if caller.reaches_all else caller.owner
        page = await self._app.jobs.list(
            task="convert", after=after, limit=max(1, min(limit, MAX_ROWS)), owner=owner
        )
        held = await self._busy.held()
        rows = await anyio.to_thread.run_sync(self._shown, page.rows)
        return JSONResponse(
            {"jobs": rows, "next": page.next, "held": held, "banner": BANNER if held else None}
        )

    async def job(self, request: Request, job_id: str) -> Response:
        return JSONResponse(await self._view(await self._find(await self.callers.of(request), job_id)))

    async def download(self, request: Request, job_id: str) -> Response:
        row = await self._find(await self.callers.of(request), job_id)
        if row.state is not State.COMPLETE:
            raise Refused(Code.NOT_READY)
        if row.expired_at is not None:
            raise Refused(Code.EXPIRED)
        try:
            file: IO[bytes] = await anyio.to_thread.run_sync(open, self._converter.result(row.id), "rb")
        except FileNotFoundError:
            raise Refused(Code.EXPIRED) from None
        name = Path(str(row.payload.get("name") or "result")).stem + ".xml"
        headers = {
            "content-length": str(os.fstat(file.fileno()).st_size),
            "content-disposition": f"attachment; filename=\"result.xml\"; filename*=UTF-8''{quote(name, safe='')}",
        }
        return StreamingResponse(_chunks(file), headers=headers, media_type="application/xml")

    async def retry(self, request: Request, job_id: str) -> Response:
        caller = await self.callers.of(request)
        caller.must_change()
        current_id, duplicate = await self._actions.retry(caller, await self._find(caller, job_id))
        view = await self._view(await self._app.jobs.get(current_id))
        return JSONResponse(view | {"duplicate": duplicate})

    async def cancel(self, request: Request, job_id: str) -> Response:
        caller = await self.callers.of(request)
        caller.must_change()
        row = await self._find(caller, job_id)
        await self._actions.cancel(caller, row)
        return JSONResponse(await self._view(await self._app.jobs.get(row.id)))

    async def remove(self, request: Request, job_id: str) -> Response:
        caller = await self.callers.of(request)
        caller.must_change()
        await self._actions.remove(await self._find(caller, job_id))
        return Response(status_code=204)

    async def follow(self, request: Request) -> Response:
        caller = await self.callers.of(request)
        return self.changes.answer(None if caller.reaches_all else caller.owner)

    async def healthz(self) -> Response:
        await self._app.jobs.counts(internal=True)
        return JSONResponse({"status": "ok"})

    async def _find(self, caller: Caller, job_id: str) -> JobRow:
        row = await self._app.jobs.get(job_id)
        if row.task != "convert":
            raise no_such_job()
        caller.must_reach(row)
        if await anyio.to_thread.run_sync(self._converter.removed(row.id).exists):
            raise no_such_job()
        return row

    def _shown(self, rows: Sequence[JobRow]) -> list[dict[str, Any]]:
        return [show(row, self._converter) for row in rows if not self._converter.removed(row.id).exists()]

    async def _view(self, row: JobRow) -> dict[str, Any]:
        return await anyio.to_thread.run_sync(lambda: show(row, self._converter))


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await anyio.to_thread.run_sync(file.read, _CHUNK):
            yield chunk


def _handle_errors(site: FastAPI) -> None:
    async def respond(request: Request, error: Exception) -> Response:
        return _refusal(request, error).response()

    for kind in (Refused, HoldfastError, HTTPException, RequestValidationError, ClientDisconnect, Exception):
        site.add_exception_handler(kind, respond)


def _refusal(request: Request, error: Exception) -> Refused:
    match error:
        case Refused():
            return error
        case UnknownJob():
            return no_such_job()
        case Conflict():
            return Refused(Code.NOT_READY, "The job has changed meanwhile; read it again.")
        case StoreError():
            log.warning("store.unavailable", reason=str(error))
            detail = "The queue is unavailable. Try again in a moment."
            return Refused(Code.IO_ERROR, detail, status=503, headers=TRY_AGAIN)
        case UsageError() | RequestValidationError():
            return Refused(Code.UNKNOWN, "This request is not valid.", status=400)
        case ClientDisconnect():
            return Refused(Code.UNKNOWN, "The upload was cut off.", status=400)  # the client has gone
        case HTTPException():
            texts = {404: "There is no such page.", 405: "This method is not allowed here."}
            detail = texts.get(error.status_code, "")
            headers = dict(error.headers or {})
            return Refused(Code.UNKNOWN, detail, status=error.status_code, headers=headers)
    log.error("request.failed", path=request.scope.get("route_path", ""), error=type(error).__name__)
    return Refused(Code.UNKNOWN)
