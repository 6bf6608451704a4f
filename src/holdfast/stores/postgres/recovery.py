"""What housekeeping does: leases that ran out, deadlines that passed, records that were kept long enough."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import asyncpg

from holdfast.domain.job import Expired, JobId, Lease
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Bury, Failure, RetryAfter
from holdfast.engine.ports import Reclaim, Retention
from holdfast.stores.encoding import OVERRUN_MARGIN, said
from holdfast.stores.postgres import outcomes
from holdfast.stores.postgres.attempt_data import purge_tracebacks
from holdfast.stores.postgres.ids import is_uuid
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.outcomes import ANY, FAILED, Back, End


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
    return [Expired(Lease(JobId(str(row[0])), row[1]), lanes[row[2]], *row[3:]) for row in rows]


async def ran_out(move: Move, ids: Sequence[JobId]) -> dict[Lease, bool]:
    """The leases of these jobs that ran out, and whether it is only that the attempt overran."""
    rows = await _expired_rows(move, len(ids), ids)
    return {Lease(JobId(str(row[0])), row[1]): row[8] for row in rows}


async def _expired_rows(move: Move, limit: int, only: Sequence[JobId] | None = None) -> list[asyncpg.Record]:
    return await move.run("expired", limit, OVERRUN_MARGIN, only)


async def reclaim(move: Move, reclaims: Sequence[Reclaim], stuck: bool = False) -> int:
    """Guarded twice: the lease must still be the current one, and must still have run out, unless it is *stuck*.

    The row lock only saves work: of two processes that reclaim the same lease the second waits here and finds nothing.
    Without it the epochs in `requeue.sql` and `end.sql` would refuse the second.
    """
    ids = [r.lease.job_id for r in reclaims]
    await move.connection.execute(
        "SELECT 1 FROM holdfast.lease WHERE job_id = ANY ($1::uuid[]) ORDER BY job_id FOR UPDATE", ids
    )
    overran = {} if stuck else await ran_out(move, ids)
    due = {r.lease: r for r in reclaims if stuck or overran.get(r.lease) is (not r.crashed)}.values()
    back = [
        Back(
            lease,
            verdict,
            "reclaimed",
            1 if crashed else None,
            {"error_code": verdict.failure.code, **said(by)},
        )
        for lease, verdict, crashed, by in due
        if isinstance(verdict, RetryAfter)
    ]
    done = len(await outcomes.into_line(move, Kind.reclaimed, back, any_deadline=True)) if back else 0
    for lease, verdict, crashed, by in due:
        if isinstance(verdict, Bury):
            done += await bury_lost(move, lease, verdict.failure, 1 if crashed else None, by)
    return done


async def bury_lost(move: Move, lease: Lease, failure: Failure, crashes: int | None, by: str) -> int:
    line = End(lease.job_id, failure, {"error_code": failure.code, **said(by)})
    ended = await outcomes.end(
        move, [line], FAILED, Kind.failed, "reclaimed", ANY, epochs=[lease.epoch], crashes=crashes
    )
    return len(ended)


# -- deadlines --------------------------------------------------------------------------------------------------------------
async def time_out(move: Move, limit: int, skip: int) -> list[JobId]:
    ids = [JobId(str(row[0])) for row in await move.run("overdue", limit, skip)]
    return [job_id for job_id, _ in await outcomes.time_out(move, ids)] if ids else []


# -- retention ------------------------------------------------------------------------------------------------------------
async def purge(move: Move, task: str | None, keep: Retention, limit: int, but: Collection[str]) -> int:
    done = 0
    if keep.results is not None:
        rows = await move.run("purge_results", keep.results, task, limit, list(but))
        for job_id, epoch, attempt in rows:
            move.tell(Kind.expired, Lease(JobId(str(job_id)), epoch), attempt, {})
        done += len(rows)
    if keep.jobs is not None:
        gone = len(await move.run("purge_jobs", keep.jobs, task, limit, list(but)))
        done += gone or await purge_tracebacks(move, limit)
    if keep.events is not None and task is None:
        # The newest row stays: after a restore it says where the numbers go on (`event_numbers`).
        status = await move.connection.execute(
            "DELETE FROM holdfast.event WHERE seq IN (SELECT seq FROM holdfast.event WHERE at <= holdfast.clock() - $1::interval"
            " AND seq < (SELECT max(seq) FROM holdfast.event) ORDER BY seq LIMIT $2::int)", keep.events, limit,
        )  # fmt: skip
        done += _count(status)
    return done


def _count(status: str) -> int:
    """How many rows, in a status such as `DELETE 7`."""
    return int(status.rsplit(" ", 1)[1])
