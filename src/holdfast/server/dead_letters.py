"""`/dead-letters`: list, group, get, redrive and discard dead letters. For many at once there is `/operations`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Query, Request, Response

from holdfast.engine.access import Action
from holdfast.engine.permissions import must_be_declared
from holdfast.errors import Changed, Conflict, QuotaExceeded, Refused
from holdfast.jobs.job import DeadLetter, DeadLetterFilter, JobRow
from holdfast.jobs.moves import State
from holdfast.server import models, types
from holdfast.server.jobs import (
    IF_MATCH,
    Include,
    Internal,
    JobIdPath,
    One,
    Some,
    must_run_again,
    own_job,
    visible_job,
)
from holdfast.server.pagination import CursorQuery, LimitQuery, capped
from holdfast.server.problems import Problem
from holdfast.server.rendering import PIECE
from holdfast.server.responses import answer, precondition_of, tag_of
from holdfast.server.routing import allows, app_of, caller_of, context_of, router
from holdfast.server.views import dead_letter_view, group_view, traceback_of

Moment = Annotated[types.Moment | None, Query()]


routes = router("dead letters")


@routes.get("/dead-letters", response_model=models.DeadLetterPage, **allows(Action.SEE))
async def list_dead_letters(
    request: Request,
    task: Some = [],  # noqa: B006 - FastAPI copies it
    queue: Some = [],  # noqa: B006
    code: Some = [],  # noqa: B006
    fingerprint: One = None,
    owner: One = None,
    died_after: Moment = None,
    died_before: Moment = None,
    internal: Internal = False,
    include: Include = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> Response:
    """List dead letters by filter, oldest first."""
    caller, most = caller_of(request), capped(limit)
    where = DeadLetterFilter(
        tasks=tuple(task),
        queues=tuple(queue),
        codes=tuple(code),
        fingerprint=fingerprint,
        owner=caller.own(owner),
        died_after=died_after,
        died_before=died_before,
        internal=internal,
    )
    context, with_args = context_of(request), include == "args"
    dead_letters = context.app.dead_letters
    shown, upcoming = await context.renderer.page(
        lambda after, limit: dead_letters.list(where, after=after, limit=limit, contents=with_args),
        lambda one: dead_letter_view(one, caller, with_args=with_args),
        lambda one: one.id,
        after=context.pages.open(cursor, "dead", where, caller.owner),
        most=most,
        piece=PIECE if with_args else most,
        contents=lambda one: one.payload,
    )
    return answer({"dead_letters": shown, "next": context.pages.seal(upcoming, "dead", where, caller.owner)})


@routes.get("/dead-letters/groups", response_model=models.DeadLetterGroupList, **allows(Action.SEE))
async def list_dead_letter_groups(
    request: Request,
    task: Some = [],  # noqa: B006
    queue: Some = [],  # noqa: B006
    code: Some = [],  # noqa: B006
    owner: One = None,
    internal: Internal = False,
    limit: LimitQuery = 50,
) -> Response:
    """List dead letters grouped by cause."""
    caller, letters = caller_of(request), app_of(request).dead_letters
    where = DeadLetterFilter(
        tasks=tuple(task),
        queues=tuple(queue),
        codes=tuple(code),
        owner=caller.own(owner),
        internal=internal,
    )
    found = await letters.groups(where, limit=capped(limit))
    if caller.is_owner and found:  # the message of a cause is its technical detail
        samples = await letters.list(ids=[one.sample for one in found], limit=len(found), contents=False)
        messages = {one.id: one.message for one in samples}
        found = [replace(one, message=messages.get(one.sample, "")) for one in found]
    return answer({"groups": [group_view(one) for one in found]})


@routes.get("/dead-letters/{job_id}", response_model=models.DeadLetterView, **allows(Action.SEE))
async def get_dead_letter(request: Request, job_id: JobIdPath, include: Include = None) -> Response:
    """Get one dead letter by its job's id."""
    row, letter = await _letter(request, job_id)
    attempts = await app_of(request).jobs.attempts(row.id, after=row.epoch - 1)
    traceback = traceback_of(attempts[-1]) if attempts else None
    with_args, caller = include == "args", caller_of(request)
    shown = await context_of(request).renderer.one(
        lambda: dead_letter_view(letter, caller, with_args=with_args, traceback=traceback),
        letter.payload if with_args else None,
    )
    return answer(shown, headers={"ETag": tag_of(row)})


@routes.post(
    "/dead-letters/{job_id}/redrive",
    response_model=models.MovedJob,
    **allows(Action.STEER, 409, 412, openapi_extra=IF_MATCH),
)
async def redrive_dead_letter(
    request: Request, job_id: JobIdPath, body: models.RedriveRequest | None = None
) -> Response:
    """Redrive a dead letter."""
    row, by = await own_job(request, job_id), caller_of(request).name
    app, queue = app_of(request), None if body is None else body.to_queue
    must_run_again(request, row)
    if caller_of(request).is_owner:
        must_be_declared(app.runtime, queue)
    try:
        await app.dead_letters.redrive_one(
            row.id, by=by, to_queue=queue, precondition=precondition_of(request)
        )
    except (Changed, QuotaExceeded):
        raise
    except (Conflict, Refused):
        await _letter_of(request, row)
        raise Conflict(
            "it was not redriven: another live job has its dedupe key, or an extension refused it, as credits do when they are used up"
        ) from None
    return answer({"id": job_id, "state": State.QUEUED})


@routes.post(
    "/dead-letters/{job_id}/discard",
    response_model=models.MovedJob,
    **allows(Action.STEER, 409, 412, openapi_extra=IF_MATCH),
)
async def discard_dead_letter(request: Request, job_id: JobIdPath, body: models.DiscardRequest) -> Response:
    """Discard a dead letter; its job stays failed."""
    row, by = await own_job(request, job_id), caller_of(request).name
    try:
        await app_of(request).dead_letters.discard_one(
            row.id, by=by, reason=body.reason, precondition=precondition_of(request)
        )
    except Changed:
        raise
    except Conflict:
        await _letter_of(request, row)
        raise
    return answer({"id": job_id, "state": State.FAILED})


async def _letter(request: Request, job_id: str) -> tuple[JobRow, DeadLetter]:
    """Return the job and its dead letter. Raises `Problem` when there is none or the caller may not see it."""
    row = await visible_job(request, job_id)
    return row, await _letter_of(request, row)


async def _letter_of(request: Request, row: JobRow) -> DeadLetter:
    found = await app_of(request).dead_letters.list(ids=[row.id], limit=1)
    if not found:
        raise Problem("NOT_FOUND", f"the job is {row.state} and has no dead letter")
    return found[0]
