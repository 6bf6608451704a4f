"""The API.

| request | who | answer |
|---|---|---|
| `GET /` | anybody | the page, which asks for a key; `/session`, `/changes` and `/samples` are its own |
| `POST /documents?name=…`, a document as the body | owner | 201 with its address, for `source` |
| `POST /reports` | owner | 202 with the job; an `Idempotency-Key` makes a repeated request the same one |
| `GET /reports`, `GET /reports/{id}` | owner | their status |
| `GET /reports/{id}/report` | owner | the report |
| `POST /reports/{id}/retry` | operator | retries with or without the recorded answer (P9) |
| `POST /reports/{id}/revalidate` | operator | checks the captured answer against a changed schema, and completes the report |
| `GET /captures`, `GET /reports/{id}/captures` | operator | answers that could not be used (P5) |
| `GET /stats`, `GET /metrics` | viewer, operator, admin | the figures (P6) |
| `/holdfast/api/v1` | the engine's own rules | the engine's API |
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from holdfast import Conflict, Forbidden, HoldfastError, JobRow, State, StoreError, UnknownJob, UsageError
from holdfast.logging import Log
from holdfast.server import api, rate_limit
from systems.common.requests import bounded_body
from systems.reports.codes import CODES, Code
from systems.reports.content import check_name
from systems.reports.documents import Documents, Place
from systems.reports.failures import Trouble, code_of
from systems.reports.records import Records, open_records
from systems.reports.revalidation import revalidate
from systems.reports.schemas import find_schema
from systems.reports.series import Series
from systems.reports.stats import take_stats
from systems.reports.tasks import Reports, roots
from systems.reports.web.bodies import AskReport, AskRetry, AskRevalidate, read_body
from systems.reports.web.callers import Caller, Callers
from systems.reports.web.page import Page
from systems.reports.web.problems import TRY_AGAIN, Refused, no_such_report
from systems.reports.web.uploads import store_document
from systems.reports.web.views import show

log = Log("reports.web")

MOST_ROWS = 200
_MOST_REPORT = 20_000_000
_NAMES = uuid.UUID("0d1b7f5e-95f5-5b7e-8a53-1d1c4c3a8f0b")
_SAFE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


def make_site(reports: Reports) -> FastAPI:
    """Return the API of *reports*. Its lifespan opens and closes the stores."""
    routes = _Routes(reports)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with reports.app, open_records(reports.settings.database_url) as routes.records:
            yield
            routes.page.changes.close()

    site = FastAPI(title="Reports", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    site.add_api_route("/documents", routes.upload, methods=["POST"])
    site.add_api_route("/reports", routes.ask, methods=["POST"])
    site.add_api_route("/reports", routes.list, methods=["GET"])
    site.add_api_route("/reports/{job_id}", routes.one, methods=["GET"])
    site.add_api_route("/reports/{job_id}/report", routes.report, methods=["GET"])
    site.add_api_route("/reports/{job_id}/retry", routes.retry, methods=["POST"])
    site.add_api_route("/reports/{job_id}/captures", routes.captures_of, methods=["GET"])
    site.add_api_route("/reports/{job_id}/revalidate", routes.revalidate, methods=["POST"])
    site.add_api_route("/captures", routes.captures, methods=["GET"])
    site.add_api_route("/stats", routes.stats, methods=["GET"])
    site.add_api_route("/metrics", routes.metrics, methods=["GET"])
    site.add_api_route("/healthz", routes.healthz, methods=["GET"])
    site.router.routes.extend(routes.page.routes())
    site.state.on_stop = routes.page.changes.close
    site.mount("/holdfast", api(reports.app))
    _add_error_handlers(site)
    return site


class _Routes:
    records: Records  #: set by the site's lifespan

    def __init__(self, reports: Reports) -> None:
        self._reports, self._app, self._settings = reports, reports.app, reports.settings
        self._callers = Callers(reports.app)
        self.page = Page(reports, self._callers)
        self._may_upload = rate_limit(reports.app, "document", reports.settings.upload_rate)
        self._documents = Documents(roots(reports.settings))
        self._place = Place(reports.settings.reports_url)

    # -- for owners ---------------------------------------------------------------------------------------------------
    async def upload(self, request: Request, name: str) -> Response:
        caller = await self._callers.of(request)
        caller.must_ask()
        if wait := await self._may_upload(caller.owner):
            detail = f"There were too many documents in a short time. Send it again in {wait} s."
            headers = {"retry-after": str(wait), "connection": "close"}
            raise Refused(Code.INVALID_REQUEST, detail, status=429, headers=headers)
        most = self._settings.document_max_bytes
        data = await bounded_body(request, most)
        if data is None:
            detail = f"A document has at most {most:,} bytes."
            raise Refused(Code.TOO_LARGE, detail, headers={"connection": "close"})
        return _json({"source": await store_document(self._documents, caller.owner, name, data)}, 201)

    async def ask(self, request: Request) -> Response:
        caller = await self._callers.of(request)
        caller.must_ask()
        body = await read_body(request, AskReport)
        try:
            self._documents.find(body.source)
            check_name(body.source)
            find_schema(body.schema, self._settings.schemas_dir)
        except Trouble as trouble:
            raise await self._record_refusal(body, caller, trouble) from None
        idempotency_key = request.headers.get("idempotency-key", "")
        job_id = str(uuid.uuid5(_NAMES, f"{caller.owner}\n{idempotency_key}")) if idempotency_key else None
        handle = await self._reports.report.options(owner=caller.owner, id=job_id).enqueue(
            body.source, body.schema, instructions=body.instructions
        )
        row = await handle.job()
        if idempotency_key and not _is_same(row, body):
            raise Refused(Code.INVALID_REQUEST, "This Idempotency-Key was used for another request.")
        return _json(show(row), 202)

    async def list(self, request: Request, after: str | None = None, limit: int = 50) -> Response:
        caller = await self._callers.of(request)
        page = await self._app.jobs.list(
            task="report", after=after, limit=max(1, min(limit, MOST_ROWS)), owner=caller.sees
        )
        return _json({"reports": [show(row) for row in page.rows], "next": page.next})

    async def one(self, request: Request, job_id: str) -> Response:
        row = await self._find(await self._callers.of(request), job_id)
        shown = show(row)
        if row.state is State.FAILED:
            captures = await self.records.captures_of(row.id)
            shown["errors"] = captures[0].body["errors"] if captures else []
        return _json(shown)

    async def report(self, request: Request, job_id: str) -> Response:
        row = await self._find(await self._callers.of(request), job_id)
        if row.state is not State.COMPLETE:
            raise Refused(Code.NOT_READY)
        found = await self.records.report(row.id)
        if found is None or row.expired_at is not None:
            raise Refused(Code.EXPIRED)
        try:
            document = await self._place.read(found.address.rpartition("/")[2], _MOST_REPORT)
        except Trouble as trouble:
            is_missing = trouble.code is Code.MISSING_OBJECT
            raise Refused(Code.EXPIRED if is_missing else trouble.code) from None
        return Response(document.data, media_type="application/json", headers=_SAFE)

    # -- for operators ------------------------------------------------------------------------------------------------
    async def retry(self, request: Request, job_id: str) -> Response:
        caller = await self._callers.of(request)
        caller.must_operate()
        body = await read_body(request, AskRetry)
        row = await self._find(caller, job_id)
        if not row.is_retryable:
            detail = "Only a report that has failed, was cancelled or waits for its next try can be retried."
            raise Refused(Code.NOT_READY, detail)
        if body.keep_answer:
            await self._app.jobs.retry(row.id, by=caller.owner)
        else:
            await self._retry_with_new_answer(row, caller)
        return _json(show(await self._app.jobs.get(row.id)))

    async def _retry_with_new_answer(self, row: JobRow, caller: Caller) -> None:
        """Retry without the recorded answer of the model, if there is one."""
        await self.records.forget_override(row.id)
        try:
            await self._app.jobs.retry(row.id, by=caller.owner, from_step="llm")
        except UsageError:  # there is no such step, because the model has not answered yet
            await self._app.jobs.retry(row.id, by=caller.owner)

    async def revalidate(self, request: Request, job_id: str) -> Response:
        caller = await self._callers.of(request)
        caller.must_operate()
        body = await read_body(request, AskRevalidate)
        row = await self._find(caller, job_id)
        judged = await revalidate(
            self._app,
            self.records,
            self._settings,
            row.id,
            schema=body.schema,
            complete=body.complete,
            by=caller.owner,
        )
        shown = {"fits": judged.fits, "errors": judged.errors, "repairs": judged.repairs}
        return _json(shown | {"report": show(await self._app.jobs.get(row.id))}, 200 if judged.fits else 422)

    async def captures(
        self, request: Request, before: float | None = None, limit: int = 50, code: str = ""
    ) -> Response:
        (await self._callers.of(request)).must_operate()
        found = await self.records.captures(limit=max(1, min(limit, MOST_ROWS)), before=before, code=code)
        return _json({"captures": [one.as_json() for one in found], "next": found[-1].at if found else None})

    async def captures_of(self, request: Request, job_id: str) -> Response:
        caller = await self._callers.of(request)
        caller.must_operate()
        row = await self._find(caller, job_id)
        return _json({"captures": [one.as_json() for one in await self.records.captures_of(row.id)]})

    async def stats(self, request: Request, since: float = 0.0) -> Response:
        (await self._callers.of(request)).must_operate(change=False)
        return _json((await take_stats(self.records, since=since)).as_json())

    async def metrics(self, request: Request) -> Response:
        (await self._callers.of(request)).must_operate(change=False)
        body, kind = Series(await take_stats(self.records)).text(request.headers.get("accept", ""))
        return Response(body, media_type=kind, headers={"cache-control": "no-store"})

    async def healthz(self) -> Response:
        await self._app.jobs.counts(internal=True)
        return _json({"status": "ok"})

    # -- parts --------------------------------------------------------------------------------------------------------
    async def _find(self, caller: Caller, job_id: str) -> JobRow:
        row = await self._app.jobs.get(job_id)
        if row.task != "report":
            raise no_such_report()
        caller.must_reach(row)
        return row

    async def _record_refusal(self, body: AskReport, caller: Caller, trouble: Trouble) -> Refused:
        """Record a rejected job for the request, and return the refusal with its id if that worked."""
        refused = Refused(trouble.code, f"{CODES[trouble.code].final} ({trouble})")
        schema = body.schema if isinstance(body.schema, str) else {}
        arguments = {"source": body.source, "schema": schema, "instructions": body.instructions}
        try:
            job_id = await self._app.tasks["report"].reject(
                arguments, trouble.code.value, message=CODES[trouble.code].final, owner=caller.owner
            )
        except HoldfastError as error:
            log.warning("refusal.not_recorded", reason=str(error))
        else:
            refused.more = {"id": job_id}
        return refused


def _is_same(row: JobRow, body: AskReport) -> bool:
    payload: dict[str, Any] = row.payload
    same = payload.get("source") == body.source and payload.get("schema") == body.schema
    return same and payload.get("instructions", "") == body.instructions


def _json(body: Any, status: int = 200) -> Response:
    return JSONResponse(body, status, _SAFE)


def _add_error_handlers(site: FastAPI) -> None:
    async def respond(request: Request, error: Exception) -> Response:
        return _refusal(error).answer()

    for kind in (Refused, Trouble, HoldfastError, HTTPException, RequestValidationError, Exception):
        site.add_exception_handler(kind, respond)


def _refusal(error: Exception) -> Refused:
    match error:
        case Refused():
            return error
        case Trouble():
            return Refused(error.code, f"{CODES[error.code].final} ({error})")
        case UnknownJob():
            return no_such_report()
        case Forbidden():
            return Refused(Code.FORBIDDEN, str(error))
        case Conflict():
            return Refused(Code.NOT_READY, "The report has changed in the meantime; read it again.")
        case StoreError():
            log.warning("store.unavailable", reason=str(error))
            detail = "The queue cannot be reached now. Try again in a moment."
            return Refused(Code.IO_ERROR, detail, headers=TRY_AGAIN)
        case HTTPException():
            detail = {
                404: "There is nothing at this path.",
                405: "This path does not support the method.",
            }.get(error.status_code, "")
            return Refused(Code.INVALID_REQUEST, detail, status=error.status_code)
        case HoldfastError() | RequestValidationError():
            return Refused(Code.INVALID_REQUEST)
    if code_of(error) is Code.IO_ERROR:  # from the system's own tables
        return Refused(
            Code.IO_ERROR, "The database cannot be reached now. Try again in a moment.", headers=TRY_AGAIN
        )
    log.error("request.failed", error=type(error).__name__)
    return Refused(Code.UNKNOWN)
