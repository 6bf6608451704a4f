"""`POST /jobs`: enqueue jobs by the name of a task and its arguments, once for each `Idempotency-Key`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from fastapi import Request, Response

from holdfast.app import Holdfast
from holdfast.engine import permissions
from holdfast.engine.access import Action
from holdfast.engine.named_request import Repeated
from holdfast.jobs.job import Enqueued
from holdfast.jobs.job import NewJob as NewRow
from holdfast.jobs.moves import State
from holdfast.server.access import Caller
from holdfast.server.idempotency import HEADER, KEPT_FOR, REPLAYED, key_reused, name_request
from holdfast.server.models import EnqueuedPage, EnqueuedView, JobRequest, JobsRequest
from holdfast.server.problems import Problem
from holdfast.server.responses import answer
from holdfast.server.routing import PREFIX, allows, app_of, caller_of, context_of, router
from holdfast.tasks.task import Task
from holdfast.values.suggest import suggest

_NO_OPTIONS = frozenset({"task", "args", "owner"})
_TRACE = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


routes = router("jobs")


@routes.post(
    "/jobs",
    status_code=201,
    response_model=EnqueuedView,
    responses={
        200: {
            "model": EnqueuedView,
            "description": "A job with the same dedupe key stands in for the new one.",
        }
    },
    **allows(Action.ENQUEUE, 402, 409),
)
async def enqueue_job(request: Request, body: JobRequest) -> Response:
    """Enqueue a job."""
    row = _row(app_of(request), body, caller_of(request), _trace(request))
    answers, headers = await _send(request, "jobs", body, [row])
    [view] = await _views(app_of(request), answers)
    headers["Location"] = f"{request.scope.get('root_path', '')}{PREFIX}/jobs/{view['id']}"
    return answer(view, 200 if view["duplicate"] else 201, headers)


@routes.post("/jobs/batch", status_code=201, response_model=EnqueuedPage, **allows(Action.ENQUEUE, 402, 409))
async def enqueue_jobs(request: Request, body: JobsRequest) -> Response:
    """Enqueue many jobs, all or none."""
    app, caller, trace = app_of(request), caller_of(request), _trace(request)
    rows = [_row(app, one, caller, trace) for one in body.jobs]
    answers, headers = await _send(request, "jobs/batch", body, rows)
    return answer({"jobs": await _views(app, answers)}, 201, headers)


def _trace(request: Request) -> str | None:
    """Return the caller's span (W3C), if the header is well-formed."""
    parent = request.headers.get("traceparent", "")
    return parent if _TRACE.fullmatch(parent) else None


def _row(app: Holdfast, body: JobRequest, caller: Caller, trace: str | None) -> NewRow:
    """Return the job, bound and checked as `task.enqueue` does."""
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
    """Return the task. Raises `Problem` or `Forbidden` when the caller may not enqueue it, or not in this queue."""
    name = body.task
    permissions.must_not_be_internal(name)
    if name not in app.tasks:
        names = (
            permissions.open_tasks(app.runtime)
            if caller.is_owner
            else permissions.external_tasks(app.runtime)
        )
        raise Problem("UNKNOWN_TASK", f"no task named {name[:100]!r}; {suggest(name[:100], names)}")
    if caller.is_owner:
        permissions.must_be_open(app.runtime, name)
        permissions.must_be_declared(app.runtime, body.queue, body.shard)
    return app.tasks[name]


async def _send(
    request: Request, route: str, body: JobRequest | JobsRequest, rows: list[NewRow]
) -> tuple[list[Enqueued], dict[str, str]]:
    """Store *rows*, and return their answers with the headers that mark a repeated request."""
    if HEADER not in request.headers:
        return list(await app_of(request).runtime.send(rows)), {}
    content = body.model_dump(mode="json", exclude_unset=True)
    name = name_request(request, caller_of(request), route, content)
    found = await context_of(request).requests.enqueue(name, rows, keep=KEPT_FOR)
    if not isinstance(found, Repeated):
        return list(found), {}
    if found.fingerprint != name.fingerprint:
        raise key_reused()
    return list(found.answers), dict(REPLAYED)


async def _views(app: Holdfast, answers: list[Enqueued]) -> list[dict[str, Any]]:
    """Return what the caller gets for each job. A duplicate has the state of the job that stands in for it."""
    twins = [one.id for one in answers if one.duplicate]
    rows = (await app.jobs.list(ids=twins, limit=len(twins), contents=False)).rows if twins else ()
    states = {row.id: row.state for row in rows}
    return [
        {"id": one.id, "state": states.get(one.id, State.QUEUED), "duplicate": one.duplicate}
        for one in answers
    ]
