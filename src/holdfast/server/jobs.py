"""`/jobs`: look at jobs, retry and cancel them. Another's job is refused, whatever is asked of it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import Path, Query, Request, Response

from holdfast.domain.access import Action
from holdfast.domain.job import JobFilter, JobRow
from holdfast.domain.moves import State
from holdfast.engine.permissions import must_be_open
from holdfast.engine.ports import FIRST
from holdfast.errors import UnknownJob
from holdfast.server import models, types
from holdfast.server.pagination import CursorQuery, LimitQuery, capped
from holdfast.server.problems import Problem
from holdfast.server.rendering import fitting
from holdfast.server.responses import answer, is_known, precondition_of, tag_of
from holdfast.server.routing import allows, app_of, caller_of, context_of, router
from holdfast.server.views import attempt_view, event_view, job_view, late_result_view
from holdfast.webhooks.delivery import tested_webhook

_UUID = re.compile("-".join(f"[0-9a-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12)))

JobIdPath = Annotated[
    str, Path(description="The job's id.", examples=["019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42"])
]
Some = Annotated[list[types.Word], Query(max_length=50)]
One = Annotated[types.Word | None, Query()]
Internal = Annotated[
    bool, Query(description="With the engine's own jobs, which are left out unless they are named.")
]
Include = Annotated[
    Literal["args"] | None, Query(description="`args`: with its arguments, those of secret names hidden.")
]
IF_MATCH = {
    "parameters": [
        {
            "name": "If-Match",
            "in": "header",
            "required": False,
            "description": "The `ETag` that it was read with: refused with 412 when it has changed since. It is compared in the"
            " transaction of the change itself, so nobody comes between.",
            "schema": {"type": "string"},
        }
    ]
}


async def reached(request: Request, job_id: str) -> JobRow:
    """The job, where there is one and the caller may steer it."""
    row = await _known(request, job_id)
    caller_of(request).must_reach(row.owner)
    return row


async def readable(request: Request, job_id: str) -> JobRow:
    """The job, where there is one and the caller may see it: its own, and those that test its webhooks."""
    row, caller = await _known(request, job_id), caller_of(request)
    if not caller.reaches(row.owner):
        tested = await tested_webhook(await app_of(request).engine(), row)
        caller.must_reach(None if tested is None else tested.owner)
    return row


async def _known(request: Request, job_id: str) -> JobRow:
    if not _UUID.fullmatch(job_id):
        raise UnknownJob(job_id)
    return await app_of(request).job(job_id)


def must_run_again(request: Request, row: JobRow) -> None:
    """`Forbidden` where the caller is an owner and the task is not open to owners: who may not call it may not call it again."""
    if caller_of(request).is_owner:
        must_be_open(app_of(request), row.task)


routes = router("jobs")


@routes.get(
    "/jobs",
    response_model=models.JobPage,
    summary="Jobs by filter, newest first",
    **allows(Action.SEE),
)
async def list_jobs(
    request: Request,
    state: Annotated[list[State], Query(max_length=5)] = [],  # noqa: B006 - FastAPI copies it
    task: Some = [],  # noqa: B006
    queue: Some = [],  # noqa: B006
    owner: One = None,
    tag: One = None,
    key: One = None,
    error_code: One = None,
    created_after: Annotated[types.Moment | None, Query()] = None,
    created_before: Annotated[types.Moment | None, Query()] = None,
    internal: Internal = False,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> Response:
    caller = caller_of(request)
    where = JobFilter(
        states=tuple(state),
        tasks=tuple(task),
        queues=tuple(queue),
        owner=caller.own(owner),
        tag=tag,
        key=key,
        error_code=error_code,
        created_after=created_after,
        created_before=created_before,
        internal=internal,
    )
    pages = context_of(request).pages
    after = pages.open(cursor, "jobs", where, caller.owner)
    engine = await app_of(request).engine()
    page = await engine.jobs(where, after=after, limit=capped(limit), contents=False)
    shown = fitting(map(job_view, page.rows))
    upcoming = page.next
    if len(shown) < len(page.rows):  # only the store knows where a shorter page ends
        upcoming = (await engine.jobs(where, after=after, limit=len(shown), contents=False)).next
    return answer({"jobs": shown, "next": pages.seal(upcoming, "jobs", where, caller.owner)})


@routes.get(
    "/jobs/{job_id}",
    response_model=models.JobView,
    responses={304: {"description": "You have this version (`If-None-Match`)."}},
    summary="One job",
    **allows(Action.SEE),
)
async def get_job(request: Request, job_id: JobIdPath, include: Include = None) -> Response:
    row = await readable(request, job_id)
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


@routes.get(
    "/jobs/{job_id}/events",
    response_model=models.EventPage,
    summary="What happened to it, oldest first",
    **allows(Action.SEE),
)
async def get_job_events(
    request: Request, job_id: JobIdPath, cursor: CursorQuery = None, limit: LimitQuery = 100
) -> Response:
    await readable(request, job_id)
    app, door, most = app_of(request), context_of(request), capped(limit)
    shown, upcoming = await door.renderer.page(
        lambda after, limit: app.events(after=int(after or 0), limit=limit, job_id=job_id),
        event_view,
        lambda event: str(event.id),
        after=door.pages.open(cursor, "events", job_id),
        most=most,
        piece=most,
    )
    return answer({"events": shown, "next": door.pages.seal(upcoming, "events", job_id)})


@routes.get(
    "/jobs/{job_id}/attempts",
    response_model=models.Attempts,
    summary="Its attempts, each with what it came to",
    **allows(Action.SEE),
)
async def get_job_attempts(
    request: Request, job_id: JobIdPath, cursor: CursorQuery = None, limit: LimitQuery = 100
) -> Response:
    row, door, caller = await readable(request, job_id), context_of(request), caller_of(request)
    store = await door.store()
    shown, upcoming = await door.renderer.page(
        lambda after, limit: store.attempts(row.id, after=int(after or 0), limit=limit),
        lambda one: attempt_view(one, caller),
        lambda one: str(one.epoch),
        after=door.pages.open(cursor, "attempts", job_id),
        most=capped(limit),
        contents=lambda one: one.logs,
    )
    return answer({"attempts": shown, "next": door.pages.seal(upcoming, "attempts", job_id)})


@routes.get(
    "/jobs/{job_id}/late-results",
    response_model=models.LateResults,
    summary="Results that came after its end, and had no effect",
    **allows(Action.SEE),
)
async def get_job_late_results(
    request: Request, job_id: JobIdPath, cursor: CursorQuery = None, limit: LimitQuery = 100
) -> Response:
    row, door = await readable(request, job_id), context_of(request)
    store = await door.store()
    shown, upcoming = await door.renderer.page(
        lambda after, limit: store.late_results(
            row.id, after=FIRST if after is None else int(after), limit=limit
        ),
        late_result_view,
        lambda one: str(one.epoch),
        after=door.pages.open(cursor, "late", job_id),
        most=capped(limit),
        contents=lambda one: one.result,
    )
    return answer({"late_results": shown, "next": door.pages.seal(upcoming, "late", job_id)})


@routes.get(
    "/jobs/{job_id}/result",
    response_model=models.ResultView,
    summary="Its result",
    **allows(Action.SEE, 409),
)
async def get_job_result(request: Request, job_id: JobIdPath) -> Response:
    row = await readable(request, job_id)
    if row.state in (State.QUEUED, State.PROCESSING):
        raise Problem("NOT_READY", f"the job is {row.state}; ask again later", state=row.state)
    if row.state is not State.COMPLETE:
        detail = f"the job ended as {row.state}, so it has no result"
        raise Problem("JOB_FAILED", detail, state=row.state, error_code=row.error_code)
    result = await (await app_of(request).engine()).result_of(row)
    return answer({"id": row.id, "state": row.state, "result": result})


@routes.get(
    "/jobs/{job_id}/explain",
    response_model=models.ExplanationView,
    summary="Why it is not running, and when it is expected to",
    **allows(Action.SEE),
)
async def explain_job(request: Request, job_id: JobIdPath) -> Response:
    await readable(request, job_id)
    found = await app_of(request).explain(job_id)
    return answer(
        {
            "sentence": found.sentence,
            "reason": found.reason,
            "facts": found.facts,
            "expected_at": found.expected_at,
        }
    )


@routes.post(
    "/jobs/{job_id}/retry",
    response_model=models.Retried,
    summary="Run a failed, cancelled, waiting or stuck job now",
    **allows(Action.STEER, 402, 409, 412, openapi_extra=IF_MATCH),
)
async def retry_job(request: Request, job_id: JobIdPath, body: models.RetryRequest | None = None) -> Response:
    must_run_again(request, await reached(request, job_id))
    step, by = None if body is None else body.from_step, caller_of(request).name
    engine = await app_of(request).engine()
    args = None if body is None else body.args
    place = await engine.retry(
        job_id, by=by, from_step=step, args=args, precondition=precondition_of(request)
    )
    return answer({"id": job_id, "state": State.QUEUED, "queue_position": place})


@routes.post(
    "/jobs/{job_id}/cancel",
    response_model=models.MovedJob,
    summary="Cancel a queued or running job",
    **allows(Action.STEER, 409, 412, openapi_extra=IF_MATCH),
)
async def cancel_job(
    request: Request, job_id: JobIdPath, body: models.ReasonRequest | None = None
) -> Response:
    await reached(request, job_id)
    reason, by = "" if body is None else body.reason, caller_of(request).name
    engine = await app_of(request).engine()
    await engine.cancel(job_id, by=by, reason=reason, precondition=precondition_of(request))
    return answer({"id": job_id, "state": State.CANCELLED})
