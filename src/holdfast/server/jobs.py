"""`/jobs`: list, get, explain, retry and cancel jobs. A key of an owner reaches only its own."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import Path, Query, Request, Response
from pydantic import AfterValidator, Field

from holdfast.engine.access import Action
from holdfast.engine.filters import job_filter
from holdfast.engine.permissions import must_be_open
from holdfast.errors import UnknownJob
from holdfast.jobs.job import JobRow
from holdfast.jobs.moves import State
from holdfast.server import models, types
from holdfast.server.pagination import CursorQuery, LimitQuery, capped
from holdfast.server.problems import Problem
from holdfast.server.rendering import fitting
from holdfast.server.responses import answer, is_known, precondition_of, tag_of
from holdfast.server.routing import allows, app_of, caller_of, context_of, router
from holdfast.server.views import attempt_view, event_view, job_view, late_result_view
from holdfast.values.pairs import read_pairs

_UUID = re.compile("-".join(f"[0-9a-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12)))

JobIdPath = Annotated[
    str, Path(description="The job's id.", examples=["019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42"])
]
Some = Annotated[list[types.Word], Query(max_length=50)]
One = Annotated[types.Word | None, Query()]
Internal = Annotated[
    bool, Query(description="Include the engine's own jobs, which are left out unless they are named.")
]
Pair = Annotated[
    str, Field(max_length=500, pattern=r"^[^=]+=", examples=["order=1001"]), AfterValidator(types.printable)
]
Arguments = Annotated[
    list[Pair],
    Query(
        max_length=20,
        description="Only jobs that were called with this argument: `order=1001`. The value is read as JSON, or else as text.",
    ),
]
Include = Annotated[
    Literal["args"] | None,
    Query(description="`args`: include the arguments; values of secret names are hidden."),
]
IF_MATCH = {
    "parameters": [
        {
            "name": "If-Match",
            "in": "header",
            "required": False,
            "description": "The `ETag` that it was read with. If it has changed since, the request is refused with 412. The tag is compared"
            " in the transaction of the change."
            "",
            "schema": {"type": "string"},
        }
    ]
}


async def own_job(request: Request, job_id: str) -> JobRow:
    """Return the job. Raises `Problem` when the caller may not change it, and `UnknownJob` when there is none."""
    row = await _known(request, job_id)
    caller_of(request).must_reach(row.owner)
    return row


async def visible_job(request: Request, job_id: str) -> JobRow:
    """Return the job. An owner may see its own jobs and those that test its webhooks.

    Raises `Problem` when the caller may not see it, and `UnknownJob` when there is none.
    """
    row, caller = await _known(request, job_id), caller_of(request)
    if not caller.reaches(row.owner):
        tested = await app_of(request).webhooks.tested_by(row)
        caller.must_reach(None if tested is None else tested.owner)
    return row


async def _known(request: Request, job_id: str) -> JobRow:
    if not _UUID.fullmatch(job_id):
        raise UnknownJob(job_id)
    return await app_of(request).jobs.get(job_id)


def must_run_again(request: Request, row: JobRow) -> None:
    """Raise `Forbidden` when the caller is an owner and the task is not open to owners, who may not call it again either."""
    if caller_of(request).is_owner:
        must_be_open(app_of(request).runtime, row.task)


routes = router("jobs")


@routes.get("/jobs", response_model=models.JobPage, **allows(Action.SEE))
async def list_jobs(
    request: Request,
    state: Annotated[list[State], Query(max_length=5)] = [],  # noqa: B006 - FastAPI copies it
    task: Some = [],  # noqa: B006
    queue: Some = [],  # noqa: B006
    owner: One = None,
    tag: One = None,
    key: One = None,
    error_code: One = None,
    arg: Arguments = [],  # noqa: B006
    created_after: Annotated[types.Moment | None, Query()] = None,
    created_before: Annotated[types.Moment | None, Query()] = None,
    internal: Internal = False,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> Response:
    """List jobs by filter, newest first."""
    caller = caller_of(request)
    where = job_filter(
        state=state,
        task=task,
        queue=queue,
        owner=caller.own(owner),
        args=types.searchable(read_pairs(arg)),
        tag=tag,
        key=key,
        error_code=error_code,
        created_after=created_after,
        created_before=created_before,
        internal=internal,
    )
    pages = context_of(request).pages
    after = pages.open(cursor, "jobs", where, caller.owner)
    jobs = app_of(request).jobs
    page = await jobs.list(where, after=after, limit=capped(limit), contents=False)
    shown = fitting(map(job_view, page.rows))
    upcoming = page.next
    if len(shown) < len(page.rows):  # only the store knows where a shorter page ends
        upcoming = (await jobs.list(where, after=after, limit=len(shown), contents=False)).next
    return answer({"jobs": shown, "next": pages.seal(upcoming, "jobs", where, caller.owner)})


@routes.get(
    "/jobs/{job_id}",
    response_model=models.JobView,
    responses={304: {"description": "You have this version (`If-None-Match`)."}},
    **allows(Action.SEE),
)
async def get_job(request: Request, job_id: JobIdPath, include: Include = None) -> Response:
    """Get one job."""
    row = await visible_job(request, job_id)
    tag = {"ETag": tag_of(row)}
    if is_known(request, tag["ETag"]):
        return Response(status_code=304, headers=tag)
    with_args = include == "args"
    shown = await context_of(request).renderer.one(
        lambda: job_view(row, with_result=True, with_args=with_args),
        row.payload if with_args else None,
        row.result,
    )
    return answer(shown, headers=tag)


@routes.get("/jobs/{job_id}/events", response_model=models.EventPage, **allows(Action.SEE))
async def get_job_events(
    request: Request, job_id: JobIdPath, cursor: CursorQuery = None, limit: LimitQuery = 100
) -> Response:
    """List the events of a job, oldest first."""
    await visible_job(request, job_id)
    app, context, most = app_of(request), context_of(request), capped(limit)
    shown, upcoming = await context.renderer.page(
        lambda after, limit: app.events.list(after=int(after or 0), limit=limit, job_id=job_id),
        event_view,
        lambda event: str(event.id),
        after=context.pages.open(cursor, "events", job_id),
        most=most,
        piece=most,
    )
    return answer({"events": shown, "next": context.pages.seal(upcoming, "events", job_id)})


@routes.get("/jobs/{job_id}/attempts", response_model=models.AttemptList, **allows(Action.SEE))
async def get_job_attempts(
    request: Request, job_id: JobIdPath, cursor: CursorQuery = None, limit: LimitQuery = 100
) -> Response:
    """List the attempts of a job."""
    row, context, caller = await visible_job(request, job_id), context_of(request), caller_of(request)
    jobs = app_of(request).jobs
    shown, upcoming = await context.renderer.page(
        lambda after, limit: jobs.attempts(row.id, after=int(after or 0), limit=limit),
        lambda one: attempt_view(one, caller),
        lambda one: str(one.epoch),
        after=context.pages.open(cursor, "attempts", job_id),
        most=capped(limit),
        contents=lambda one: one.logs,
    )
    return answer({"attempts": shown, "next": context.pages.seal(upcoming, "attempts", job_id)})


@routes.get("/jobs/{job_id}/late-results", response_model=models.LateResultList, **allows(Action.SEE))
async def get_job_late_results(
    request: Request, job_id: JobIdPath, cursor: CursorQuery = None, limit: LimitQuery = 100
) -> Response:
    """List the results that arrived after the end of a job and had no effect."""
    row, context = await visible_job(request, job_id), context_of(request)
    jobs = app_of(request).jobs
    shown, upcoming = await context.renderer.page(
        lambda after, limit: jobs.late_results(
            row.id, after=None if after is None else int(after), limit=limit
        ),
        late_result_view,
        lambda one: str(one.epoch),
        after=context.pages.open(cursor, "late", job_id),
        most=capped(limit),
        contents=lambda one: one.result,
    )
    return answer({"late_results": shown, "next": context.pages.seal(upcoming, "late", job_id)})


@routes.get("/jobs/{job_id}/result", response_model=models.ResultView, **allows(Action.SEE, 409))
async def get_job_result(request: Request, job_id: JobIdPath) -> Response:
    """Get the result of a job."""
    row = await visible_job(request, job_id)
    if row.state in (State.QUEUED, State.PROCESSING):
        raise Problem("NOT_READY", f"the job is {row.state}; ask again later", state=row.state)
    if row.state is not State.COMPLETE:
        detail = f"the job ended as {row.state}, so it has no result"
        raise Problem("JOB_FAILED", detail, state=row.state, error_code=row.error_code)
    result = await app_of(request).jobs.result(job_id, as_json=True)
    return answer({"id": row.id, "state": row.state, "result": result})


@routes.get("/jobs/{job_id}/explain", response_model=models.ExplanationView, **allows(Action.SEE))
async def explain_job(request: Request, job_id: JobIdPath) -> Response:
    """Explain why a job is not running and when it is expected to."""
    await visible_job(request, job_id)
    found = await app_of(request).jobs.explain(job_id)
    return answer(types.picked(found, models.ExplanationView))


@routes.post(
    "/jobs/{job_id}/retry",
    response_model=models.Retried,
    **allows(Action.STEER, 402, 409, 412, openapi_extra=IF_MATCH),
)
async def retry_job(request: Request, job_id: JobIdPath, body: models.RetryRequest | None = None) -> Response:
    """Run a failed, cancelled, waiting or stuck job now."""
    must_run_again(request, await own_job(request, job_id))
    step, by = None if body is None else body.from_step, caller_of(request).name
    args = None if body is None else body.args
    place = await app_of(request).jobs.retry(
        job_id, by=by, from_step=step, args=args, precondition=precondition_of(request)
    )
    return answer({"id": job_id, "state": State.QUEUED, "queue_position": place})


@routes.post(
    "/jobs/{job_id}/cancel",
    response_model=models.MovedJob,
    **allows(Action.STEER, 409, 412, openapi_extra=IF_MATCH),
)
async def cancel_job(
    request: Request, job_id: JobIdPath, body: models.ReasonRequest | None = None
) -> Response:
    """Cancel a queued or running job."""
    await own_job(request, job_id)
    reason, by = "" if body is None else body.reason, caller_of(request).name
    await app_of(request).jobs.cancel(job_id, by=by, reason=reason, precondition=precondition_of(request))
    return answer({"id": job_id, "state": State.CANCELLED})
