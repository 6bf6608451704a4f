"""Jobs on their way in: enqueue, reject, promote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta

from holdfast.domain.job import AllNew, Enqueued, JobBatch, JobId, Lease, NewJob
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Failure
from holdfast.stores.encoding import MOST_PER_EVENT, to_json
from holdfast.stores.postgres import enqueue_plan
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.move import Move


async def enqueue_plain(move: Move, batches: Sequence[JobBatch]) -> Sequence[Enqueued]:
    """The quick way for plain jobs; raises `UniqueViolationError`, nothing done, where one was sent before."""
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
    """The way for everything else: what may be known already or has a key. Tells the hooks."""
    plan = enqueue_plan.enqueue(jobs, lanes=move.lanes.numbers)
    try:
        sql, parameters = next(plan)
        while True:
            rows = await move.connection.fetch(sql, *parameters)
            if sql is SQL["enqueue_again"]:
                for row in rows:
                    move.tell(Kind.queued, Lease(JobId(str(row[0])), 0), 0, {})
            sql, parameters = plan.send(rows)
    except StopIteration as done:
        await move.call_hooks()
        answers: list[Enqueued] = done.value
        return answers


async def reject(move: Move, job: NewJob, failure: Failure) -> None:
    lane = await move.lanes.number(move.connection, job.spec.lane)
    meta = {"error_code": failure.code}
    told = failure.code, failure.message, to_json(meta)
    if await move.run("reject", job.id, job.payload, lane, job.spec.owner, *told):
        move.tell(Kind.rejected, Lease(job.id, 0), 0, meta)


async def promote(move: Move, limit: int, notify: Callable[[], None]) -> timedelta | None:
    """Let what is due into line, and *ring* for it; how long until the next one is."""
    moved, ahead, keyed = limit, None, True  # of the first round nothing is known
    while moved >= limit:
        [(moved, ahead, keyed)] = await move.run("promote", limit)
        if moved:
            notify()
    if keyed:
        [(granted, _)] = await move.run("grant", None)
        if granted:
            notify()
    return ahead
