"""What maintenance does with jobs: expired leases, stuck attempts, passed deadlines, retention."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import asyncpg

from holdfast.engine.extensions import PurgeHook
from holdfast.engine.ports import Reclaim
from holdfast.jobs.job import ORDINARY_COST, Expired, JobId, Lease
from holdfast.jobs.moves import Kind
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Bury, Failure, RetryAfter
from holdfast.stores.encoding import (
    OVERRUN_MARGIN,
    DeadlineGuard,
    expired_lease,
    manual_meta,
    some,
    stored_cost,
)
from holdfast.stores.postgres import outcomes
from holdfast.stores.postgres.attempt_data import purge_tracebacks
from holdfast.stores.postgres.ids import is_uuid
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.outcomes import End, Requeue


# -- leases ---------------------------------------------------------------------------------------------------------------
async def expired(move: Move, limit: int) -> list[Expired]:
    return await _as_expired(move, await _expired_rows(move, limit))


async def stuck(
    move: Move,
    limits: Mapping[str, timedelta],
    limit: int,
    owner: str | None = None,
    ids: Collection[str] | None = None,
) -> list[Expired]:
    only = None if ids is None else [job_id for job_id in ids if is_uuid(job_id)]
    given = list(limits), list(limits.values()), limit, owner, only
    return await _as_expired(move, await move.run("stuck", *given))


async def _as_expired(move: Move, rows: Sequence[asyncpg.Record]) -> list[Expired]:
    lanes = await move.lanes.by_number(move.connection, [row["lane"] for row in rows])
    return [expired_lease(row, lanes[row["lane"]]) for row in rows]


async def ran_out(move: Move, ids: Sequence[JobId]) -> dict[Lease, bool]:
    """Return the expired leases of these jobs, and whether that is only because the attempt overran its timeout."""
    found = await _as_expired(move, await _expired_rows(move, len(ids), ids))
    return {one.lease: one.overran for one in found}


async def _expired_rows(move: Move, limit: int, only: Sequence[JobId] | None = None) -> list[asyncpg.Record]:
    return await move.run("expired", limit, OVERRUN_MARGIN, only)


async def reclaim(move: Move, reclaims: Sequence[Reclaim], stuck: bool = False) -> int:
    """Take jobs from their workers, and return how many were taken.

    There are two guards: the statement compares the lease, and the lease must still have expired unless the attempt is *stuck*.

    The row lock only saves work: of two processes that reclaim the same lease the second waits for the first and finds nothing.
    Without the lock the epochs in `requeue.sql` and `end.sql` would refuse the second.
    """
    ids = [r.lease.job_id for r in reclaims]
    await move.connection.execute(
        "SELECT 1 FROM holdfast.lease WHERE job_id = ANY ($1::uuid[]) ORDER BY job_id FOR UPDATE", ids
    )
    overran = {} if stuck else await ran_out(move, ids)
    due = {r.lease: r for r in reclaims if stuck or overran.get(r.lease) is (not r.crashed)}.values()
    requeued = [
        Requeue(
            lease,
            verdict,
            "reclaimed",
            1 if crashed else None,
            some({"error_code": verdict.failure.code, **manual_meta(by), "cost": stored_cost(cost)}),
        )
        for lease, verdict, crashed, by, cost in due
        if isinstance(verdict, RetryAfter)
    ]
    done = 0
    if requeued:
        done = len(await outcomes.requeue(move, "reclaim", Kind.reclaimed, requeued, any_deadline=True))
    for lease, verdict, crashed, by, cost in due:
        if isinstance(verdict, Bury):
            done += await bury_lost(move, lease, verdict.failure, 1 if crashed else None, by, cost)
    return done


async def bury_lost(
    move: Move, lease: Lease, failure: Failure, crashes: int | None, by: str, cost: float = ORDINARY_COST
) -> int:
    meta = some({"error_code": failure.code, **manual_meta(by), "cost": stored_cost(cost)})
    job = End(lease.job_id, failure, meta)
    ended = await outcomes.end(
        move, "reclaim", [job], DeadlineGuard.ANY, epochs=[lease.epoch], crashes=crashes
    )
    return len(ended)


# -- deadlines --------------------------------------------------------------------------------------------------------------
async def time_out(move: Move, limit: int, skip: int) -> list[JobId]:
    ids = [JobId(str(row["id"])) for row in await move.run("overdue", limit, skip)]
    return [job_id for job_id, _ in await outcomes.time_out(move, ids)] if ids else []


# -- retention ------------------------------------------------------------------------------------------------------------
async def purge(
    move: Move,
    task: str | None,
    keep: Retention,
    limit: int,
    but: Collection[str],
    hooks: Sequence[PurgeHook] = (),
) -> int:
    """Delete what was kept long enough, call *hooks* with the deleted jobs, and return how much was deleted."""
    done = 0
    if keep.results is not None:
        rows = await move.run("purge_results", keep.results, task, limit, list(but))
        for row in rows:
            move.notice(Kind.expired, Lease(JobId(str(row["job_id"])), row["epoch"]), row["attempt"], {})
        done += len(rows)
    if keep.jobs is not None:
        purged = [
            JobId(str(row["job_id"]))
            for row in await move.run("purge_jobs", keep.jobs, task, limit, list(but))
        ]
        for hook in hooks if purged else ():
            await hook(move.transaction, purged)
        done += len(purged) or await purge_tracebacks(move, limit)
    if keep.events is not None and task is None:
        # The newest row stays: after a restore the next numbers start above it (`event_numbers`).
        status = await move.connection.execute(
            "DELETE FROM holdfast.event WHERE seq IN (SELECT seq FROM holdfast.event WHERE at <= holdfast.clock() - $1::interval"
            " AND seq < (SELECT max(seq) FROM holdfast.event) ORDER BY seq LIMIT $2::int)", keep.events, limit,
        )  # fmt: skip
        done += _count(status)
    return done


def _count(status: str) -> int:
    """Return the number of rows in a status such as `DELETE 7`."""
    return int(status.rsplit(" ", 1)[1])
