"""Store new jobs: enqueue, reject, promote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta

from holdfast.jobs.job import AllNew, Enqueued, JobBatch, JobId, Lease, NewJob
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Failure
from holdfast.stores.encoding import MOST_PER_EVENT, to_json
from holdfast.stores.postgres import enqueue_plan
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.move import Move


async def enqueue_plain(move: Move, batches: Sequence[JobBatch]) -> Sequence[Enqueued]:
    """Store plain jobs with as few statements as possible.

    Raises:
        UniqueViolationError: The id of one is known. Nothing is stored.
    """
    connection = move.connection
    parts = [part for batch in batches for part in batch.parts(MOST_PER_EVENT)]
    if len(parts) == 1:
        lane = await move.lanes.number(connection, parts[0].spec.lane)
        statements = [enqueue_plan.plain(parts[0], lane)]
    else:
        lanes = await move.lanes.make(connection, (part.spec.lane for part in parts))
        statements = [enqueue_plan.plain_lanes(group, lanes) for group in enqueue_plan.together(parts)]
    async with connection.transaction() if len(statements) > 1 else nullcontext():
        for name, parameters in statements:
            await move.run(name, *parameters)
    return AllNew([job_id for batch in batches for job_id in batch.ids])


async def enqueue_planned(move: Move, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Store any jobs, also those with keys and those that may be stored already, and call the hooks of new ones."""
    plan = enqueue_plan.enqueue(jobs, lanes=move.lanes.numbers)
    try:
        sql, parameters = next(plan)
        while True:
            rows = await move.connection.fetch(sql, *parameters)
            if sql is SQL["enqueue_again"]:
                for row in rows:
                    move.notice(Kind.queued, Lease(JobId(str(row[0])), 0), 0, {})
            sql, parameters = plan.send(rows)
    except StopIteration as done:
        await move.call_hooks()
        answers: list[Enqueued] = done.value
        return answers


async def reject(move: Move, job: NewJob, failure: Failure) -> None:
    """Store *job* as failed before its first attempt, unless its id is known."""
    lane = await move.lanes.number(move.connection, job.spec.lane)
    meta = {"error_code": failure.code}
    error = failure.code, failure.message, to_json(meta)
    if await move.run("reject", job.id, job.payload, lane, job.spec.owner, *error):
        move.notice(Kind.rejected, Lease(job.id, 0), 0, meta)


async def promote(move: Move, limit: int, notify: Callable[[], None]) -> timedelta | None:
    """Make deferred jobs ready that are due, in batches of *limit*, and call *notify* for them.

    Return how long it is until the next deferred job is due, or None if there is none.
    """
    moved, ahead, keyed = limit, None, True
    while moved >= limit:
        [(moved, ahead, keyed)] = await move.run("promote", limit)
        if moved:
            notify()
    if keyed:
        [(granted, _)] = await move.run("grant", None)
        if granted:
            notify()
    return ahead
