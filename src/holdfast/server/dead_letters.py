"""`/dead-letters`: look at them, by cause too; redrive and discard one. Many at once: `/operations`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from holdfast.domain.access import Action
from holdfast.domain.job import DeadLetter, DeadLetterFilter, JobRow
from holdfast.domain.moves import State
from holdfast.engine.permissions import must_be_declared
from holdfast.errors import Changed, Conflict, InsufficientCredits, QuotaExceeded
from holdfast.server import models, types
from holdfast.server.jobs import (
    IF_MATCH,
    Include,
    Internal,
    JobIdPath,
    One,
    Some,
    must_run_again,
    reached,
    readable,
)
from holdfast.server.pagination import CursorQuery, LimitQuery, capped
from holdfast.server.problems import Problem
from holdfast.server.rendering import PIECE
from holdfast.server.responses import answer, precondition_of, tag_of
from holdfast.server.routing import allows, app_of, caller_of, context_of, router
from holdfast.server.views import dead_letter_view, group_view, traceback_of

Moment = Annotated[types.Moment | None, Query()]


routes = router("dead letters")


@routes.get(
    "/dead-letters",
    response_model=models.DeadLetterPage,
    summary="Dead letters by filter, oldest first",
    **allows(Action.SEE),
)
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
    door, with_args = context_of(request), include == "args"
    engine = await door.app.engine()
    shown, upcoming = await door.renderer.page(
        lambda after, limit: engine.dead_letters(where, after=after, limit=limit, contents=with_args),
        lambda one: dead_letter_view(one, caller, with_args=with_args),
        lambda one: one.id,
        after=door.pages.open(cursor, "dead", where, caller.owner),
        most=most,
        piece=PIECE if with_args else most,
        contents=lambda one: one.payload,
    )
    return answer({"dead_letters": shown, "next": door.pages.seal(upcoming, "dead", where, caller.owner)})


@routes.get(
    "/dead-letters/groups",
    response_model=models.DeadLetterGroups,
    summary="Dead letters by their cause",
    **allows(Action.SEE),
)
async def list_dead_letter_groups(
    request: Request,
    task: Some = [],  # noqa: B006
    queue: Some = [],  # noqa: B006
    code: Some = [],  # noqa: B006
    owner: One = None,
    internal: Internal = False,
    limit: LimitQuery = 50,
) -> Response:
    where = DeadLetterFilter(
        tasks=tuple(task),
        queues=tuple(queue),
        codes=tuple(code),
        owner=caller_of(request).own(owner),
        internal=internal,
    )
    found = await (await app_of(request).engine()).dead_letter_groups(where, capped(limit))
    return answer({"groups": [group_view(one) for one in found]})


@routes.get(
    "/dead-letters/{job_id}",
    response_model=models.DeadLetterView,
    summary="One dead letter, by its job's id",
    **allows(Action.SEE),
)
async def get_dead_letter(request: Request, job_id: JobIdPath, include: Include = None) -> Response:
    row, letter = await _letter(request, job_id)
    attempts = await (await context_of(request).store()).attempts(
        row.id, after=row.epoch - 1
    )  # the last only
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
    summary="Redrive a dead letter",
    **allows(Action.STEER, 409, 412, openapi_extra=IF_MATCH),
)
async def redrive_dead_letter(
    request: Request, job_id: JobIdPath, body: models.RedriveRequest | None = None
) -> Response:
    row, by = await reached(request, job_id), caller_of(request).name
    queue, engine = None if body is None else body.to_queue, await app_of(request).engine()
    must_run_again(request, row)
    if caller_of(request).is_owner:
        must_be_declared(engine, queue)
    try:
        await engine.redrive_one(row.id, by=by, queue=queue, precondition=precondition_of(request))
    except Changed:
        raise
    except (Conflict, InsufficientCredits, QuotaExceeded):
        await _letter_of(request, row)
        raise Conflict(
            "it was not redriven: a live twin holds its dedupe key, or nobody pays for it"
        ) from None
    return answer({"id": job_id, "state": State.QUEUED})


@routes.post(
    "/dead-letters/{job_id}/discard",
    response_model=models.MovedJob,
    summary="Discard a dead letter; its job stays failed",
    **allows(Action.STEER, 409, 412, openapi_extra=IF_MATCH),
)
async def discard_dead_letter(request: Request, job_id: JobIdPath, body: models.DiscardRequest) -> Response:
    row, by = await reached(request, job_id), caller_of(request).name
    try:
        await (await context_of(request).store()).discard(
            row.id, by, body.reason, precondition=precondition_of(request)
        )
    except Changed:
        raise
    except Conflict:
        await _letter_of(request, row)
        raise
    return answer({"id": job_id, "state": State.FAILED})


async def _letter(request: Request, job_id: str) -> tuple[JobRow, DeadLetter]:
    """The job and its dead letter, where there is one and the caller may see it."""
    row = await readable(request, job_id)
    return row, await _letter_of(request, row)


async def _letter_of(request: Request, row: JobRow) -> DeadLetter:
    found = await app_of(request).dead_letters(ids=[row.id], limit=1)
    if not found:
        raise Problem("NOT_FOUND", f"the job is {row.state} and has no dead letter")
    return found[0]
