"""`POST /jobs`: from a name and arguments to jobs in the store, once for each name that their sender gives them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from fastapi import Request, Response

from holdfast.app import Holdfast
from holdfast.domain.access import Action
from holdfast.domain.job import Enqueued
from holdfast.domain.job import NewJob as NewRow
from holdfast.domain.moves import State
from holdfast.domain.suggest import suggest
from holdfast.engine import permissions
from holdfast.engine.api_store import Repeated
from holdfast.engine.tasks import Task
from holdfast.server.access import Caller
from holdfast.server.idempotency import HEADER, KEPT_FOR, REPLAYED, named, reused
from holdfast.server.models import EnqueuedPage, EnqueuedView, JobRequest, JobsRequest
from holdfast.server.problems import Problem
from holdfast.server.responses import answer
from holdfast.server.routing import PREFIX, allows, app_of, caller_of, context_of, router

_NO_OPTIONS = frozenset({"task", "args", "owner"})
_TRACE = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


routes = router("jobs")


@routes.post(
    "/jobs",
    status_code=201,
    response_model=EnqueuedView,
    responses={200: {"model": EnqueuedView, "description": "A twin stands in for the new job."}},
    summary="Enqueue a job",
    **allows(Action.ENQUEUE, 402, 409),
)
async def enqueue_job(request: Request, body: JobRequest) -> Response:
    row = _row(app_of(request), body, caller_of(request), _trace(request))
    answers, headers = await _send(request, "jobs", body, [row])
    [told] = await _told(request, answers)
    headers["Location"] = f"{request.scope.get('root_path', '')}{PREFIX}/jobs/{told['id']}"
    return answer(told, 200 if told["duplicate"] else 201, headers)


@routes.post(
    "/jobs/batch",
    status_code=201,
    response_model=EnqueuedPage,
    summary="Enqueue many jobs, all or none",
    **allows(Action.ENQUEUE, 402, 409),
)
async def enqueue_jobs(request: Request, body: JobsRequest) -> Response:
    app, caller, trace = app_of(request), caller_of(request), _trace(request)
    rows = [_row(app, one, caller, trace) for one in body.jobs]
    answers, headers = await _send(request, "jobs/batch", body, rows)
    return answer({"jobs": await _told(request, answers)}, 201, headers)


def _trace(request: Request) -> str | None:
    """The caller's span (W3C), where it names a proper one."""
    given = request.headers.get("traceparent", "")
    return given if _TRACE.fullmatch(given) else None


def _row(app: Holdfast, body: JobRequest, caller: Caller, trace: str | None) -> NewRow:
    """Bound and checked as `task.enqueue` does."""
    task = _task(app, body, caller)
    options: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set - _NO_OPTIONS}
    owner = caller.own(body.owner)
    if owner is not None:
        options["owner"] = owner
    if options.get("tags", ()) is None:
        del options["tags"]
    row = task.options(**options)._job(body.args)
    if trace is not None and row.spec.trace is None:
        row = row._replace(spec=replace(row.spec, trace=trace))
    return row


def _task(app: Holdfast, body: JobRequest, caller: Caller) -> Task[Any, Any]:
    """The task, where the caller may enqueue it, and in this queue."""
    name = body.task
    permissions.must_not_be_internal(name)
    if name not in app.tasks:
        listed = permissions.open_tasks(app) if caller.is_owner else permissions.external_tasks(app)
        raise Problem("UNKNOWN_TASK", f"no task named {name[:100]!r}; {suggest(name[:100], listed)}")
    if caller.is_owner:
        permissions.must_be_open(app, name)
        permissions.must_be_declared(app, body.queue, body.shard)
    return app.tasks[name]


async def _send(
    request: Request, route: str, body: JobRequest | JobsRequest, rows: list[NewRow]
) -> tuple[list[Enqueued], dict[str, str]]:
    """The answers for *rows*, and the headers that tell whether they are the first ones'."""
    if HEADER not in request.headers:
        return list(await app_of(request).send(rows)), {}
    content = body.model_dump(mode="json", exclude_unset=True)
    name = named(request, caller_of(request), route, content)
    found = await (await app_of(request).engine()).enqueue_once(name, rows, keep=KEPT_FOR)
    if not isinstance(found, Repeated):
        return list(found), {}
    if found.fingerprint != name.fingerprint:
        raise reused()
    return list(found.answers), dict(REPLAYED)


async def _told(request: Request, answers: list[Enqueued]) -> list[dict[str, Any]]:
    told = []
    for one in answers:
        state: str = State.QUEUED
        if one.duplicate:
            twin = await (await context_of(request).store()).job(one.id)
            state = State.QUEUED if twin is None else twin.state
        told.append({"id": one.id, "state": state, "duplicate": one.duplicate})
    return told
